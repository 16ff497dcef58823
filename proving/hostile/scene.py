"""Where a run takes place: a target, an honest peer, an attacker with a certificate."""

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
from proving.hostile import inputs
from proving.hostile.attack import Connect, Tally, attack
from proving.hostile.honest import Honest, Served
from proving.hostile.payloads import Known
from proving.hostile.report import Row
from proving.hostile.target import Target, Watch, doors, furnish
from saltext_ha.transport import identity, tls
from saltext_ha.transport.peer import make_peer
from saltext_ha.transport.trust import Trust

SECRET = b"0123456789abcdef-the-secret-of-the-group"
TOKEN = "fedcba9876543210-what-the-status-page-is-shown-for"
# Bytes of memory that the engine may use, and that one door may add; docs/attacks.md says why.
MEMORY = 400_000_000
GROWTH = 100_000_000


@dataclass
class Scene:
    """
    The place of a run, and its findings. *guarded* is a second engine that nothing else needs: its
    status listener takes TLS and a token, and it may be ruined.
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

    def door(
        self,
        name: str,
        work: Callable[[], Tally],
        target: Target | None = None,
        growth: int = GROWTH,
    ) -> None:
        """
        Do *work*, and measure what it does to *target* and to the honest peer.

        :param growth: bytes of memory that *target* may add.
        """
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
            ("more than before", figures.peak - figures.before, growth),
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
        """Send inputs of *source* to a door."""
        self.door(
            name,
            lambda: attack(connect, source, count, seed, secrets=self.secrets, **how),
            target,
        )


def trees(folder: Path) -> dict[str, Any]:
    """One tree below *folder*, without any deployment."""
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
        Place(
            root,
            "m1",
            {**ha, "trees": trees(root / "m1"), "restart": "true", "once": {"reactor": True}},
            {"reactor": [{"site/*": []}]},
        ),
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
