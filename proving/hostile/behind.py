"""
The functions behind the doors, called in this process: bytes in, and only documented results out.

``guided.py`` calls them with inputs that coverage chooses, a test with others. An input is a head,
an empty line and a body: the head names the function or request, the body is its argument. Bodies
are msgpack or JSON as they travel, so that they can be bent as such (:func:`bent`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from lab import key_folders
from proving.hostile import payloads
from proving.hostile.payloads import Known
from proving.hostile.values import IDS, TEXTS, bent_bytes, mutated
from saltext_ha.api.answer import Answer, check_form, shown
from saltext_ha.api.calls import begun, returns
from saltext_ha.api.connection import FAULTS, ApiConnection, described, read
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.jobs import read_status
from saltext_ha.api.minions import union
from saltext_ha.api.tokens import read_token
from saltext_ha.commands.keys import key_pages
from saltext_ha.commands.membership import join
from saltext_ha.common.errors import InvalidRecord, TokenError, TrustError
from saltext_ha.config.mapping import check_url
from saltext_ha.keystore import minion_key
from saltext_ha.membership import token
from saltext_ha.minions import job_specs
from saltext_ha.replication import vouching
from saltext_ha.replication.record import merge
from saltext_ha.sync import codec, messages
from saltext_ha.transport import identity, wire
from saltext_ha.transport.peer import make_peer

PARTING = b"\n\n"
LONGEST, MOST = 64 * 1024, 16 * 1024
"""Bytes that a server sends at once, and bytes that the body of an answer may have."""
SAMPLES = 8
"""Bodies of each kind to begin with."""


@dataclass(frozen=True)
class Door:
    """
    :param take: carries one input out, and returns whether it was accepted. An error is a finding.
    :param seeds: proper inputs, to begin with.
    """

    take: Callable[[bytes], bool]
    seeds: list[bytes]


Function = Callable[[bytes], object]
"""Takes a body; asserts what must hold for a body that it accepts."""
Refusal = type[Exception]


def door(functions: Mapping[str, tuple[Function, Refusal]], seeds: list[bytes]) -> Door:
    """The door of *functions*: name → the function, and the one error that it may raise."""

    def take(data: bytes) -> bool:
        head, _, body = data.partition(PARTING)
        function, refusal = functions.get(head.decode(errors="replace"), (None, Exception))
        if function is None:
            return False
        try:
            function(body)
        except refusal:
            return False
        return True

    return Door(take, seeds)


def _told(body: bytes, refusal: Refusal = InvalidRecord) -> defaultdict[str, Any]:
    """A message, with None for what it does not say; nonsense is refused before that."""
    try:
        return defaultdict(lambda: None, wire.unpack(body, wire.MAX_JOIN_ITEMS))
    except ValueError as exc:
        raise refusal(str(exc)) from None


def seed(head: str, body: Any) -> bytes:
    """An input; *body* is bytes, text, or a value to pack."""
    if isinstance(body, str):
        body = body.encode()
    return head.encode() + PARTING + (body if isinstance(body, bytes) else payloads.packed(body))


def bent(rng: Random, data: bytes) -> bytes:
    """*data* with something wrong in it: in the values of its body, or else in its bytes."""
    head, parting, body = data.partition(PARTING)
    if rng.random() < 0.1:
        return bent_bytes(rng, data)
    with contextlib.suppress(ValueError, RecursionError):
        value = mutated(rng, wire.unpack(body), 1)
        return head + parting + payloads.packed(value if isinstance(value, dict) else {"x": value})
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return head + parting + json.dumps(mutated(rng, json.loads(body), 1)).encode()
    return head + parting + bent_bytes(rng, body)


def attacker(folder: Path) -> Known:
    """The knowledge of an attacker: see :class:`Known`."""
    stranger = identity.load_or_create(folder / "stranger", "m9")
    peer = make_peer("m9", "https://127.0.0.1:2", stranger.certificate)
    keys = tuple(islice(key_folders.public_keys(7), SAMPLES))
    return Known(keys, peer, stranger.fingerprint, "default", b"no secret, but as long as one")


@contextmanager
def records(folder: Path) -> Iterator[Door]:
    """Messages of peers, and all that the engine reads from them before it stores anything."""

    def message(body: bytes) -> None:
        packed = wire.pack(wire.unpack(body, wire.MAX_JOIN_ITEMS))
        assert wire.pack(wire.unpack(packed)) == packed, "packed again it is something else"

    def record(body: bytes) -> None:
        found, _ = messages.read_records(_told(body)["records"])
        for one in found:
            minion_key.check_id(one.minion_id)
            minion_key.check(one.public_key)
            again = codec.from_wire(wire.unpack(wire.pack({"r": codec.to_wire(one)}))["r"])
            assert again == one == merge(one, one), "what was read is not what is told"
        if not found:
            raise InvalidRecord("none")

    def claims(body: bytes) -> None:
        told = _told(body)
        found, _ = messages.read_records(told["records"])
        if not found:
            raise InvalidRecord("none")
        nodes = {node for one in found for node, _ in one.context}
        highs = {node: int(node, 16) % 7 for node in nodes if int(node, 16) % 3}
        for one in found:
            left, reason = vouching.sift(one, None, highs, {})
            assert bool(reason) == (left != one), "what is left out is told"
            assert left is None or vouching.sift(left, None, highs, {}) == (left, ""), "once more"
            seen = left.context if left else ()
            assert all(n <= highs.get(node, n) for node, n in seen), "it claims too much"

    def page(body: bytes) -> None:
        known: dict[str, Any] = {}
        key_pages.collect(known, body)
        assert all(minion_key.check_id(minion_id) for minion_id in known)

    def order(body: bytes) -> None:
        found = job_specs.read(_told(body)["order"])
        found.job()
        assert job_specs.read(found.to_wire()) == found

    known, rng = attacker(folder), Random("records")
    samples = payloads.methods(known)
    rows = [["web1", bytes(32), [["0" * 16, 1, "accepted"]], [["0" * 16, 1]], "accepted"]]
    yield door(
        {
            "message": (message, ValueError),
            "records": (record, InvalidRecord),
            "claims": (claims, InvalidRecord),
            "told": (lambda body: messages.read_dropped(_told(body)["dropped"]), InvalidRecord),
            "context": (lambda body: codec.read_context(_told(body)["horizon"]), InvalidRecord),
            "order": (order, InvalidRecord),
            "page": (page, InvalidRecord),
        },
        [
            *(seed("message", sample(rng)) for sample in samples.values()),
            *(seed("records", samples["push"](rng)) for _ in range(SAMPLES)),
            *(seed("claims", samples["push"](rng)) for _ in range(SAMPLES)),
            *(seed("order", samples["job_run"](rng)) for _ in range(SAMPLES)),
            seed("told", samples["dropped"](rng)),
            seed("context", samples["drop"](rng)),
            seed("page", {"rows": rows, "next": [7, "web1", bytes(32)]}),
        ],
    )


@contextmanager
def tokens(folder: Path) -> Iterator[Door]:
    """Join tokens: as people paste them, and with any content under a right checksum."""

    def pasted(body: bytes) -> None:
        text = body.decode(errors="surrogateescape")
        assert token.decode(text).encode() == "".join(text.split()), "two ways to write one token"

    def sealed(body: bytes) -> None:
        checksum = hashlib.sha256(token.PREFIX.encode() + body).digest()[:6]
        text = token.PREFIX + token._base64(body + checksum)
        found = token.decode(text)
        assert token.decode(found.encode()) == found, "told again it is something else"

    def argument(body: bytes) -> None:
        text = body.decode(errors="surrogateescape")
        said = str(join.refused(text))
        assert len(text) < 40 or text[-40:] not in said, "a token that is refused is shown"

    known = attacker(folder)
    whole = {
        "u": [known.stranger.url, "https://[::1]:4530"],
        "f": bytes(32),
        "i": bytes(16),
        "e": 1_900_000_000,
        "g": known.group,
        "s": bytes(32),
    }
    made = token.JoinToken((known.stranger.url,), known.server, "0" * 32, 1, known.group, bytes(32))
    yield door(
        {
            "pasted": (pasted, TokenError),
            "sealed": (sealed, TokenError),
            "argument": (argument, TokenError),
        },
        [seed("sealed", whole), *(seed(way, made.encode()) for way in ("pasted", "argument"))],
    )


@contextmanager
def names(folder: Path) -> Iterator[Door]:
    """Functions of one text or a few: ids, keys, globs, addresses, and a peer's own description."""

    def minion_id(body: bytes) -> None:
        found = minion_key.check_id(body.decode(errors="surrogateescape"))
        assert (folder / found).parent == folder, "an id that leaves its folder"
        assert len(found.splitlines()) == 1

    def key(body: bytes) -> None:
        text = minion_key.normalise(body.decode(errors="surrogateescape"))
        assert minion_key.normalise(text) == text, "two normal forms"
        minion_key.check(text)
        assert len(minion_key.fingerprint(text)) == 32

    def address(body: bytes) -> None:
        found = check_url(body.decode(errors="surrogateescape"))
        assert check_url(found) == found, "checked again it is another address"

    def peer(body: bytes) -> None:
        told = _told(body, TrustError)
        parts = [told[key] for key in ("name", "url", "certificate", "added", "former")]
        found = make_peer(*parts)
        assert make_peer(found.name, found.url, found.certificate).fingerprints

    def glob(body: bytes) -> None:
        job_specs.check_glob(body.decode(errors="surrogateescape"))

    known = attacker(folder)
    stranger = known.stranger
    shown = {"name": "m9", "url": stranger.url, "certificate": stranger.certificate, "former": []}
    yield door(
        {
            "id": (minion_id, InvalidRecord),
            "key": (key, InvalidRecord),
            "address": (address, ValueError),
            "peer": (peer, TrustError),
            "glob": (glob, InvalidRecord),
        },
        [
            *(seed("id", text) for text in ("web1.example.com", *IDS)),
            *(seed("key", text) for text in known.keys),
            *(seed("address", text) for text in (stranger.url, "https://[::1]:4530", *TEXTS)),
            *(seed("glob", text) for text in ("web*", "web[0-9]?.example.com")),
            seed("peer", shown),
            seed("peer", shown | {"former": [stranger.certificate]}),
        ],
    )


