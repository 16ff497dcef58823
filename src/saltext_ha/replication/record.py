"""
One record: all that is known of one (minion id, public key), and how two such records merge.

Each record is a multi-value register with a causal context (dotted version vectors: Preguiça,
Baquero, Almeida, Fonte, Gonçalves, "Dotted Version Vectors", 2010). A value carries the *dot*
(node, counter) under which it was written; the context says which dots the record has ever
contained. In the merge of two records for the same pair, a value survives if both hold it, or if
the other side has never seen its dot. Merge is therefore commutative, associative and idempotent,
and no clock orders anything: the time in a value is for people to read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

ACCEPTED = "accepted"
REJECTED = "rejected"
DELETED = "deleted"
PENDING = "pending"
DENIED = "denied"

DECISIONS = frozenset({ACCEPTED, REJECTED, DELETED})
OBSERVATIONS = frozenset({PENDING, DENIED})
STATES = DECISIONS | OBSERVATIONS
SHOWN = (ACCEPTED, PENDING, REJECTED, DENIED)
"""Those that a key store shows."""
_STRICTEST_FIRST = (REJECTED, DELETED, ACCEPTED, PENDING, DENIED)

Context = Mapping[str, int]
V = TypeVar("V")


class Dot(NamedTuple):
    """The name of a write: the *counter*-th write of *node*."""

    node: str
    counter: int


class Value(NamedTuple):
    """One state as one master wrote it. ``at`` (Unix seconds), ``by`` and ``on`` are for people."""

    dot: Dot
    state: str
    at: float
    by: str
    on: str


class Record(NamedTuple):
    """All that is known of one (minion id, public key)."""

    minion_id: str
    fingerprint: bytes
    public_key: str
    values: tuple[Value, ...] = ()
    context: tuple[tuple[str, int], ...] = ()

    @property
    def state(self) -> str | None:
        """The visible state, or None when the record holds no value."""
        if len(self.values) == 1:  # the usual case
            return self.values[0].state
        return visible({value.state for value in self.values})

    @property
    def revocations(self) -> list[Value]:
        """The values that delete or reject the key; its minion may have knocked since."""
        return [value for value in self.values if value.state in (DELETED, REJECTED)]

    @property
    def decided(self) -> bool:
        """Whether the record has a decision of an operator that no other write replaced."""
        return any(value.state in DECISIONS for value in self.values)


def visible(states: Iterable[str]) -> str | None:
    """
    The one state that results from concurrent *states*.

    Rejected wins over deleted, then accepted, pending, denied: so a revocation wins over a grant
    made without knowing of it. But beside a tombstone an observation is visible: a minion that
    knocks again gets no access by that.
    """
    held = set(states)
    if REJECTED in held:
        return REJECTED
    order = (PENDING, DENIED, DELETED) if DELETED in held else (ACCEPTED, PENDING, DENIED)
    return next((state for state in order if state in held), None)


def strictest(values: Iterable[Value]) -> Value:
    """The strictest of *values*, the same one on every master."""
    return min(values, key=lambda value: (_STRICTEST_FIRST.index(value.state), value))


def covers(context: Context, dot: Dot) -> bool:
    """Whether *dot* is among the writes that *context* has seen."""
    return dot.counter <= context.get(dot.node, 0)


def join(*contexts: Context) -> dict[str, int]:
    """The smallest context that covers every write that any of *contexts* covers."""
    joined: dict[str, int] = {}
    for context in contexts:
        for node, counter in context.items():
            joined[node] = max(counter, joined.get(node, 0))
    return joined


def merge(ours: Record, theirs: Record) -> Record:
    """Merge two records of the same pair."""
    if ours.context == theirs.context and ours.values == theirs.values:
        return ours
    our_context, their_context = dict(ours.context), dict(theirs.context)
    kept = surviving(
        {v.dot: v for v in ours.values},
        our_context,
        {v.dot: v for v in theirs.values},
        their_context,
        strictest,
    )
    return _with(ours, kept, join(our_context, their_context))


def surviving(
    ours: Mapping[Dot, V],
    our_context: Context,
    theirs: Mapping[Dot, V],
    their_context: Context,
    one_of: Callable[[Iterable[V]], V],
) -> set[V]:
    """
    The values in the merge of two replicas of one register.

    :param one_of: chooses between two different values with the same dot. If a member forged one of
        them, that must not make both vanish.
    """
    kept = set()
    for dot, value in ours.items():
        if dot in theirs:
            other = theirs[dot]
            kept.add(value if value == other else one_of((value, other)))
        elif not covers(their_context, dot):
            kept.add(value)
    kept |= {v for dot, v in theirs.items() if dot not in ours and not covers(our_context, dot)}
    return kept


def within(record: Record, horizon: Context) -> bool:
    """Whether *horizon* covers every write in the context of *record*."""
    return all(counter <= horizon.get(node, 0) for node, counter in record.context)


def without_dropped(theirs: Record, ours: Record | None, horizon: Context) -> Record:
    """
    *theirs* without the values that *horizon* covers and *ours* does not have.

    All masters had these values, so they were overwritten or dropped here since, and the writers of
    *ours* knew them. A record that was written after its tombstone was dropped lacks it in its
    context, and would lose to it on a master that still has the tombstone.

    The exception is a write of a lost master that not all others had, though they have later writes
    of that master. If no value would be left otherwise, such values count.
    """
    there = ours.values if ours else ()
    kept = tuple(v for v in theirs.values if v in there or not covers(horizon, v.dot))
    if len(kept) == len(theirs.values):
        return theirs
    rest = theirs._replace(values=kept)
    return theirs if ours and not merge(ours, rest).values else rest


def decide(record: Record, known: Context, value: Value) -> Record:
    """*record* after a decision that replaces all values that *known* covers."""
    kept = {v for v in record.values if not covers(known, v.dot)}
    return _written(record, kept, value)


def observe(record: Record, known: Context, value: Value) -> Record:
    """
    *record* after a minion knocked: earlier observations in *known* are replaced, decisions stay.

    So a tombstone stays beside the knock, and still wins over an acceptance that did not know it.
    """
    kept = {v for v in record.values if v.state not in OBSERVATIONS or not covers(known, v.dot)}
    return _written(record, kept, value)


def record_digest(record: Record) -> bytes:
    """16 bytes that differ whenever two records differ in values or context."""
    parts = [record.minion_id, record.fingerprint.hex()]
    parts += [f"{v.dot.node},{v.dot.counter},{v.state}" for v in record.values]
    parts.append("")
    parts += [f"{node},{counter}" for node, counter in record.context]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).digest()


def _written(record: Record, kept: set[Value], value: Value) -> Record:
    context = join(dict(record.context), {value.dot.node: value.dot.counter})
    return _with(record, kept | {value}, context)


def _with(record: Record, values: set[Value], context: Context) -> Record:
    pair = record[:3]
    return Record(*pair, tuple(sorted(values)), tuple(sorted(context.items())))
