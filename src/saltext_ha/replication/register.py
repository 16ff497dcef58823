"""
A register that several masters write: what is common to those of trees and of runs.

It merges as a key's record does (see :mod:`.record`): values that were written without knowing of
each other stay side by side, and a write replaces what its writer knew. What a value says is for
those who keep the register.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from saltext_ha.replication.record import Dot, join, surviving

Seen = tuple[tuple[str, int], ...]
"""The writes that a register has ever seen: (node, counter), by node."""


class Valued(Protocol):
    """A value, by the name of its write."""

    @property
    def dot(self) -> Dot: ...

    def __lt__(self, other: Any, /) -> bool: ...


V = TypeVar("V", bound=Valued)


def merge(
    ours: Iterable[V], our_seen: Seen, theirs: Iterable[V], their_seen: Seen
) -> tuple[tuple[V, ...], Seen]:
    """Values and context of the register that has seen what both have."""
    our_context, their_context = dict(our_seen), dict(their_seen)
    kept = surviving(
        {value.dot: value for value in ours},
        our_context,
        {value.dot: value for value in theirs},
        their_context,
        lambda both: min(both),
    )
    return in_order(kept), _seen(join(our_context, their_context))


def next_write(seen: Seen, node: str) -> tuple[Dot, Seen]:
    """The name of the next write of *node*, and the context that has seen it."""
    context = dict(seen)
    dot = Dot(node, context.get(node, 0) + 1)
    return dot, _seen(join(context, {node: dot.counter}))


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


def _seen(context: dict[str, int]) -> Seen:
    return tuple(sorted(context.items()))
