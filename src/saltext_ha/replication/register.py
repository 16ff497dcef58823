"""
A register that several masters write: what is common to those of trees and of runs.

It merges as a key's record does (see :mod:`.record`): values that were written without knowing of
each other stay side by side, and a write replaces what its writer knew. What a peer sends counts as
far as a record's would (:mod:`.vouching`). What a value says is for those who keep the register.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from saltext_ha.replication.record import Dot, join, surviving
from saltext_ha.replication.vouching import Highs, Owners, sound

MOST_VALUES = 64
"""Side by side: one of each master. Of more those of the highest rank count."""

Seen = tuple[tuple[str, int], ...]
"""The writes that a register has ever seen: (node, counter), by node."""


class Valued(Protocol):
    """A value, by the name of its write."""

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
    Values and context of the register that has seen what both have.

    Where each claims to have seen, and replaced, all values of the other, which cannot be by honest
    means, all of them stand side by side: else nothing would be left.

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
    Values and context of what counts of a register that a peer sent, and what was wrong with the
    rest, empty when nothing was; see :func:`.vouching.sound`.
    """
    values, context, reason = sound(theirs, dict(their_seen), dict(our_seen), highs, owners)
    return in_order(values), _seen(context), reason


def disclaimed(values: Iterable[Valued], seen: Seen, highs: Highs) -> Seen:
    """The context without writes that masters, met since, have not made; *values* stay seen."""
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

    :param values: of each, what tells it from another one under the same name.
    """
    lines = [f"{dot.node},{dot.counter},{what}" for dot, what in values]
    lines.append("")
    lines += [f"{node},{counter}" for node, counter in seen]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()


def _seen(context: Mapping[str, int]) -> Seen:
    return tuple(sorted(context.items()))
