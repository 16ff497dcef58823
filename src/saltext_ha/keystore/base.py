"""The interface of a key store: what it shows, and how it is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.plan import Step

# Salt 3008 writes a key under such a name in the key folder, then renames it (tempfile.mkstemp in
# salt/cache/localfs_key.py).
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")


class Content(NamedTuple):
    """
    What the store shows for one id, and the public keys behind the fingerprints.

    ``mark`` changes whenever the id's entry changes, and is the same after a restart.
    """

    stored: Stored
    keys: Mapping[bytes, str]
    mark: int = 0
    junk: bool = False
    """
    The pending file holds no key: on 3006 and 3007 any host that reaches the master can send one.
    """
    slot_mark: int = 0
    """As ``mark``, but of the slot alone."""


class Change(NamedTuple):
    """The steps to take for one id, the public keys they need, and what the store showed before."""

    minion_id: str
    steps: Sequence[Step]
    keys: Mapping[bytes, str]
    shown: Stored = ABSENT


class Outcome(NamedTuple):
    """
    The result of :meth:`KeyStore.apply`: ids whose entry was already gone, changed by another
    process before it could be removed or replaced; and ids that could not be changed, with the
    reason.
    """

    missing: set[str]
    failed: dict[str, str]
    taken: set[str]
    """
    Ids that are unchanged: another process put an entry there after the store was read.
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
    """Whether :meth:`touched` sees changes; if not, only a full pass finds them."""

    def changed(self) -> Iterable[str]:
        """
        Ids whose content may differ from when :meth:`read` last saw it, in one pass.

        The first call names every id that was not recalled. Ids that are gone are named too. It may
        run in another thread than the other methods.
        """

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """Treat ids with these marks as read: :meth:`read` returned them before a restart."""

    def sweep(self) -> None:
        """
        Remove temporary files of a process that was killed while it wrote; no key is read or lost.
        """

    def touched(self) -> bool:
        """Whether something was added or removed since the last call; a cheap look."""

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """
        What the store shows for an id; None while a key file is being written or is no key.

        Such an id is named again by the next :meth:`changed`.

        :param certain: no write is under way: a pending file that holds no key counts as absent.
        """

    def junk(self, minion_id: str) -> list[str]:
        """The states (accepted, rejected, pending) in which the id's entry is not a public key."""

    def discard_junk(self, minion_id: str) -> None:
        """Remove the entries that :meth:`junk` still names."""

    def signature(self, owner: str) -> str | None:
        """The token with which master *owner* signed this store last, or None."""

    def check_writable(self) -> None:
        """
        Fail now if nothing can be written, rather than when the next revocation is due.

        :raises StoreError: it cannot be written; says why.
        """

    def sign(self, owner: str, token: str | None) -> None:
        """Store *token* as *owner*'s, in place of an earlier one; None removes it."""

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """
        Take all steps: first write what is new and make it durable, then the removals likewise.
        """
