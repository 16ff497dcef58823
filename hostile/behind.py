"""
What stands behind the doors, called in this process: bytes in, and out only what is documented.

:mod:`hostile.guided` calls these with inputs that coverage chooses, a test with others. An input is
a head, an empty line and a body: which function is meant or which request is made, and what that is
given. Bodies are msgpack or JSON as they travel, so that they can be bent as such (:func:`bent`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from hostile import payloads
from hostile.payloads import Known
from hostile.values import IDS, TEXTS, bent_bytes, mutated
from lab import key_folders
from saltext_ha import minion_key
from saltext_ha.config import check_url
from saltext_ha.errors import InvalidRecord, TokenError, TrustError
from saltext_ha.peering import identity, token, wire
from saltext_ha.peering.trust import make_peer
from saltext_ha.replication.record import merge
from saltext_ha.service import antientropy, codec, key_pages, orders

PARTING = b"\n\n"
SAMPLES = 8
"""Bodies of each kind to begin with."""


@dataclass(frozen=True)
class Door:
    """
    :param take: carries one input out; whether it was accepted. What it raises is a finding.
    :param seeds: proper inputs, to begin with.
    """

    take: Callable[[bytes], bool]
    seeds: list[bytes]


Function = Callable[[bytes], object]
"""Of a body. Asserts what is to hold of what it accepts."""
Refusal = type[Exception]


def door(functions: Mapping[str, tuple[Function, Refusal]], seeds: list[bytes]) -> Door:
    """Of *functions* by their names, each with the one error that it may raise."""

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
    """A message, and None for what it does not say; one that is none is refused before."""
    try:
        return defaultdict(lambda: None, wire.unpack(body, wire.MAX_JOIN_ITEMS))
    except ValueError as exc:
        raise refusal(str(exc)) from None


def seed(head: str, body: Any) -> bytes:
    """An input; *body* as bytes, as text, or as what is packed."""
    if isinstance(body, str):
        body = body.encode()
    return head.encode() + PARTING + (body if isinstance(body, bytes) else payloads.packed(body))


def bent(rng: Random, data: bytes) -> bytes:
    """*data* with something wrong in it: as what its body says, or else in its bytes."""
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
    """What an attacker may know: see :class:`Known`."""
    stranger = identity.load_or_create(folder / "stranger", "m9")
    peer = make_peer("m9", "https://127.0.0.1:2", stranger.certificate)
    keys = tuple(islice(key_folders.public_keys(7), SAMPLES))
    return Known(keys, peer, stranger.fingerprint, "default", b"no secret, but as long as one")


@contextmanager
def records(folder: Path) -> Iterator[Door]:
    """Messages of peers, and all that is read from them before anything is stored."""

    def message(body: bytes) -> None:
        packed = wire.pack(wire.unpack(body, wire.MAX_JOIN_ITEMS))
        assert wire.pack(wire.unpack(packed)) == packed, "packed again it is something else"

    def record(body: bytes) -> None:
        found, _ = antientropy.read_records(_told(body)["records"])
        for one in found:
            minion_key.check_id(one.minion_id)
            minion_key.check(one.public_key)
            again = codec.from_wire(wire.unpack(wire.pack({"r": codec.to_wire(one)}))["r"])
            assert again == one == merge(one, one), "what was read is not what is told"
        if not found:
            raise InvalidRecord("none")

    def page(body: bytes) -> None:
        known: dict[str, Any] = {}
        key_pages.collect(known, body)
        assert all(minion_key.check_id(minion_id) for minion_id in known)

    def order(body: bytes) -> None:
        found = orders.Order.from_wire(_told(body)["order"])
        found.job()
        assert orders.Order.from_wire(found.to_wire()) == found

    known, rng = attacker(folder), Random("records")
    samples = payloads.methods(known)
    rows = [["web1", bytes(32), [["0" * 16, 1, "accepted"]], [["0" * 16, 1]], "accepted"]]
    yield door(
        {
            "message": (message, ValueError),
            "records": (record, InvalidRecord),
            "told": (lambda body: antientropy.read_told(_told(body)["dropped"]), InvalidRecord),
            "context": (lambda body: codec.read_context(_told(body)["horizon"]), InvalidRecord),
            "order": (order, InvalidRecord),
            "page": (page, InvalidRecord),
        },
        [
            *(seed("message", sample(rng)) for sample in samples.values()),
            *(seed("records", samples["push"](rng)) for _ in range(SAMPLES)),
            *(seed("order", samples["job_run"](rng)) for _ in range(SAMPLES)),
            seed("told", samples["dropped"](rng)),
            seed("context", samples["drop"](rng)),
            seed("page", {"rows": rows, "next": [7, "web1", bytes(32)]}),
        ],
    )


@contextmanager
def tokens(folder: Path) -> Iterator[Door]:
    """Join tokens: as they are pasted, and what one says to whoever can make the checksum."""

    def pasted(body: bytes) -> None:
        text = body.decode(errors="surrogateescape")
        assert token.decode(text).encode() == "".join(text.split()), "two ways to write one token"

    def sealed(body: bytes) -> None:
        checksum = hashlib.sha256(token.PREFIX.encode() + body).digest()[:6]
        text = token.PREFIX + token._base64(body + checksum)
        found = token.decode(text)
        assert token.decode(found.encode()) == found, "told again it is something else"

    known = attacker(folder)
    whole = {
        "u": [known.stranger.url, "https://[::1]:4530"],
        "f": bytes(32),
        "i": bytes(16),
        "e": 1_900_000_000,
        "g": known.group,
        "s": bytes(32),
    }
    made = token.Token((known.stranger.url,), known.server, "0" * 32, 1, known.group, bytes(32))
    yield door(
        {"pasted": (pasted, TokenError), "sealed": (sealed, TokenError)},
        [seed("sealed", whole), seed("pasted", made.encode())],
    )


@contextmanager
def names(folder: Path) -> Iterator[Door]:
    """What is given one text or a few: ids, keys, globs, addresses, and who a peer says it is."""

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
        orders.check_glob(body.decode(errors="surrogateescape"))

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
