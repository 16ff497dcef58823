"""
Refused entries of this master's key store: they cannot be recorded, or cannot be changed.

They stay where they are. Peers do not hear of them, and the status tells operators why.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Iterable

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.replication.record import OBSERVATIONS, Record

log = logging.getLogger(__name__)

# A minion that knocks with ever new keys must not fill the replicas of all masters.
MAX_UNDECIDED = 4
NO_KEY = "its key file is unreadable, or no public key in PEM"
MAX_REFUSED = 1000
SHOWN = 3


class RefusedIds:
    """The ids with a refused entry; at most :data:`MAX_REFUSED`."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        """Id → the last reason."""

    def add(self, minion_id: str, reason: str) -> None:
        """Note that an entry of an id is refused; log it if the reason is new."""
        if self.reasons.get(minion_id) != reason and len(self.reasons) < MAX_REFUSED:
            log.warning("ha refused: id=%s reason=%s", ascii(minion_id), reason)
            self.reasons[minion_id] = reason

    def discard(self, minion_id: str) -> None:
        """Note that no entry of an id is refused any more."""
        self.reasons.pop(minion_id, None)

    def new_record(
        self, minion_id: str, key: bytes, text: str, state: str, others: Iterable[Record]
    ) -> Record | None:
        """
        An empty record for a key that has none yet. If it must not have one: None, and the id is
        refused.

        :param key: the fingerprint of *text*. :param state: the key's state in the store.
        :param others: the records of the id's other keys.
        """
        undecided = sum(record.state in OBSERVATIONS for record in others)
        try:
            if state in OBSERVATIONS and undecided >= MAX_UNDECIDED:
                raise InvalidRecord(f"more than {MAX_UNDECIDED} undecided keys")
            minion_key.check_id(minion_id)
            minion_key.check(text)
        except InvalidRecord as exc:
            self.add(minion_id, str(exc))
            return None
        self.discard(minion_id)
        return Record(minion_id, key, text)

    def note(self) -> str:
        """The message for operators; empty when nothing is refused."""
        if not self.reasons:
            return ""
        shown = sorted(self.reasons.items())[:SHOWN]
        some = [
            f"{ascii(i)[1:-1]} ({textwrap.shorten(why, 80, placeholder=' …')})" for i, why in shown
        ]
        more = ", …" if len(self.reasons) > SHOWN else ""
        what = "id is" if len(self.reasons) == 1 else "ids are"
        return f"{len(self.reasons)} {what} refused here: {', '.join(some)}{more}"
