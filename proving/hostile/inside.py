"""
An engine in this process, without real callers: each request is handed to the code that answers
connections, behind TLS. From there to the database and the key folders the engine is real; only the
peers that it calls are not, and answer what they are told to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgpack

from lab import key_folders
from lab.engines import Engine, Place, befriend, free_port
from proving.hostile import payloads
from proving.hostile.behind import PARTING, SAMPLES, Door, attacker, seed
from proving.hostile.inputs import HOSTS, PAGES
from proving.hostile.target import furnish
from saltext_ha.commands.consistency import consistency_check
from saltext_ha.common import master_key
from saltext_ha.common.errors import HaError
from saltext_ha.common.refusals import Allowance
from saltext_ha.keystore import minion_key
from saltext_ha.lint import collect
from saltext_ha.membership.invites import make_token
from saltext_ha.membership.token import mac_key, request_mac
from saltext_ha.transport import stranger_calls, wire
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.connection import Acceptor, Connection
from saltext_ha.transport.listener import OPEN

PATIENCE = 10.0
"""Seconds until an answer is due."""
UNFRAMED = (b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade")
"""Headers that are left out: aiohttp does the framing, in C; it is attacked over sockets."""
RIGHT = b"the right proof"
"""Stands in a question for a plan where the right proof is to be put."""
CALL = "POST /v1/{} HTTP/1.1\nHost: x\nContent-Type: application/msgpack\nX-HA-Protocol: 1"
COMMAND = "POST /{} HTTP/1.1\nHost: x"
OCCASIONS = ("exchange", "pull", "members")
NONCE = bytes(16)
API = {"rest_cherrypy": {"port": 8000, "disable_ssl": True}}


class Caught(logging.Handler):
    """Keeps the error of each traceback that would be logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])


class Pipe(asyncio.Transport):
    """A connection to nobody, which keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.66", 1)})
        self.said = bytearray()
        self.over = asyncio.Event()

    def write(self, data: Any) -> None:
        self.said += data

    def close(self) -> None:
        self.over.set()

    abort = close

    def is_closing(self) -> bool:
        return self.over.is_set()

    def pause_reading(self) -> None:
        """There is nothing more to read."""

    resume_reading = pause_reading


class Inside:
    """The engine of ``m1``, which knows ``m2``: the attacker, which is told what to answer."""

    def __init__(self, folder: Path) -> None:
        shown = {"host": "127.0.0.1", "port": free_port()}
        place, beside = Place(folder, "m1", {"status": shown}, API), Place(folder, "m2")
        befriend(place, beside)
        furnish(place)
        Path(place.opts["conf_file"]).write_text("user: root\n")
        for number, state in enumerate(("minions", "minions_pre", "minions_rejected")):
            names = [f"hostile{100 * number + n}" for n in range(20)]
            key_folders.plant(place.pki_dir, names, state)
        self.attacker, self.peer = attacker(folder), beside.peer
        self.told: Mapping[str, Any] = {}
        """Method → the answer of a peer."""
        self.asked: set[str] = set()
        self._caught = Caught()
        self._loop = asyncio.new_event_loop()
        self._engine = Engine(place)
        self.service = self._engine.service

    def start(self) -> None:
        """Start it; return when it listens, and has a link to its peer."""
        logger = logging.getLogger("saltext_ha")
        logger.addHandler(self._caught)
        logger.propagate = False
        self._loop.run_until_complete(self._start())
        self._pins = self.service.parts.trust.generation()

    async def _start(self) -> None:
        await self._engine.start()
        service, listener = self.service, self.service._status
        assert listener
        await self._engine._until(
            lambda: self.peer.name in service.parts.links and listener._http._server is not None,
            "is ready",
        )
        # The engine records nothing before it has asked the peer what it knows.
        self.told = {
            "hello": {"one_denied": True, "caller": ""},
            "horizon": {"lost": False},
            "signature": {},
            "digest": {"same": True},
        }
        await service.parts.links[self.peer.name].exchange()
        await self._engine._until(lambda: not service.parts.core.mode.lost, "knows its keys")
        self.told = {}
        # Show each failure, also the thousandth.
        service.listener._failures = listener._failures = Allowance(2**63)
        # A page without end has no answer.
        del listener._pages["/events"]
        # There is no salt-master.
        service.made.jobs.here.publish = lambda opts, order, jid: []
        # Do nothing for good: the next input needs the engine.
        for name, sample in payloads.commands().items():
            if "test" in sample(Random(0)):
                command = service.control._commands[name]
                service.control._commands[name] = _trial(command)  # type: ignore[index]

    async def answer(self, method: str, body: bytes) -> tuple[int, bytes]:
        """In place of :meth:`PeerClient._post`: the answer in :attr:`told`, for every peer."""
        self.asked.add(method)
        answer = self.told.get(method)
        if isinstance(answer, dict):
            children = answer.get("children")
            if method == "branches" and isinstance(children, list) and len(children) == 1:
                # As many as are asked for: earlier inputs have changed the number.
                answer = {"children": children * len(wire.unpack(body)["branches"])}
            return 200, payloads.packed(answer)
        return 409, wire.pack({"message": "no"})

    def run(self, work: Awaitable[Any]) -> Any:
        """
        Do *work* in the event loop, and afterwards restore which peers are trusted.

        :raises Exception: one that was logged with its traceback meanwhile, whatever *work* did.
        """
        self._caught.errors.clear()
        try:
            found = self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE))
        finally:
            self._trust_again()
        if self._caught.errors:
            raise self._caught.errors[0]
        return found

    def request(self, acceptor: Acceptor, data: bytes, certificate: bytes | None = None) -> int:
        """Send a request over *acceptor*; return the status of the answer."""
        head, _, body = data.partition(PARTING)
        lines = [line.strip() for line in head.split(b"\n")]
        kept = [line for line in lines if not line.lower().startswith(UNFRAMED)]
        framing = [b"Connection: close", b"Content-Length: %d" % len(body)]
        sent = b"\r\n".join([*kept, *framing]) + b"\r\n\r\n" + body
        said = self.run(self._request(acceptor, sent, certificate))
        status = int(said[9:12])
        assert status != 500, bytes(said)
        return status

    async def _request(
        self, acceptor: Acceptor, sent: bytes, certificate: bytes | None
    ) -> bytearray:
        pipe, connection = Pipe(), Connection(acceptor)
        connection._admit(pipe, certificate)
        try:
            connection.data_received(sent)
            await pipe.over.wait()
        finally:
            connection.connection_lost(None)
        return pipe.said

    def _trust_again(self) -> None:
        trust = self.service.parts.trust
        if trust.generation() == self._pins:
            return
        for note in (self.service.parts.config.state_dir / "removed").iterdir():
            note.unlink()
        for name in set(trust.pinned()) - {self.peer.name}:
            trust.unpin(name)
        trust.pin(self.peer)
        self._pins = trust.generation()

    def stop(self) -> None:
        self._loop.run_until_complete(self._engine.stop())
        self._loop.close()
        logger = logging.getLogger("saltext_ha")
        logger.removeHandler(self._caught)
        logger.propagate = True


def _trial(command: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> Any:
    return lambda payload: command({**payload, "test": True})


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, but it is called only once for each name, and once without a name."""
    found: dict[str, Any] = {}

    def remembered(what: Any, *more: Any) -> Any:
        name = what if isinstance(what, str) else ""
        if name not in found:
            found[name] = function(what, *more)
        return found[name]

    return remembered