@contextmanager
def api(folder: Path) -> Iterator[Door]:
    """Answers of a salt-api to the pool: bytes on a connection, and what the pool reads in them."""

    def response(body: bytes) -> None:
        ours, theirs = socket.socketpair()
        theirs.settimeout(5)
        theirs.sendall(body[:LONGEST])
        theirs.shutdown(socket.SHUT_WR)
        connection = ApiConnection("http://127.0.0.1:1", True)
        connection.sock = ours
        problem = ""
        try:
            got = connection.ask("GET", "/", None, None, Deadline(5))
            answer = Answer(got.status, read(got, MOST))
        except FAULTS as exc:
            problem = described(exc)
        finally:
            connection.close()
            theirs.close()
        if problem:
            raise ValueError(problem)
        assert 0 <= len(answer.body) <= MOST
        answer.returned()

    def login(body: bytes) -> None:
        found = read_token(Answer(200, body), 0.0)
        if found is None:
            raise ValueError("no token")
        text = found.secret.read()
        assert math.isfinite(found.until), "a token without an end"
        assert text.isprintable(), "a token that is no header"
        # A short token is in any text.
        assert len(text) < 20 or text not in repr(found), "a repr with the token"

    def call(low: Mapping[str, Any], body: bytes) -> None:
        value = Answer(200, body).returned()
        check_form(low, value)
        if low["client"] == "local":
            returns(value)
        elif low["client"] == "local_async":
            begun("1", "m1", value)
        else:
            shown(value["data"]["return"])

    def job(body: bytes) -> None:
        found = read_status("1", "m1", Answer(200, body).returned())
        found.followed_by(found)
        assert set(found.missing) <= set(found.minions)

    def minions(body: bytes) -> None:
        found = union({"m1": Answer(200, body).returned()}, {})
        if found.partial:
            raise ValueError("no lists of minions")
        assert not found.up & found.down

    data = {"return": {"a": [1.5, None]}, "success": True}
    listed = {"Function": "test.ping", "Minions": ["web"], "Result": {"web": {"return": True}}}
    said = {
        "login": {"token": "0" * 40, "start": 1.5, "expire": 43201.5, "perms": [".*"]},
        "local": {"web": {"ret": True, "retcode": 0}, "db": {"out": "no_return", "ret": ""}},
        "local_async": {"jid": "1", "minions": ["db", "web"]},
        "runner": {"data": data},
        "wheel": {"data": data, "tag": "salt/wheel/1"},
        "job": listed,
        "minions": {"up": ["web"], "down": ["db"]},
    }
    texts = {name: json.dumps({"return": [value]}) for name, value in said.items()}
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    chunks = f"{len(texts['job']):x}\r\n{texts['job']}\r\n0\r\nX: y\r\n\r\n"
    functions: dict[str, Function] = {
        "response": response,
        "login": login,
        "job": job,
        "minions": minions,
        **{
            client: partial(call, {"client": client, "full_return": True})
            for client in ("local", "local_async", "runner", "wheel")
        },
    }
    yield door(
        {name: (function, ValueError) for name, function in functions.items()},
        [
            *(seed(name, text) for name, text in texts.items()),
            seed("response", f"{head}Content-Length: {len(texts['job'])}\r\n\r\n{texts['job']}"),
            seed("response", f"{head}Transfer-Encoding: chunked\r\n\r\n{chunks}"),
            seed("response", f"HTTP/1.0 200 OK\r\nSet-Cookie: a=b\r\n\r\n{texts['login']}"),
        ],
    )
