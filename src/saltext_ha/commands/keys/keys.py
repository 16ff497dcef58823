"""``ha.keys``: every key on every master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saltext_ha.common.batches import batches
from saltext_ha.keystore import minion_key
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys
from saltext_ha.sync.group import Group


async def keys(group: Group, core: Core, payload: dict[str, Any]) -> dict[str, Any]:
    """The table of ``ha.keys``: every id that matches, on every master."""
    glob = str(payload.get("glob", "*"))
    everywhere, errors = await group.shown_everywhere({"glob": glob})
    ids = {minion_id for shown in everywhere.values() for minion_id in shown}
    conflicts: dict[str, list[bytes]] = {}
    for some in batches(ids.intersection(await core.run(core.replica.conflicts))):
        conflicts |= await core.run(_accepted, core.replica, some)
    masters = [group.name, *sorted({*everywhere, *errors} - {group.name})]
    rows = await asyncio.to_thread(_rows, sorted(ids), everywhere, conflicts, masters)
    differ = any(row["conflict"] or not row["same"] for row in rows)
    nobody = glob != "*" and not rows  # a caller that names minions expects some
    return {
        "kind": "keys",
        "match": glob,
        "masters": masters,
        "keys": rows,
        "unknown": errors,
        "retcode": 2 if errors else 1 if differ or nobody else 0,
    }


def _accepted(replica: Replica, ids: Iterable[str]) -> dict[str, list[bytes]]:
    """Each of *ids* → its accepted keys, also those that no store shows."""
    records = replica.records_of(ids)
    return {minion_id: accepted_keys(known.values()) for minion_id, known in records.items()}


def _rows(
    ids: Iterable[str],
    everywhere: Mapping[str, Mapping[str, Stored]],
    conflicts: Mapping[str, Iterable[bytes]],
    masters: Sequence[str],
) -> list[dict[str, Any]]:
    """
    A row for each key of each of *ids*.

    :param everywhere: what each master that answered shows.
    :param conflicts: the accepted keys of those of *ids* that are in conflict.
    :param masters: all masters, also those that did not answer.
    """
    rows = []
    for minion_id in ids:
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