@contextmanager
def _inside(folder: Path) -> Iterator[Inside]:
    """Start an engine; from the first moment on, its messages to peers stay here."""
    engine = Inside(folder)
    with (
        patch.object(PeerClient, "_post", engine.answer),
        patch.object(
            stranger_calls,
            "_ask",
            lambda url, expected, method, body, most: engine.answer(method, body),
        ),
        # Slow, and not an input: what this master says of itself.
        patch.object(consistency_check, "_facts", _once(consistency_check._facts)),
        patch.object(collect, "of_master", _once(collect.of_master)),
        patch.object(master_key, "describe", _once(master_key.describe)),
    ):
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()


@contextmanager
def peer(folder: Path) -> Iterator[Door]:
    """All that a member of the group may ask."""
    with _inside(folder) as engine:
        certificate = ssl.PEM_cert_to_DER_cert(engine.peer.certificate)
        methods = payloads.methods(engine.attacker)

        def take(data: bytes) -> bool:
            return engine.request(engine.service.listener._http.acceptor, data, certificate) == 200

        yield Door(take, [_call(name, sample) for name, sample in methods.items()])


@contextmanager
def strangers(folder: Path) -> Iterator[Door]:
    """All that a stranger may ask, without the throttle; sometimes with a token."""
    with _inside(folder) as engine:
        service, joiner = engine.service, engine.attacker.stranger
        own, config = service.parts.identity, service.parts.config
        ticket = make_token(config.state_dir, own, (config.url,), config.group, 10**6)

        def proven(body: bytes) -> bytes:
            """*body* with the proof of somebody who has the token, if it asks for the right one."""
            with suppress(ValueError, TypeError):
                asked = wire.unpack(body, wire.MAX_JOIN_ITEMS)
                if asked.get("mac") == RIGHT:
                    both = own.fingerprint, joiner.fingerprint
                    what: list[Any] = [asked.get(key) for key in ("name", "url", "group", "after")]
                    mac = request_mac(mac_key(ticket.secret), *both, *what)
                    return wire.pack(asked | {"mac": mac})
            return body

        def take(data: bytes) -> bool:
            service.parts.admission._failed.clear()
            service.parts.admission._wrong_proofs.clear()
            head, _, body = data.partition(PARTING)
            if b"/v1/plan" in head:
                data = head + PARTING + proven(body)
            return engine.request(service.listener._http.acceptor, data) == 200

        known = replace(engine.attacker, group=config.group)
        methods = payloads.methods(known)
        right = payloads.join(Random(0), known) | {"invite": ticket.invite, "mac": RIGHT}
        pages = (b"", msgpack.packb([7, "web1", bytes(32)]))
        yield Door(
            take,
            [
                *(_call(name, methods[name], number) for name in OPEN for number in range(SAMPLES)),
                *(seed(CALL.format("plan"), right | {"after": after}) for after in pages),
            ],
        )


