"""
What follows when keys are revoked: the AES key is rotated and caches are cleaned, once a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saltext_ha.common.errors import UncleanCaches
from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import KeyStore
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.placement import ABSENT

Revoke = Callable[[Iterable[str] | None, bool], None]


class Revocations:
    """
    Revocations whose rotation and cleaning are still due. A due rotation survives a crash.

    :param revoke: rotates the AES key and cleans caches, in this order. Called once for all that is
        learned or applied together, with the ids that have no key any more (None if unknown after a
        crash), and whether a rotation is needed: not if no accepted key was revoked.
    """

    def __init__(self, store: KeyStore, replica: Replica, mode: WriteMode, revoke: Revoke) -> None:
        self._store = store
        self._replica = replica
        self._mode = mode
        self._revoke = revoke
        self._gone: set[str] | None = None if replica.meta.revocation_due else set()
        """Ids that lost their last key since caches were cleaned; None: unknown after a crash."""

    def is_gone(self, minion_id: str) -> None:
        """An id lost its last key."""
        if self._gone is not None:
            self._gone.add(minion_id)

    def follow_up(self) -> None:
        """
        Rotate and clean what is due; nothing on a master that only reports. While the store is not
        written, the caches wait: it may not be the right one.

        :raises StoreError: that failed, and stays due. A rotation that was made does not: all
            minions would authenticate anew, each time.
        """
        due, clean = self._replica.meta.revocation_due, self._mode.writes
        if self._mode.never and self._gone:
            self._gone.clear()  # others deleted the keys here, and clean the caches
        if self._mode.only_reports:
            return
        gone = self._gone if clean else set()
        if not due and gone == set():
            return
        point("revoke.begin")
        try:
            self._revoke(None if gone is None else filter(self._has_no_key, gone), due)
        except UncleanCaches:
            self._is_rotated(due)
            raise
        point("revoke.done")
        self._is_rotated(due)
        if clean:
            self._gone = set()
        point("revoke.marked")

    def _is_rotated(self, was_due: bool) -> None:
        if was_due:
            with self._replica.transaction():
                self._replica.meta.revocation_due = False

    def _has_no_key(self, minion_id: str) -> bool:
        content = self._store.peek(minion_id)
        return content is not None and content.stored == ABSENT
