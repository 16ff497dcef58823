"""
A register that several masters write: the common part of those of trees and of runs.

It merges like a key's record (see :mod:`.record`): values that were written without knowing of each
other stay side by side, and a write replaces what its writer knew. What a peer sends is checked as
a record is (:mod:`.vouching`). The owner of the register says what a value means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from saltext_ha.replication.record import Dot, join, surviving
from saltext_ha.replication.vouching import Highs, Owners, sound

MOST_VALUES = 64
"""Concurrent values at most, one of each master. Of more, those of the highest rank count."""

Seen = tuple[tuple[str, int], ...]
"""The writes that a register has ever seen: (node, counter) each, sorted by node."""


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

    If each claims to have seen, and replaced, all values of the other, which no honest masters do,
    all values stay side by side: otherwise none would be left.

    :param rank: which values count where there are more than :data:`MOST_VALUES`: the highest.
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
    Values and context of the part of a peer's register that counts; and what was wrong with the
    rest, empty when nothing was. See :func:`.vouching.sound`.
    """
    values, context, reason = sound(theirs, dict(their_seen), dict(our_seen), highs, owners)
    return in_order(values), _seen(context), reason


def disclaimed(values: Iterable[Valued], seen: Seen, highs: Highs) -> Seen:
    """
    The context without writes that their masters, met since, did not make; *values* stay seen.
    """
    claims = {node: n for node, n in seen if n <= highs.get(node, n)}
    return _seen(join(claims, *({value.dot.node: value.dot.counter} for value in values)))


def seen_with(seen: Seen, dot: Dot) -> Seen:
    """The context after the write *dot*."""
    return _seen(join(dict(seen), {dot.node: dot.counter}))


def in_order(values: Iterable[V]) -> tuple[V, ...]:
    """As a register keeps them."""
    return tuple(sorted(values))


def digest(values: Iterable[tuple[Dot, str]], seen: Seen) -> bytes:
    """
    16 bytes that differ whenever two registers do.

    :param values: for each, what distinguishes it from another one of the same name.
    """
    lines = [f"{dot.node},{dot.counter},{what}" for dot, what in values]
    lines.append("")
    lines += [f"{node},{counter}" for node, counter in seen]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()


def _seen(context: Mapping[str, int]) -> Seen:
    return tuple(sorted(context.items()))
