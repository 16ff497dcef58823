"""``ha.keys``: every key on every master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saltext_ha.keystore import minion_key
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys
from saltext_ha.sync.group import Group
from saltext_ha.transport.control_server import Command


class Keys:
    def __init__(self, group: Group, core: Core) -> None:
        self._group, self._core = group, core

    def commands(self) -> dict[str, Command]:
        return {"keys": self.keys}

    async def keys(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The table of ``ha.keys``: every id that matches, on every master."""
        glob = str(payload.get("glob", "*"))
        everywhere, errors = await self._group.shown_everywhere({"glob": glob})
        conflicts = await self._core.run(self._conflicts)
        masters = [self._group.name, *sorted({*everywhere, *errors} - {self._group.name})]
        rows = await asyncio.to_thread(_rows, everywhere, conflicts, masters)
        differ = any(not row["same"] for row in rows)
        return {
            "kind": "keys",
            "masters": masters,
            "keys": rows,
            "unknown": errors,
            "retcode": 2 if errors else 1 if differ else 0,
        }

    def _conflicts(self) -> dict[str, list[bytes]]:
        """Each id in conflict → its accepted keys, also those that no store shows."""
        replica = self._core.replica
        return {i: accepted_keys(replica.get(i).values()) for i in replica.conflicts()}


def _rows(
    everywhere: Mapping[str, Mapping[str, Stored]],
    conflicts: Mapping[str, Iterable[bytes]],
    masters: Sequence[str],
) -> list[dict[str, Any]]:
    """
    A row for each id and key.

    :param everywhere: what each master that answered shows. :param masters: all of them.
    """
    rows = []
    for minion_id in sorted({minion_id for shown in everywhere.values() for minion_id in shown}):
        stored = {name: shown.get(minion_id, ABSENT) for name, shown in everywhere.items()}
        there = {key for one in stored.values() for key in one.keys}
        for key in sorted(there.union(conflicts.get(minion_id, ()))):
            states: dict[str, str | None] = {
                name: stored[name].state_of(key) if name in stored else "unknown"
                for name in masters
            }
            same = len(set(states.values())) == 1 and "unknown" not in states.values()
            rows.append(
                {
                    "id": minion_id,
                    "fingerprint": minion_key.show(key, short=False),
                    "states": states,
                    "same": same,
                    "conflict": minion_id in conflicts,
                }
            )
    return rows
