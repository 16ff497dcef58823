"""
A register that several masters write: what the registers of trees and of runs have in common.

It merges like a key's record (see :mod:`.record`): values that were written without knowing of each
other stay side by side, and a write replaces what its writer knew. A peer's register is checked
like a peer's record (:mod:`.vouching`). Each kind of register says what a value means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

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
R = TypeVar("R", bound="SharedRegister[Any]")


@dataclass(frozen=True)
class SharedRegister(Generic[V]):
    """
    All that is known of one thing. A kind of register says how values rank, and what tells them
    apart.

    :ivar values: sorted.
    """

    values: tuple[V, ...] = ()
    context: Seen = ()

    @staticmethod
    def rank(value: V) -> Any:
        """If there are more than :data:`MOST_VALUES`, the values of the highest rank count."""
        raise NotImplementedError

    @staticmethod
    def text(value: V) -> str:
        """A text that differs if another value has the same dot."""
        raise NotImplementedError

    @staticmethod
    def may_vanish(value: V) -> bool:
        """Whether the master that wrote *value* may take it back."""
        return False

    @property
    def digest(self) -> bytes:
        """16 bytes that differ whenever two registers do."""
        lines = [f"{v.dot.node},{v.dot.counter},{self.text(v)}" for v in self.values]
        lines.append("")
        lines += [f"{node},{counter}" for node, counter in self.context]
        return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()

    def written(self: R, dot: Dot, values: Iterable[Any]) -> R:
        """This register after the write *dot*, which replaced all its values by *values*."""
        seen = join(dict(self.context), {dot.node: dot.counter})
        return replace(self, values=in_order(values), context=_seen(seen))

    def merged(self: R, theirs: R) -> R:
        """
        The merge of both registers.

        If each claims to have replaced all values of the other, which honest masters do only with
        values that :meth:`may_vanish`, all values stay side by side: otherwise none would be left.
        """
        own, told = ({value.dot: value for value in each.values} for each in (self, theirs))
        our_context, their_context = dict(self.context), dict(theirs.context)
        kept = set(surviving(own, our_context, told, their_context, lambda both: min(both)))
        if not kept and own and told:
            both = {*own.values(), *told.values()}
            kept = set() if all(map(self.may_vanish, both)) else both
        most = sorted(kept, key=self.rank)[-MOST_VALUES:]
        seen = join(our_context, their_context)
        return replace(self, values=in_order(most), context=_seen(seen))

    def sifted(self: R, known: R, highs: Highs, owners: Owners) -> tuple[R, str]:
        """
        The part of this register, a peer's, that counts for a master that knows *known*; and what
        is wrong with the rest, empty if nothing is. See :func:`.vouching.sound`.
        """
        values, context, reason = sound(
            self.values, dict(self.context), dict(known.context), highs, owners
        )
        return replace(self, values=in_order(values), context=_seen(context)), reason

    def disclaimed(self: R, highs: Highs) -> R:
        """This register without claims that newer vouches refute; its values stay."""
        claims = {node: n for node, n in self.context if n <= highs.get(node, n)}
        own = ({value.dot.node: value.dot.counter} for value in self.values)
        return replace(self, context=_seen(join(claims, *own)))


def in_order(values: Iterable[V]) -> tuple[V, ...]:
    """*values* in a register's order."""
    return tuple(sorted(values))


def _seen(context: Mapping[str, int]) -> Seen:
    return tuple(sorted(context.items()))
