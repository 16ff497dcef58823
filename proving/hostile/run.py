"""One run: a target, an honest peer, an attacker with a certificate, and every door in turn."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lab import key_folders
from lab.engines import Place, befriend, free_port
from lab.wait import wait_for
from proving.hostile import aftermath, bus, floods, inputs, joins, payloads
from proving.hostile.attack import Connect, Tally, attack, over_tcp, over_tls, over_unix
from proving.hostile.honest import Honest, Served
from proving.hostile.payloads import Known
from proving.hostile.report import Row
from proving.hostile.target import Target, Watch, doors, furnish
from saltext_ha.transport import identity, tls
from saltext_ha.transport.listener import OPEN
from saltext_ha.transport.trust import Trust, make_peer

SECRET = b"0123456789abcdef-the-secret-of-the-group"
TOKEN = "fedcba9876543210-what-the-status-page-is-shown-for"
SETTLED = 60.0
# Bytes of memory that the engine may have, and that one door may add; docs/security.md says why.
MEMORY = 400_000_000
GROWTH = 100_000_000
GROWTH_OF = {floods.LARGE: 200_000_000}


@dataclass
class Scene:
    """
    What a run takes place on, and what it found. *guarded* is a second engine that nothing else
    needs: its status listener takes TLS and a token, and it may be ruined.
    """

    target: Target
    guarded: Target
    honest: Honest
    known: Known
    methods: list[str]
    commands: list[str]
    secrets: tuple[bytes, ...]
    attacker: ssl.SSLContext
    quiet: Served = field(default_factory=lambda: Served(0, 0, 0.0, 0.0))
    rows: list[Row] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    only: tuple[str, ...] = ()
    """Doors to try; none named: all."""

    def door(self, name: str, work: Callable[[], Tally], target: Target | None = None) -> None:
        """Do *work*, and measure what it does to *target* and to the honest peer."""
        target = target or self.target
        if self.only and name not in self.only:
            return
        print(f"{name} …", file=sys.stderr, flush=True)
        self.honest.served()
        watch = Watch(target)
        tally = work()
        served = self.honest.served()
        figures = watch.stop()
        self.rows.append(Row(name, tally, figures, served))
        print("  ".join(self.rows[-1].cells()), file=sys.stderr, flush=True)
        self.troubles += [f"{name}: {crash}" for crash in tally.crashes[:10]]
        for what, found, most in (
            ("of memory", figures.peak, MEMORY),
            ("more than before", figures.peak - figures.before, GROWTH_OF.get(name, GROWTH)),
        ):
            if found > most:
                self.troubles.append(
                    f"{name}: {found / 1e6:.0f} MB {what}; at most {most / 1e6:.0f} are due"
                )
        if not target.alive:
            self.troubles.append(f"{name}: the engine died or was started anew")
        if served.failed:
            self.troubles.append(
                f"{name}: {served.failed} calls of the honest peer failed: {served.reason}"
            )

    def attack(
        self,
        name: str,
        connect: Connect,
        source: inputs.Source,
        count: int,
        seed: int,
        target: Target | None = None,
        **how: int,
    ) -> None:
        """A door that inputs of *source* are sent to."""
        self.door(
            name,
            lambda: attack(connect, source, count, seed, secrets=self.secrets, **how),
            target,
        )


def trees(folder: Path) -> dict[str, Any]:
    """One tree below *folder*, of which nothing was deployed."""
    (folder / "trees" / "source").mkdir(parents=True)
    return {
        "states": {
            "source": str(folder / "trees" / "source"),
            "live": str(folder / "trees" / "live"),
        }
    }


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """Start all of it below *root* (a short path: unix sockets lie there)."""
    secret_file = root / "secret"
    secret_file.write_bytes(SECRET)
    secret_file.chmod(0o600)
    token_file = root / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    status: dict[str, Any] = {"host": "127.0.0.1", "port": free_port()}
    ha = {"secret_file": str(secret_file), "share_master_key": True, "status": status}
    place, beside = (
        Place(root, "m1", {**ha, "trees": trees(root / "m1"), "restart": "true"}),
        Place(root, "honest"),
    )
    evil = identity.load_or_create(root / "evil", "evil")
    methods, commands, _ = doors(place)
    private = furnish(place)
    befriend(place, beside)
    Trust(place.config.state_dir).pin(make_peer("evil", "https://127.0.0.1:1", evil.certificate))
    other = identity.load_or_create(root / "evil" / "stranger", "m9")
    shown = {
        "port": free_port(),
        "token_file": str(token_file),
        "certificate": str(other.certificate_file),
        "key": str(other.key_file),
    }
    known = Known(
        tuple(islice(key_folders.public_keys(7), 50)),
        make_peer("m9", "https://127.0.0.1:2", other.certificate),
        place.peer.fingerprint,
        place.config.group,
        b"not the secret of the group, but as long as one",
    )
    context = tls.joining_context()
    context.load_cert_chain(evil.certificate_file, evil.key_file)
    secrets = (
        SECRET,
        private.splitlines()[5],
        (place.config.state_dir / identity.KEY_FILE).read_bytes().splitlines()[1],
        TOKEN.encode(),
    )
    target, honest = Target(place), Honest(beside, place)
    guarded = Target(Place(root, "guarded", {"status": shown}))
    with target.start(), guarded.start():
        honest.start()
        try:
            yield Scene(target, guarded, honest, known, methods, commands, secrets, context)
        finally:
            honest.stop()


def every_door(scene: Scene, count: int, seed: int, short: bool = False) -> None:
    """Send *count* inputs through each door; *short*: smaller floods besides."""
    port, known = scene.target.place.port, scene.known
    peer, stranger = over_tls(port, scene.attacker), over_tls(port, tls.joining_context())
    samples = payloads.methods(known)
    honest_methods = [name for name in scene.methods if name not in OPEN]
    floods.rest(1.0 if short else 10.0)
    scene.quiet = scene.honest.served()
    scene.attack("bytes instead of TLS", over_tcp(port), inputs.not_tls, count, seed, lanes=8)
    scene.attack("no certificate", stranger, inputs.anonymous(known), count, seed, lanes=8)
    scene.attack("peer: HTTP", peer, inputs.http(known), count, seed)
    scene.attack("peer: methods", peer, inputs.calls(samples, honest_methods), count, seed)
    scene.attack("peer: open to all", peer, inputs.calls(samples, [*OPEN]), count, seed)
    scene.attack("peer: records", peer, inputs.records(known), count, seed)
    scene.door("join handler, throttle off", lambda: joins.attack(scene, count, seed))
    socket = over_unix(str(scene.target.place.config.control_socket))
    commands = inputs.control(payloads.commands(), scene.commands)
    scene.attack("control socket", socket, commands, count, seed)
    listener = scene.target.place.config.status
    assert listener is not None
    scene.attack("status listener", over_tcp(listener.port), inputs.status, count, seed)
    scene.door("event bus", lambda: bus.attack(scene.target.place, count, seed))
    _guarded_doors(scene, count, seed)
    for name, flood in floods.all_of(scene, short):
        scene.door(name, flood)


def _guarded_doors(scene: Scene, count: int, seed: int) -> None:
    """The same doors where they are shut better, and where commands are carried out."""
    guarded = scene.guarded
    listener = guarded.place.config.status
    assert listener is not None
    secured = over_tls(listener.port, tls_of_browsers())
    with_token = inputs.status_with(TOKEN)
    scene.attack("status, no TLS", over_tcp(listener.port), inputs.not_tls, count, seed, guarded)
    scene.attack("status, TLS and token", secured, with_token, count, seed, guarded)
    socket = over_unix(str(guarded.place.config.control_socket))
    for_good = inputs.control(payloads.commands(), scene.commands, test=False)
    scene.attack("control socket, for good", socket, for_good, count, seed, guarded)


def tls_of_browsers() -> ssl.SSLContext:
    """What a browser or a balancer that was told to trust whatever it is shown begins with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def look_after(scene: Scene) -> None:
    """Whether everything is as it should be once it is over; what is not is in the troubles."""
    target, guarded = scene.target, scene.guarded
    if guarded.alive:
        guarded.stop()
        scene.troubles += aftermath.said(guarded, scene.secrets)
    if not target.alive:
        return
    target.control("resume", {"by": "root"})
    _still_works(scene)
    scene.honest.stop()
    target.stop()  # which is also when replica.db may be looked into
    scene.troubles += aftermath.troubles(target, scene.secrets)


def _still_works(scene: Scene) -> None:
    """A key that is accepted on the honest peer's side arrives at the target."""
    honest, place = scene.target.place.root / "honest" / "pki", scene.target.place
    key_folders.plant(honest, ["web1.example.com"], seed=99)
    try:
        wait_for(
            (place.pki_dir / key_folders.ACCEPTED / "web1.example.com").exists,
            SETTLED,
            "a key of the honest peer arrives",
        )
    except TimeoutError as exc:
        scene.troubles.append(str(exc))
