"""``python -m proving.benchmarks.pure_work NAME TIMES``: the work that :mod:`.pure` measures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from itertools import islice

from saltext_ha.replication.digest import DigestTree, bucket_of
from saltext_ha.replication.placement import ABSENT, place
from saltext_ha.replication.record import (
    ACCEPTED,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
    decide,
    merge,
    observe,
    record_digest,
)

ITEMS = 1_000
NODES = ("0" * 15 + "1", "0" * 15 + "2")
Work = Callable[[], object]


def _records() -> list[Record]:
    """Minions that knocked and were accepted on one master; any keys will do."""
    return _accepted(
        Record(f"web{number:06}.prod.example.com", sha256(str(number).encode()).digest(), "")
        for number in range(ITEMS)
    )


def _accepted(blanks: Iterable[Record]) -> list[Record]:
    found = []
    for number, blank in enumerate(blanks, 1):
        knocked = observe(blank, {}, _value(0, 2 * number, PENDING))
        found.append(decide(knocked, dict(knocked.context), _value(0, 2 * number + 1, ACCEPTED)))
    return found


def _value(node: int, counter: int, state: str) -> Value:
    return Value(Dot(NODES[node], counter), state, 1.8e9, "root", f"m{node + 1}")


def _rejected(records: list[Record], known: bool) -> list[Record]:
    """The same keys, rejected on another master that did, or did not, know of the acceptance."""
    return [
        decide(
            record if known else record._replace(values=(), context=()),
            dict(record.context) if known else {},
            _value(1, number, REJECTED),
        )
        for number, record in enumerate(records, 1)
    ]


def _merging(known: bool) -> Work:
    ours = _records()
    pairs = list(zip(ours, _rejected(ours, known), strict=True))
    return lambda: [merge(one, other) for one, other in pairs]


def _digests() -> Work:
    records = _records()
    return lambda: [record_digest(record) for record in records]


def _tree() -> Work:
    items = [(record.minion_id, record_digest(record)) for record in _records()]
    tree = DigestTree()

    def work() -> None:
        for minion_id, digest in items:
            tree.toggle(bucket_of(minion_id), digest)

    return work


def _comparing() -> Work:
    # It loads Salt, which the other pieces do not need.
    from saltext_ha.sync.antientropy import differing

    tree, other = DigestTree(), DigestTree([(0, b"\1" + bytes(15))])
    compared = other.children(0)
    return lambda: [differing(tree.children(0), compared) for _ in range(ITEMS)]


def _out() -> Work:
    # The same.
    from saltext_ha.sync.codec import to_wire

    records = _records()
    return lambda: [to_wire(record) for record in records]


def _in() -> Work:
    from lab import key_folders
    from saltext_ha.keystore import minion_key
    from saltext_ha.sync.codec import from_wire, to_wire

    keys = islice(key_folders.public_keys(1), ITEMS)
    ids = key_folders.ids(ITEMS)
    sent = _accepted(
        Record(minion_id, minion_key.fingerprint(text), text)
        for minion_id, text in zip(ids, keys, strict=True)
    )
    rows = [to_wire(record) for record in sent]
    return lambda: [from_wire(row) for row in rows]


def _placing() -> Work:
    records = _records()
    return lambda: [place([record], ABSENT) for record in records]


def _placing_two() -> Work:
    records = _records()
    pairs = list(zip(records, _rejected(records[1:] + records[:1], True), strict=True))
    return lambda: [place(pair, ABSENT) for pair in pairs]


WORKS: Mapping[str, Callable[[], Work]] = {
    "merge, one side is newer": lambda: _merging(True),
    "merge, decided on both sides": lambda: _merging(False),
    "digest of a record": _digests,
    "digest tree, one change": _tree,
    "digest tree, 256 digests compared": _comparing,
    "placement, one key": _placing,
    "placement, two keys": _placing_two,
    "record to the wire": _out,
    "record from the wire, checked": _in,
}


def main(name: str, times: str) -> None:
    """Prepare the work in any case, and do it *times* times."""
    work = WORKS[name]()
    for _ in range(int(times)):
        work()


if __name__ == "__main__":
    main(*sys.argv[1:])
