"""Where the keys of masters differ, and what mends it: ``ha.sync``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from saltext_ha.commands.keys import key_pages
from saltext_ha.commands.keys.key_section import KeySection
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.reconciler.core import Core
from saltext_ha.replication import preview
from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import Record
from saltext_ha.sync import antientropy, messages
from saltext_ha.sync.answers import RECORDS
from saltext_ha.sync.group import LEFT, MEANWHILE, SLOW, Group
from saltext_ha.sync.key_rows import moved_row


class Differences:
    def __init__(self, group: Group, core: Core, keys: KeySection) -> None:
        self._group, self._core, self._keys = group, core, keys

    async def knowledge(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A page of all that this master knows of keys, for ``ha.join test=True``."""
        core = self._core
        try:
            after = bytes.fromhex(str(payload.get("after", "")))
        except ValueError:
            raise InvalidRecord("no page ends there") from None
        if not after:
            await core.scan()
        packed = await core.run(key_pages.page, core.replica, after)
        return {**key_pages.side(core), "page": packed.hex()}

    async def sync(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.sync``: what differs where; unless ``test``, also makes these changes."""
        test = bool(payload.get("test"))
        await self._core.scan()
        changes, conflicts, unreachable = await self._plan()
        notes: list[str] = []
        if not test:
            await self._core.apply()
            for name, link in list(self._group.links.items()):
                if name in unreachable:
                    continue
                try:
                    await link.exchange()
                except HaError as exc:
                    unreachable[name] = str(exc)
            if changes:
                changes, notes, lost = await self._made(changes)
                unreachable |= lost
        return {
            "kind": "sync",
            "test": test,
            "changes": changes,
            "conflicts": await self._group.conflicts(sorted(conflicts), unreachable),
            "unreachable": unreachable,
            "notes": notes,
            "retcode": 2 if unreachable else 1 if conflicts or notes else 0,
        }

    async def _made(
        self, planned: list[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
        """
        Which of the planned changes were made, a note for every master that left some, and master →
        why it does not say.
        """
        still, _, lost = await self._plan()
        gone = {change["master"] for change in planned}.difference(self._group.masters)
        lost |= dict.fromkeys(gone, LEFT)
        left = {(change["master"], change["id"]) for change in still}
        made = [
            change
            for change in planned
            if (change["master"], change["id"]) not in left and change["master"] not in lost
        ]
        notes = []
        modes, _ = await self._group.modes() if left else ({}, {})
        for name, count in sorted(Counter(master for master, _ in left).items()):
            mode = modes.get(name, "enforce")
            why = f"its mode is {mode}" if mode != "enforce" else "see salt-run ha.status"
            notes.append(f"{name}: {count} not changed: {why}")
        return made, notes, lost

    async def _plan(self) -> tuple[list[dict[str, Any]], set[str], dict[str, str]]:
        """
        The changes that anti-entropy with every peer would make, the ids in conflict, and master →
        why it was not reached. Stores nothing.
        """
        core = self._core
        merged: dict[str, dict[bytes, Record]] = {}
        unreachable = self._group.unasked()
        if core.unseen:
            unreachable[self._group.name] = core.unseen
        lagging: set[str] = set()

        def learn(records: Iterable[Record]) -> None:
            for record in records:
                preview.add(merged.setdefault(record.minion_id, {}), [record])

        contacts = dict(self._group.contacts)
        for name, contact in contacts.items():
            try:
                buckets = await antientropy.differing_buckets(
                    core.replica.records, RECORDS, contact
                )
                peer = contact.within(SLOW)
                comparison = antientropy.Comparison(core.replica, core.run, peer)
                async for answer in comparison.answers(buckets):
                    learn(messages.read_records(answer.get("records"))[0])
                    learn(await core.run(antientropy.wanted, core.replica, answer.get("want")))
                # Even if the records agree, a store may be behind: paused, or not writable.
                lagging |= await self._keys.differing_ids(contact)
            except HaError as exc:
                unreachable[name] = str(exc)
        lagging.update(await core.run(core.replica.dirty))
        ids = sorted({*merged, *lagging})

        def own() -> list[Record]:
            return [
                record for i in core.replica.brought(ids) for record in core.replica.get(i).values()
            ]

        learn(await core.run(own))
        came = [name for name in self._group.contacts if name not in contacts]
        unreachable |= dict.fromkeys(came, MEANWHILE)
        tables = await self._group.keys_of(ids, unreachable)
        changes = []
        conflicts = set()
        for minion_id in ids:
            records = merged.get(minion_id, {})
            if len(accepted_keys(records.values())) > 1:
                conflicts.add(minion_id)
            for name, stored in tables[minion_id].items():
                wanted = preview.settled(records, stored, self._one_denied(name))
                if wanted != stored:
                    changes.append(moved_row(name, minion_id, stored, wanted))
        return changes, conflicts, unreachable

    def _one_denied(self, name: str) -> bool:
        """Whether the store of master *name* keeps one denied key per id, as files do."""
        if name == self._group.name:
            return self._core.keeper.store.one_denied
        contact = self._group.contacts.get(name)
        return contact.greeting.one_denied if contact else True
