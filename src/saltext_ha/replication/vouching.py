"""
What of a record counts that somebody sent: nobody speaks for a writer that is not his own.

A record says which writes it has seen: (node, counter) each. A record that claims to have seen what
a master has yet to write would swallow it, however many masters know better. So each master vouches
for its nodes: a statement, signed with the key of its certificate, of how far it has written. It
travels with the records, by whomever they come, so that a write outlives its writer. A node's name
follows from the certificate of its master, so that nobody can vouch for another's.

What is left out of a record here makes decisions look as if they had been made without knowing of
each other, and then revocations win: it never opens what was closed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from saltext_ha.replication.record import Context, Dot, Record

MAX_COUNTER = 2**53
MOST_WRITES = 2**48
"""Of one node: no group comes near it, with a write each microsecond for nine years."""
MOST_OF_ONE = 1024
"""
Nodes of one master in one record's context; those that nobody vouches for count as one's. A node
is a start of an engine with a decision about that very key after it: one a day for three years. So
much of each of 64 masters is what ``sync/codec.py`` takes; what has more than this in all is
found by ``ha.rewrite`` (``replication/poisoned.py``).
"""
MOST_UNKNOWN = MOST_OF_ONE // 4
"""Those of them that nobody vouches for and that are only named: the rest is for who writes."""
MOST_DROPPED = 65_536
"""Nodes in a horizon."""

Highs = Mapping[str, int]
"""Node → how far it has written, for those of masters that belong to the group."""
Owners = Mapping[str, bytes]
"""Node → the fingerprint of the certificate from which its name follows."""


class Write(Protocol):
    """What is written under a name: a value of a record, or a deployment."""

    @property
    def dot(self) -> Dot:
        """The name."""


W = TypeVar("W", bound=Write)


class Vouch(NamedTuple):
    """
    A master's word that its node has written up to *high*, and no further.

    *owner* is the SHA-256 fingerprint of its certificate, *nonce* 8 bytes; *proof* the signature.
    """

    owner: bytes
    nonce: bytes
    high: int
    proof: bytes = b""

    @property
    def node(self) -> str:
        """The node's name."""
        return node_of(self.owner, self.nonce)

    @property
    def statement(self) -> bytes:
        """What is signed."""
        return f"saltext-ha: {self.node} has written {self.high}".encode()


def node_of(owner: bytes, nonce: bytes) -> str:
    """The name of the node that a master with the certificate *owner* gives itself."""
    return hashlib.sha256(b"saltext-ha node" + owner + nonce).hexdigest()[:16]


def is_sound(record: Record, highs: Highs) -> bool:
    """Whether :func:`sift` would leave *record* as it is; for nearly all of them, and quickly."""
    for node, counter in record.context:
        if counter > highs.get(node, MOST_WRITES):
            return False
    return len(record.context) <= MOST_UNKNOWN


def sift(
    theirs: Record, ours: Record | None, highs: Highs, owners: Owners
) -> tuple[Record | None, str]:
    """
    What of *theirs* counts, as :func:`sound` says, and what was wrong with the rest; empty when
    nothing was.

    :param ours: what is known here of the same pair.
    :return: None when nothing is left.
    """
    known = dict(ours.context) if ours else {}
    values, context, reason = sound(theirs.values, dict(theirs.context), known, highs, owners)
    if not reason:
        return theirs, ""
    if not values:
        return None, reason
    return theirs._replace(values=tuple(values), context=tuple(sorted(context.items()))), reason


def sound(
    values: Iterable[W], claims: Context, known: Context, highs: Highs, owners: Owners
) -> tuple[list[W], Context, str]:
    """
    Which *values* count that somebody sent, and what of the writes that they *claim* to have seen;
    and what was wrong with the rest, empty when nothing was.

    Left out is what they claim of a node beyond what its master vouches for, or, where none does,
    beyond what any writes. Then, where a context has more nodes than can be by honest means, those
    that are new here; but what a value was written under stays, so that no decision is lost to a
    crowded context, unless there are more than MOST_OF_ONE of its own master, or, of one that does
    not vouch, of all that do not.

    :param known: the writes that are known here.
    """
    sent = list(values)
    false = {
        node
        for node, counter in claims.items()
        if counter > highs.get(node, MOST_WRITES) and counter > known.get(node, 0)
    }
    kept = [
        value
        for value in sent
        for node, counter in [value.dot]
        if node not in false or counter <= highs.get(node, MOST_WRITES)
    ]
    written = {value.dot.node for value in kept}
    crowd = _crowd(claims, known, owners, written)
    kept = [value for value in kept if value.dot.node not in crowd or value.dot.node in known]
    context = {node: counter for node, counter in claims.items() if node not in false | crowd}
    for dot in (value.dot for value in kept):
        context[dot.node] = max(dot.counter, context.get(dot.node, 0))
    if len(kept) == len(sent) and context == claims:
        return sent, claims, ""
    reason = f"it claims {len(crowd)} writers that are new, and more than there can be"
    if false:
        node = min(false)
        reason = f"it claims write {claims[node]} of node {node}, " + (
            f"whose master vouches for {highs[node]}"
            if node in highs
            else "which nobody made: salt-run ha.rewrite on the master that has it"
        )
    return kept, context, reason


def bounded(horizon: Highs, had: Highs, highs: Highs) -> dict[str, int]:
    """
    What of a *horizon* that a peer told counts: of a member's node no more than was *had* here.

    Of nodes of masters that are gone nobody here may have heard: their records were dropped.
    """
    counts = {
        node: min(counter, had.get(node, 0)) if node in highs else counter
        for node, counter in horizon.items()
    }
    if len(counts.keys() | had.keys()) > MOST_DROPPED:
        counts = {node: counter for node, counter in counts.items() if node in had}
    return {node: counter for node, counter in counts.items() if counter}


def _crowd(
    claims: Mapping[str, int], known: Mapping[str, int], owners: Owners, written: set[str]
) -> set[str]:
    """The nodes in *claims* that are new here, and too many; in *written* are those of values."""
    new = claims.keys() - known.keys()
    if len(claims) <= MOST_UNKNOWN or not new:
        return set()
    count = Counter(owners.get(node, b"") for node in claims.keys() | known.keys())
    full = {owner for owner in count if count[owner] > MOST_OF_ONE}
    crowded = full | ({b""} if count[b""] > MOST_UNKNOWN else set())
    return {node for node in new if owners.get(node, b"") in (full if node in written else crowded)}
