"""What this master writes about keys in its own name: values, accounts, announcements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.keystore import minion_key
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.account import BEGAN, accounts
from saltext_ha.replication.placement import Stored, accepted_keys
from saltext_ha.replication.record import DELETED, Record, Value

Announce = Callable[[str, dict[str, Any]], None]

# Shown to people as the author: a minion that knocks, an operator whom Salt does not name.
MINION = "minion"
OPERATOR = "operator"


class Writer:
    """
    Writes to one replica; inside a transaction only, unless a method says otherwise.

    :param name: this master's name, written into values for people to read.
    :param announce: called with tag and data of events for reactors.
    """

    def __init__(
        self, replica: Replica, name: str, clock: Callable[[], float], announce: Announce
    ) -> None:
        self.clock, self.name, self.announce = clock, name, announce
        self._replica = replica

    def value(self, state: str, by: str = "") -> Value:
        """A value written now, under the next dot of this node."""
        return Value(self._replica.next_dot(), state, self.clock(), by, self.name)

    def explain(
        self, minion_id: str, before: Mapping[bytes, Record], after: Mapping[bytes, Record]
    ) -> None:
        """Write accounts into the history, and announce a conflict that begins."""
        for account in accounts(before, after):
            self._replica.history.explain(minion_id, account, self.clock())
            if account.kind == BEGAN:
                accepted = accepted_keys(after.values())
                shown = [minion_key.show(key, short=False) for key in accepted]
                self.announce("conflict", {"id": minion_id, "fingerprints": shown})

    def announce_key(self, minion_id: str, before: Stored, after: Stored) -> None:
        """Announce that an id's key moved from *before* to *after*; outside a transaction."""
        state, key = after.slot or (DELETED, before.key)
        data = {
            "id": minion_id,
            "act": state,
            "before": before.state,
            "fingerprint": minion_key.show(key, short=False) if key else None,
            "master": self.name,
        }
        self.announce(f"key/{state}", data)
