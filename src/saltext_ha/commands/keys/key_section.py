"""Do the masters have the same minion keys in the same states? The section ``keys``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError
from saltext_ha.config.consistency import ConsistencySettings
from saltext_ha.consistency import result
from saltext_ha.consistency.rules import DRIFT, NOTE
from saltext_ha.consistency.sections import KEYS
from saltext_ha.keystore import minion_key
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.sync import antientropy
from saltext_ha.sync.answers import PLACEMENTS
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import MAX_SHOWN, SLOW, Group
from saltext_ha.sync.key_rows import text
from saltext_ha.transport import wire

HELD = (
    "salt-run ha.refill test=True on {masters} lists them; then ha.refill there or, if it was "
    "meant, ha.release"
)
UNSEEN = "its keys are not known; salt-run ha.status says why"
DENIED = (
    "not wrong in itself: somebody has another key than the accepted one; salt-run ha.keys shows "
    "who, salt-key -d ID lets a reinstalled minion in again"
)


class KeySection:
    """Compares digests of what the stores show, then the ids that differ."""

    def __init__(self, group: Group, core: Core) -> None:
        self._group, self._core = group, core

    async def counts(self) -> dict[str, int]:
        """
        How many keys are held, and how many are denied, on this master; ``unseen``: whether what
        its store shows is not known.
        """
        core = self._core

        def read() -> dict[str, int]:
            return {
                "held": core.replica.held.count,
                "denied": core.replica.counts().get("denied", 0),
                "unseen": int(bool(core.unseen)),
            }

        return await core.run(read)

    async def answer(
        self,
        counts: Mapping[str, Mapping[str, int]],
        unreached: dict[str, str],
        settings: ConsistencySettings,
    ) -> dict[str, Any]:
        """
        The section.

        :param counts: of the peers, as :meth:`counts` returns them.
        :param unreached: by master, why it could not be asked; more may be added.
        """
        replica = self._core.replica
        ids: set[str] = set(await self._core.run(replica.conflicts))
        everywhere = {self._group.name: await self.counts(), **counts}
        unseen = {name: UNSEEN for name, one in everywhere.items() if one.get("unseen")}
        for name, contact in list(self._group.contacts.items()):
            if name in unreached or name in unseen:
                continue
            try:
                ids |= await self.differing_ids(contact)
            except HaError as exc:
                unreached[name] = str(exc)
        totals = await self._core.run(replica.counts)
        found = _held(everywhere, unreached)
        unknown = {**unreached, **unseen}
        tables = await self._group.keys_of(sorted(ids)[:MAX_SHOWN], unknown)
        unreached |= {name: why for name, why in unknown.items() if name not in unseen}
        conflicts = set(await self._core.run(replica.conflicts)) if ids else set()
        for minion_id, stored in sorted(tables.items()):
            if minion_id not in conflicts and len({one.slot for one in stored.values()}) < 2:
                ids.discard(minion_id)  # a change that was under way has arrived
                continue
            found.append(_difference(minion_id, stored, unknown, minion_id in conflicts))
        found += _denied(everywhere)
        section = result.of_differences(KEYS, found, unknown, settings)
        amount = sum(totals.values()) - totals.get("denied", 0)
        differ = sum(not settings.ignores(KEYS, minion_id) for minion_id in ids)
        return {**section, "counts": {"differ": differ, "of": amount}}

    async def differing_ids(self, contact: Contact) -> set[str]:
        """Ids whose place in the store differs between this master and a peer."""
        core, peer = self._core, contact.within(SLOW)
        buckets = await antientropy.differing_buckets(core.replica.placements, PLACEMENTS, peer)
        ids: set[str] = set()
        for group in batches(buckets, MAX_SHOWN):
            theirs: set[tuple[str, str, bytes]] = set()
            async for answer in antientropy.placed_there(group, peer):
                theirs |= _placed(answer)
            ours = await core.run(_own, core.replica, group)
            ids |= {entry[0] for entry in ours ^ theirs}
        return ids


def _held(
    counts: Mapping[str, Mapping[str, int]], unreached: Mapping[str, str]
) -> list[dict[str, Any]]:
    values: dict[str, Any] = {name: one.get("held", 0) for name, one in counts.items()}
    masters = ", ".join(sorted(name for name, number in values.items() if number))
    if not masters:
        return []
    values.update({name: {"unknown": why} for name, why in unreached.items()})
    fix = HELD.format(masters=masters)
    return [{"path": "held", "values": values, "severity": DRIFT, "fix": fix}]


def _denied(counts: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    values = {name: one.get("denied", 0) for name, one in counts.items()}
    if not any(values.values()):
        return []
    return [{"path": "denied", "values": values, "severity": NOTE, "fix": DENIED}]


def _difference(
    minion_id: str, stored: Mapping[str, Stored], unreached: Mapping[str, str], conflict: bool
) -> dict[str, Any]:
    values: dict[str, Any] = {name: text(s) or {"absent": True} for name, s in stored.items()}
    values.update({name: {"unknown": why} for name, why in unreached.items()})
    keys = {key for one in stored.values() for key in one.keys}
    accepted = {one.key for one in stored.values() if one.key and one.state == ACCEPTED}
    chosen = " or ".join(minion_key.show(key, short=False) for key in sorted(accepted))
    fix = (
        f"salt-run ha.resolve {minion_id} {chosen or 'FINGERPRINT'} (of the right minion's key)"
        if conflict
        else "salt-run ha.sync"
    )
    return {
        "path": minion_id,
        "values": values,
        "severity": DRIFT,
        "fix": fix,
        "conflict": conflict,
        "keys": {
            minion_key.show(key, short=False): {
                name: one.state_of(key) for name, one in stored.items()
            }
            for key in sorted(keys)
        },
    }


def _own(replica: Replica, buckets: Iterable[int]) -> set[tuple[str, str, bytes]]:
    """What this master's key store shows in *buckets*, as :func:`_placed` reads it of a peer."""
    placed = (each for bucket in buckets for each in replica.placed_in(bucket).items())
    return {(minion_id, *stored.slot) for minion_id, stored in placed if stored.slot}


def _placed(answer: Mapping[str, Any]) -> set[tuple[str, str, bytes]]:
    """
    Read the result of :func:`.answers.answer_placed`.

    :raises InvalidRecord: it makes no sense.
    """
    rows = wire.rows(answer.get("placed", []), "answer about what is placed", str, str, bytes)
    return {(minion_id, state, key) for minion_id, state, key in rows}