@contextmanager
def control(folder: Path) -> Iterator[Door]:
    """All that the runner may ask for; nothing is done for good."""
    with _inside(folder) as engine:
        shown = minion_key.fingerprint(next(key_folders.public_keys(1))).hex()

        def take(data: bytes) -> bool:
            return engine.request(engine.service.control._http.acceptor, data) == 200

        yield Door(
            take,
            [
                seed(COMMAND.format(name), json.dumps(sample(Random(number))))
                for name, sample in payloads.commands().items()
                for number in range(2)
            ]
            + [
                seed(COMMAND.format(name), json.dumps({"minion": minion, "fingerprint": shown}))
                for name in ("resolve", "restore")
                for minion in ("hostile0", "hostile200")
            ],
        )


@contextmanager
def status(folder: Path) -> Iterator[Door]:
    """All pages that have an end."""
    with _inside(folder) as engine:
        listener = engine.service._status
        assert listener

        def take(data: bytes) -> bool:
            # With a token as without one.
            token = b"the token" if b"Authorization" in data else None
            listener._settings = replace(listener._settings, token=token)
            return engine.request(listener._http.acceptor, data) == 200

        shown = ("Bearer the token", "Basic eDp0aGUgdG9rZW4=")
        yield Door(
            take,
            [
                *(seed(f"GET {page} HTTP/1.1\nHost: localhost", "") for page in PAGES),
                *(seed(f"GET /live HTTP/1.1\nHost: {host}", "") for host in HOSTS),
                *(seed(f"GET / HTTP/1.1\nAuthorization: {one}", "") for one in shown),
                seed("GET /minions.json?glob=web*&limit=1 HTTP/1.1\nHost: [::1]:1", ""),
                seed("GET /metrics HTTP/1.1\nAccept: application/openmetrics-text", ""),
            ],
        )


@contextmanager
def answers(folder: Path) -> Iterator[Door]:
    """
    The answers of a peer to all questions: during a command, in anti-entropy, when a lost replica
    is read from it. Inputs name the occasion, and have an answer for each method.
    """
    with _inside(folder) as engine:
        service = engine.service
        commands = payloads.commands()

        async def occasion(name: str) -> None:
            link = service.parts.links[engine.peer.name]
            link.contact.up = True
            if name == "exchange":
                await link.exchange()
            elif name == "pull":
                await service.parts.retention.pull(link)
            elif name == "members":
                await service.parts.membership.exchange()
            elif name in commands:
                asked = {**commands[name](Random(0)), "name": engine.peer.name}
                await service.control._commands[name](asked)

        def take(data: bytes) -> bool:
            head, _, body = data.partition(PARTING)
            try:
                engine.told = wire.unpack(body)
            except ValueError:
                return False
            try:
                engine.run(occasion(head.decode(errors="replace")))
            except HaError:
                return False
            finally:
                engine.told = {}
            return True

        told = _honest(engine)
        seeds = []
        for name in (*OCCASIONS, *commands):
            engine.asked.clear()
            take(seed(name, told))
            seeds.append(seed(name, {asked: told[asked] for asked in engine.asked & told.keys()}))
        yield Door(take, seeds)


def _honest(engine: Inside) -> dict[str, Any]:
    """Method → the answer of this engine itself, like that of an honest peer; and more."""
    methods = payloads.methods(engine.attacker) | {
        "consistency": lambda rng: {"nonce": NONCE, "sections": ["access", "keys", "options"]},
        "facts": lambda rng: {"nonce": NONCE, "buckets": {"access": bytes(2048)}},
        "job_run": lambda rng: {
            "jid": "2" * 20,
            "order": {"what": "ping", "glob": "*", "ids": [], "to": "", "test": False},
            "timeout": 0.1,
        },
    }
    told = {}
    for name, handler in engine.service.listener._handlers.items():
        with suppress(HaError):
            told[name] = dict(engine.run(handler(engine.peer, methods[name](Random(0)))))
    record = payloads.record(Random(0), engine.attacker)
    shown = bytes(len(engine.service.parts.core.replica.records.children()))
    return told | {
        "digest": {"same": False, "children": shown},
        "branches": {"children": [shown]},
        "compare": {"records": [record], "want": [["hostile0", bytes(32)]]},
        "placed": {"placed": [["hostile0", "accepted", bytes(32)]]},
        "horizon": {"horizon": [["0" * 16, 1]], "epoch": 1, "lost": False},
        "keys": {"keys": [["hostile0", "accepted", bytes(32), [bytes(32)]]]},
        "endpoint": told["endpoint"] | {"address": "127.0.0.2"},
    }


def _call(name: str, sample: payloads.Sample, number: int = 0) -> bytes:
    return seed(CALL.format(name), sample(Random(number)))
