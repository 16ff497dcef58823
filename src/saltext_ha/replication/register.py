"""
A register that several masters write: what the registers of trees and of runs have in common.

It merges like a key's record (see :mod:`.record`): values that were written without knowing of each
other stay side by side, and a write replaces what its writer knew. A peer's register is checked
like a peer's record (:mod:`.vouching`). Its user says what a value means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from saltext_ha.replication.record import Dot, join, surviving
from saltext_ha.replication.vouching import Highs, Owners, sound

MOST_VALUES = 64
"""Most concurrent values, one of each master. If there are more, the highest ranks count."""

Seen = tuple[tuple[str, int], ...]
"""A register's context, all writes that it has ever seen: (node, counter), sorted by node."""


class Valued(Protocol):
    """A value with the name of its write."""

    @property
    def dot(self) -> Dot: ...

    def __lt__(self, other: Any, /) -> bool: ...


V = TypeVar("V", bound=Valued)


def merge(
    ours: Iterable[V],
    our_seen: Seen,
    theirs: Iterable[V],
    their_seen: Seen,
    rank: Callable[[V], Any],
) -> tuple[tuple[V, ...], Seen]:
    """
    Values and context of the merge of both registers.

    If each register claims to have replaced all values of the other, which honest masters never do,
    all values stay side by side: otherwise none would be left.

    :param rank: if there are more than :data:`MOST_VALUES`, the values of the highest rank count.
    """
    own, told = ({value.dot: value for value in values} for values in (ours, theirs))
    our_context, their_context = dict(our_seen), dict(their_seen)
    kept = set(surviving(own, our_context, told, their_context, lambda both: min(both)))
    if not kept and own and told:
        kept = {*own.values(), *told.values()}
    most = sorted(kept, key=rank)[-MOST_VALUES:]
    return in_order(most), _seen(join(our_context, their_context))


def sifted(
    theirs: Iterable[V], their_seen: Seen, our_seen: Seen, highs: Highs, owners: Owners
) -> tuple[tuple[V, ...], Seen, str]:
    """
    Values and context of the part of a peer's register that counts; and what is wrong with the
    rest, empty if nothing is. See :func:`.vouching.sound`.
    """
    values, context, reason = sound(theirs, dict(their_seen), dict(our_seen), highs, owners)
    return in_order(values), _seen(context), reason


def disclaimed(values: Iterable[Valued], seen: Seen, highs: Highs) -> Seen:
    """
    The context without claims that newer vouches refute; the writes of *values* stay.
    """
    claims = {node: n for node, n in seen if n <= highs.get(node, n)}
    return _seen(join(claims, *({value.dot.node: value.dot.counter} for value in values)))


def seen_with(seen: Seen, dot: Dot) -> Seen:
    """The context after the write *dot*."""
    return _seen(join(dict(seen), {dot.node: dot.counter}))


def in_order(values: Iterable[V]) -> tuple[V, ...]:
    """*values* in a register's order."""
    return tuple(sorted(values))


def digest(values: Iterable[tuple[Dot, str]], seen: Seen) -> bytes:
    """
    16 bytes that differ whenever two registers do.

    :param values: the dot of each value, and a text that differs if another value has that dot.
    """
    lines = [f"{dot.node},{dot.counter},{what}" for dot, what in values]
    lines.append("")
    lines += [f"{node},{counter}" for node, counter in seen]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()


def _seen(context: Mapping[str, int]) -> Seen:
    return tuple(sorted(context.items()))
