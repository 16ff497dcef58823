"""
The event bus of a master that is not there: the events that an accepted minion can make Salt fire.

They have any tag and any data (``pretag`` of ``_minion_event``). Salt's own processes are left out:
the engine gets each event as Salt's bus client would hand it on.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgpack

from lab.engines import Place
from proving.hostile.attack import Tally
from proving.hostile.values import IDS, mutated, scalar
from saltext_ha.salt_bus.events import EventBus

SOCKET = "hostile_bus.sock"
DONE = b"done"
LARGE = 800_000  # characters; Salt lets an event of 1 MB through
EVERY = 400  # one of so many events is large: 200 MB in 100 000 events
NAMES = 50_000
Sample = Callable[[Random], tuple[str, dict[str, Any]]]


def serve(bus: EventBus, stop: threading.Event) -> None:
    """In place of :meth:`EventBus.listen`: tell *bus* the events that come over a socket."""
    path = Path(bus.opts["sock_dir"]) / SOCKET
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        while not stop.is_set():
            connection, _ = door.accept()
            with connection:
                unpacker = msgpack.Unpacker(unicode_errors="surrogatepass", strict_map_key=False)
                while data := connection.recv(1 << 16):
                    unpacker.feed(data)
                    for tag, content in unpacker:
                        bus.tell(tag, content)
                connection.sendall(DONE)


def samples() -> Mapping[str, Sample]:
    """Events of Salt and honest minions, of each kind that the engine listens to."""

    def name(rng: Random) -> str:
        return f"hostile{rng.randrange(NAMES)}"

    def jid(rng: Random) -> str:
        return f"2026013103{rng.randrange(10**10):010}"

    def sent(tag: str, rng: Random, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        minion = name(rng)
        return tag.format(minion), {"id": minion, "cmd": "_minion_event", "data": data}

    def returned(rng: Random) -> tuple[str, dict[str, Any]]:
        number, minion = jid(rng), name(rng)
        value = {"type": "failover", "masters": ["10.0.0.1", "10.0.0.2"], "address": "10.0.0.1"}
        data = {"id": minion, "jid": number, "fun": "ha.current_master", "return": value}
        return f"salt/job/{number}/ret/{minion}", data

    def wheel(rng: Random) -> tuple[str, dict[str, Any]]:
        data = {"fun": "wheel.key.accept", "user": "alice", "fun_args": [name(rng), "web*"]}
        return f"salt/wheel/{jid(rng)}/{rng.choice(('new', 'ret'))}", data

    def moved(rng: Random) -> tuple[str, dict[str, Any]]:
        data = {"from": "10.0.0.1", "to": "10.0.0.2", "why": "does not answer"}
        return sent("salt/ha/minion/{}/failover", rng, data)

    def bound(rng: Random) -> tuple[str, dict[str, Any]]:
        where = {"addresses": ["127.0.0.1"], "port": 4506, "type": "list", "of": 2, "every": 600}
        return sent("salt/ha/minion/{}/bound", rng, where)

    return {
        "auth": lambda rng: ("salt/auth", {"id": name(rng), "act": rng.choice(("pend", "accept"))}),
        "key": lambda rng: ("salt/key", {"id": name(rng), "act": rng.choice(("accept", "delete"))}),
        "job": lambda rng: (f"salt/job/{jid(rng)}/new", {"jid": jid(rng), "minions": [name(rng)]}),
        "return": returned,
        "presence": lambda rng: ("salt/presence/present", {"present": [name(rng), name(rng)]}),
        "beacon": lambda rng: sent("salt/beacon/{}/load/", rng, {"load": 1}),
        "start": lambda rng: sent("salt/minion/{}/start", rng, {}),
        "wheel": wheel,
        "moved": moved,
        "bound": bound,
        "health": lambda rng: ("salt/ha/health", {"master": "m1", "turn": rng.randrange(100)}),
        "run": lambda rng: (f"salt/run/{jid(rng)}/ret", {"fun": "test.arg", "return": [1]}),
    }


def events(rng: Random) -> Iterator[tuple[Any, Any]]:
    """Honest events, bent in tag and data; every so often a very large one."""
    kinds = samples()
    number = 0
    while True:
        number += 1
        tag, data = kinds[rng.choice(list(kinds))](rng)
        if number % EVERY == 0:
            long = rng.choice("xé") * LARGE
            data[rng.choice(list(data) or ["id"])] = rng.choice((long, [long], {long: 1}))
            yield tag, data
            yield f"{tag}/{long}", data
        elif rng.random() < 0.2:
            yield tag.replace("hostile", rng.choice(IDS)), mutated(rng, data)
        elif rng.random() < 0.05:
            yield scalar(rng), scalar(rng)
        else:
            yield tag, mutated(rng, data)


def attack(place: Place, count: int, seed: int) -> Tally:
    """Fire *count* events on the bus of the engine at *place*, and wait until it has got all."""
    tally = Tally()
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX) as bus:
        bus.connect(str(Path(place.opts["sock_dir"]) / SOCKET))
        for event in events(Random(seed)):
            if tally.inputs >= count:
                break
            try:
                raw = msgpack.packb(event, unicode_errors="surrogatepass")
            except ValueError:
                continue  # nested too deep to be packed
            bus.sendall(raw)
            tally.inputs += 1
        bus.shutdown(socket.SHUT_WR)
        bus.settimeout(300.0)
        if bus.recv(16) != DONE:
            tally.crashes.append("the bus is not listened to any more")
    tally.seconds = time.monotonic() - began
    return tally
