"""
The bus of one master of a history, and the reactor of its salt-master.

Events of others come as datagrams of JSON; the engine's own come by :class:`Announcer`. All of them
have one order. The reactor has the same switch as Salt's (``salt/utils/reactor.py``, the same on
3006 to 3008): it is on at the start, and an event with the key of the master sets it. The reactor
reacts by telling the judge before the next event comes, so that nothing is on its way when its
master is killed.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proving.torture import reactions
from saltext_ha.salt_bus import reactor
from saltext_ha.salt_bus.events import EventBus

SOCKET = "bus.sock"
EVENTS = "events.jsonl"
TAG = "torture/"
"""The beginning of events that the reactor is configured for; their number follows."""
OF_SALT = "salt/"
KEY = "the key of this master"


class Bus:
    """The bus of the master with *opts*."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._id, self._socket = opts["id"], Path(opts["sock_dir"]) / SOCKET
        self._judge = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._judge.connect(str(Path(opts["root_dir"]).parent / reactions.SOCKET))
        self._name = Path(opts["root_dir"]).name
        self._lock = threading.RLock()
        self._reacts = True
        self._listening: list[tuple[reactor.Reactor, queue.SimpleQueue[Callable[[], None]]]] = []
        """Those who listen, and what is to be done in the thread of each."""
        (Path(opts["cachedir"]) / ".root_key").write_text(KEY, encoding="utf-8")

    def publish(self, tag: str, data: Mapping[str, Any]) -> None:
        """Pass on the next event; return when the reactor has reacted."""
        with self._lock:
            for follower, work in self._listening:
                work.put(partial(follower.take, tag, data))
            self._react(tag, data)

    def _react(self, tag: str, data: Mapping[str, Any]) -> None:
        if tag.startswith(reactor.MANAGE):
            if tag == reactor.VALUE or data.get("key") != KEY:
                return
            if tag == reactor.SET and data.get("id") == self._id:
                self._reacts = bool(data["value"])
            self.publish(reactor.VALUE, {"result": self._reacts})
        elif self._reacts and tag.startswith(TAG):
            number = int(tag.removeprefix(TAG))
            reaction = [number, self._name, time.monotonic()]
            self._judge.send(json.dumps(reaction).encode())  # waits while the judge has no room

    def receive(self, events: EventBus, stop: threading.Event) -> None:
        """
        Like :meth:`.EventBus.listen`; answers each event when the engine that runs now has heard
        it, so that the judge knows that nothing is on its way.
        """
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bus:
            bus.bind(str(self._socket))
            bus.settimeout(1.0)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError, socket.timeout):
                    said, sender = bus.recvfrom(65536)
                    event = json.loads(said)
                    self.publish(event["tag"], event["data"])
                    if event["tag"].startswith(OF_SALT):
                        events.tell(event["tag"], event["data"])
                    self._answer(bus, sender)

    def _answer(self, bus: socket.socket, sender: Any) -> None:
        def answer() -> None:
            with contextlib.suppress(OSError):  # it waits no more
                bus.sendto(b"heard", sender)

        with self._lock:
            if self._listening:
                self._listening[-1][1].put(answer)
            else:
                answer()

    def follow(self, follower: reactor.Reactor) -> None:
        """Like :meth:`.Reactor._listen`: hear what the reactor of this master hears."""
        work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        with self._lock:
            self._listening.append((follower, work))
        while True:
            work.get()()


class Announcer:
    """Writes the engine's events to a file, one JSON line each, and fires on *bus*."""

    def __init__(self, opts: Mapping[str, Any], bus: Bus) -> None:
        self._path, self.fire = Path(opts["root_dir"]) / EVENTS, bus.publish

    def __call__(self, tag: str, data: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            event = {"tag": tag, "data": dict(data), "at": time.monotonic()}
            file.write(json.dumps(event) + "\n")

    def stop(self) -> None:
        """Nothing is kept open."""
