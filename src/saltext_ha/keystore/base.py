"""What the rest of the package asks of a key store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import Step

# Under such a name Salt 3008 writes a key (tempfile.mkstemp in salt/cache/localfs_key.py), in the
# key folder, and renames it then.
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")


class Content(NamedTuple):
    """
    What the store shows for one id, and the public keys behind the fingerprints.

    ``mark`` changes whenever the id's entry does, and means the same after a restart.
    """

    stored: Stored
    keys: Mapping[bytes, str]
    mark: int = 0
    junk: bool = False
    """What is pending is no key: on 3006 and 3007 any host that reaches the master can leave it."""
    slot_mark: int = 0
    """The same as ``mark``, of the slot alone."""


class Change(NamedTuple):
    """The steps to take for one id, the public keys they need, and what the store showed before."""

    minion_id: str
    steps: Sequence[Step]
    keys: Mapping[bytes, str]
    shown: Stored = ABSENT


class Outcome(NamedTuple):
    """
    How :meth:`KeyStore.apply` went: ids where an entry to be removed or replaced was already gone,
    because somebody else acted meanwhile, and ids that could not be changed, with the reason.
    """

    missing: set[str]
    failed: dict[str, str]
    taken: set[str]
    """
    Ids that got no new entry, and lost none: in its place something stood that was not shown,
    because somebody else was faster.
    """


class KeyStore(Protocol):
    """
    A master's minion keys.

    Every method raises :class:`~saltext_ha.common.errors.StoreError` when the store cannot be
    reached.
    """

    one_denied: bool
    """Whether the store holds at most one denied key an id."""

    watched: bool
    """Whether :meth:`touched` sees what happens; else only a full pass does."""

    def changed(self) -> Iterable[str]:
        """
        Ids whose content may differ from when :meth:`read` last saw it, in one pass.

        The first call names every id that was not recalled. Ids that vanished are named too. May
        be called from another thread than the rest.
        """

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """Take ids with these marks as read: what :meth:`read` gave for them before a restart."""

    def sweep(self) -> None:
        """Remove what a process left that was killed while it wrote; nothing is read or lost."""

    def touched(self) -> bool:
        """Whether a cheap look says that something was added or removed since the last call."""

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """
        What the store shows for an id; None while a key file is being written or is no key.

        Such an id is named again by the next :meth:`changed`.

        :param certain: nothing is being written: what is pending and no key counts as nothing.
        """

    def junk(self, minion_id: str) -> list[str]:
        """In which of the states accepted, rejected and pending an id has what is no public key."""

    def discard_junk(self, minion_id: str) -> None:
        """Remove what still is none."""

    def signature(self, owner: str) -> str | None:
        """The token with which master *owner* signed this store last, or None."""

    def check_writable(self) -> None:
        """
        Say at once, and not when the next revocation is due, that nothing can be written.

        :raises StoreError: that, and why.
        """

    def sign(self, owner: str, token: str | None) -> None:
        """Leave *token* in the store as *owner*'s, instead of an earlier one; None takes it out."""

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """Take all steps: first everything new, made durable, then the removals, made durable."""
