"""One run: every door in turn, and whether everything is as it should be afterwards."""

from __future__ import annotations

import ssl

from lab import key_folders
from lab.wait import wait_for
from proving.hostile import aftermath, bus, floods, inputs, joins, payloads
from proving.hostile.attack import over_tcp, over_tls, over_unix
from proving.hostile.scene import GROWTH, TOKEN, Scene
from saltext_ha.transport import tls
from saltext_ha.transport.listener import OPEN

SETTLED = 60.0
GROWTH_OF = {floods.LARGE: 200_000_000}


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
    scene.door("join handler, throttle off", lambda: joins.attack(known, count, seed))
    socket = over_unix(str(scene.target.place.config.control_socket))
    commands = inputs.control(payloads.commands(), scene.commands)
    scene.attack("control socket", socket, commands, count, seed)
    listener = scene.target.place.config.status
    assert listener is not None
    scene.attack("status listener", over_tcp(listener.port), inputs.status, count, seed)
    scene.door("event bus", lambda: bus.attack(scene.target.place, count, seed))
    _guarded_doors(scene, count, seed)
    for name, flood in floods.all_of(scene, short):
        scene.door(name, flood, growth=GROWTH_OF.get(name, GROWTH))


def _guarded_doors(scene: Scene, count: int, seed: int) -> None:
    """The doors of the guarded engine: better shut, and commands are really carried out."""
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
    """The TLS of a browser or balancer that is told to trust any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def look_after(scene: Scene) -> None:
    """Check that all is well once the attack is over; add what is wrong to the troubles."""
    target, guarded = scene.target, scene.guarded
    if guarded.alive:
        guarded.stop()
        scene.troubles += aftermath.said(guarded, scene.secrets)
    if not target.alive:
        return
    target.control("resume", {"by": "root"})
    _still_works(scene)
    scene.honest.stop()
    target.stop()  # only then may replica.db be read
    scene.troubles += aftermath.troubles(target, scene.secrets)


def _still_works(scene: Scene) -> None:
    """Check that a key that is accepted on the honest peer's side arrives at the target."""
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
