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
    """Like ``mark``, but for the slot alone."""


class Change(NamedTuple):
    """The steps to take for one id, the public keys they need, and what the store showed before."""

    minion_id: str
    steps: Sequence[Step]
    keys: Mapping[bytes, str]
    shown: Stored = ABSENT


class Outcome(NamedTuple):
    """The result of :meth:`KeyStore.apply`."""

    missing: set[str]
    """Ids whose entry another process had removed or changed before us."""
    failed: dict[str, str]
    """Id that could not be changed → why."""
    taken: set[str]
    """Ids that are unchanged: another process put an entry there after the store was read."""


class KeyStore(Protocol):
    """
    A master's minion keys.

    Every method raises :class:`~saltext_ha.common.errors.StoreError` if it cannot reach the store.
    What is written out here is so for a store that keeps no files.
    """

    one_denied: bool
    """Whether the store holds at most one denied key an id."""

    watched: bool = False
    """Whether :meth:`touched` sees changes; if not, only a full pass finds them."""

    def changed(self) -> Iterable[str]:
        """
        Make a pass over the store: name ids whose content may have changed since their last
        :meth:`read`.

        Ids that are gone are named, too. The first call names all ids, except those recalled. This
        may run in another thread than the other methods.

        :raises UnlistedStore: the store cannot be listed.
        """

    def recall(self, marks: Iterable[tuple[str, int]]) -> None:
        """Count ids as read if they have *marks*, which :meth:`read` returned before a restart."""

    def sweep(self) -> None:
        """
        Remove temporary files of a process that was killed while it wrote; they are no keys.
        """
        return

    def touched(self) -> bool:
        """Whether something was added or removed since the last call; cheap."""
        return False

    def at_rest(self) -> bool:
        """
        Whether no accepted or rejected key came or went in the last two seconds; cheap. A store
        that cannot tell is at rest.
        """
        return True

    def peek(self, minion_id: str, certain: bool = False) -> Content | None:
        """
        What the store shows for an id; None if a key file is half written, or is no key.

        :param certain: no write is under way: a pending file that holds no key counts as absent.
        """

    def read(self, minion_id: str, certain: bool = False) -> Content | None:
        """
        :meth:`peek`, to record it: :meth:`changed` names the id no more until it changes again,
        unless this returns None.

        Of an id that was never read, a store may read only the entry that the last pass saw, if
        that saw only one; what came since is found by the next pass.
        """

    def junk(self, minion_id: str) -> list[str]:
        """The states (accepted, rejected, pending) in which the id's entry is not a public key."""
        return []

    def discard_junk(self, minion_id: str) -> None:
        """Remove the entries that :meth:`junk` still names."""
        return

    def signature(self, owner: str) -> str | None:
        """The last token with which the master *owner* signed this store, or None."""

    def check_writable(self) -> None:
        """
        Fail now if nothing can be written, rather than when the next revocation is due.

        :raises StoreError: the store cannot be written; says why.
        """
        return

    def sign(self, owner: str, token: str | None) -> None:
        """Replace the token of the master *owner* by *token*; None removes it."""

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """
        Take all steps: first write new entries and make them durable, then remove old ones in the
        same way.
        """
