"""
Which part of a peer's record counts: a master speaks only for its own writes.

A record says which writes it has seen, as (node, counter). If it claimed a write that a master has
yet to make, it would hide that write on all masters. So each master vouches for its nodes: it signs
a statement of how far it has written with the key of its certificate. The statement travels with
the records, whichever master passes them on, so a write outlives its writer. A node's name follows
from the certificate of its master, so no other master can vouch for it.

If part of a record is left out, decisions look as if they were made without knowing of each other.
Then revocations win, so this never gives access back.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from saltext_ha.replication.record import Context, Dot, Record

MAX_COUNTER = 2**53
MOST_WRITES = 2**48
"""Most writes of one node: nine years with one write each microsecond."""
MOST_OF_ONE = 1024
"""
Most nodes of one master in one record's context; nodes without a vouch count as one master's. Each
is a start of an engine after which a decision about this key was made: one a day for three years.
``sync/codec.py`` takes this many of each of 64 masters; ``ha.rewrite`` finds records with more than
this in all (``replication/poisoned.py``).
"""
MOST_UNKNOWN = MOST_OF_ONE // 4
"""Most nodes without a vouch that are only named; the rest is left for nodes of values."""
MOST_DROPPED = 65_536
"""Most nodes in a horizon."""

Highs = Mapping[str, int]
"""Node of a member → how far it has written."""
Owners = Mapping[str, bytes]
"""Node → the fingerprint of the certificate from which its name follows."""


class Write(Protocol):
    """What a write says: a value of a record, a deployment, or a run."""

    @property
    def dot(self) -> Dot:
        """Its name."""


W = TypeVar("W", bound=Write)


class Vouch(NamedTuple):
    """
    A master's signed statement that its node has written up to *high*, and no further.

    *owner* is the SHA-256 fingerprint of its certificate, *nonce* 8 bytes, *proof* the signature.
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
        """The signed bytes."""
        return f"saltext-ha: {self.node} has written {self.high}".encode()


def node_of(owner: bytes, nonce: bytes) -> str:
    """The name of the node that a master with the certificate *owner* gives itself."""
    return hashlib.sha256(b"saltext-ha node" + owner + nonce).hexdigest()[:16]


def is_sound(record: Record, highs: Highs) -> bool:
    """
    Whether :func:`sift` would leave *record* unchanged; fast, and true for nearly all records.
    """
    for node, counter in record.context:
        if counter > highs.get(node, MOST_WRITES):
            return False
    return len(record.context) <= MOST_UNKNOWN


def sift(
    theirs: Record, ours: Record | None, highs: Highs, owners: Owners
) -> tuple[Record | None, str]:
    """
    The part of *theirs* that counts by :func:`sound`, or None if no value is left; and what is
    wrong with the rest, empty if nothing is.

    :param ours: the record here of the same pair.
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
    Which of a peer's *values* count, and which of the writes that they claim to have seen; and
    what is wrong with the rest, empty if nothing is.

    First, claims beyond a node's vouch are left out; without a vouch, claims beyond what any node
    writes. Then, if the context has more nodes than honest masters write, nodes that are new here
    are left out. Nodes of the values stay, so that a crowded context costs no decision, unless
    there are more than MOST_OF_ONE nodes of their master, or of all masters that do not vouch.

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
    The part of a peer's *horizon* that counts: for a member's node, only writes that this master
    *had*.

    Nodes of former masters may be unknown here, because their records were dropped.
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
    """Nodes in *claims* that are new here and too many; *written* are the nodes of values."""
    new = claims.keys() - known.keys()
    if len(claims) <= MOST_UNKNOWN or not new:
        return set()
    count = Counter(owners.get(node, b"") for node in claims.keys() | known.keys())
    full = {owner for owner in count if count[owner] > MOST_OF_ONE}
    crowded = full | ({b""} if count[b""] > MOST_UNKNOWN else set())
    return {node for node in new if owners.get(node, b"") in (full if node in written else crowded)}
