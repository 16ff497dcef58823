"""Where masters differ and what mends it: ``ha.check_consistency`` and ``ha.sync``."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha import minion_key
from saltext_ha.consistency import compare
from saltext_ha.errors import HaError, InvalidRecord
from saltext_ha.replication.outlook import settled
from saltext_ha.replication.placement import Stored, accepted_keys
from saltext_ha.replication.record import Record, merge
from saltext_ha.service import antientropy, knowledge
from saltext_ha.service.antientropy import PLACEMENTS, RECORDS
from saltext_ha.service.group import MAX_SHOWN, SLOW, Command, Group
from saltext_ha.service.link import Link


class Differences:
    """Commands that compare the masters."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of these."""
        return {"check": self.check, "sync": self.sync, "knowledge": self.knowledge}

    async def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.check_consistency``."""
        service = self._group.service
        nonce = secrets.token_bytes(32)
        await service.core.scan()
        own, (answers, errors), summary, (summaries, _) = await asyncio.gather(
            self._group.snapshot(nonce),
            self._group.ask("snapshot", {"nonce": nonce}, SLOW),
            self._group.summary(),
            self._group.ask("summary", {}, service.config.peer_timeout),
        )
        snapshots: dict[str, Mapping[str, Any] | None] = {service.config.name: own}
        snapshots.update({name: answers.get(name) for name in {*answers, *errors}})
        extra = {"keys": await self._key_section(errors)}
        groups = {name: answer.get("group") for name, answer in summaries.items()}
        if set(groups.values()) - {service.config.group}:
            extra["group"] = self._group_section(groups, errors)
        held = _held({service.config.name: summary, **summaries})
        if held:
            extra["held"] = compare.section(held, errors)
        result = compare.compare(snapshots, errors, extra)
        return {**result, "retcode": compare.exit_code(result)}

    def _group_section(
        self, groups: Mapping[str, Any], errors: Mapping[str, str]
    ) -> dict[str, Any]:
        """Masters that trust each other and are configured for different groups."""
        config = self._group.service.config
        values: dict[str, Any] = {config.name: config.group, **groups}
        values.update({name: {"unknown": why} for name, why in errors.items()})
        fix = "make ha: group: the same in the configuration of all, restart salt-master there"
        return compare.section([{"path": "ha:group", "values": values, "fix": fix}], errors)

    async def _key_section(self, errors: dict[str, str]) -> dict[str, Any]:
        service, replica = self._group.service, self._group.service.core.replica
        ids: set[str] = set(await service.core.run(replica.conflicts))
        for name, link in list(service.links.items()):
            if name in errors:
                continue
            try:
                ids |= await self._differing_ids(link)
            except HaError as exc:
                errors[name] = str(exc)
        tables = await self._group.keys_of(sorted(ids)[:MAX_SHOWN])
        conflicts = set(await service.core.run(replica.conflicts))
        differences = []
        for minion_id, stored in sorted(tables.items()):
            values: dict[str, Any] = {
                name: {"absent": True} if not s.slot else f"{s.state} {minion_key.show(s.slot[1])}"
                for name, s in stored.items()
            }
            values.update({name: {"unknown": why} for name, why in errors.items()})
            fix = (
                f"salt-run ha.resolve {minion_id} FINGERPRINT (of the right minion's key)"
                if minion_id in conflicts
                else "salt-run ha.sync"
            )
            differences.append({"path": minion_id, "values": values, "fix": fix})
        section = compare.section(differences, errors)
        counts = await service.core.run(replica.counts)
        return {
            **section,
            "counts": {"differ": len(ids), "of": sum(counts.values()) - counts.get("denied", 0)},
        }

    async def _differing_ids(self, link: Link) -> set[str]:
        """Ids whose place in the store differs between this master and a peer."""
        core = self._group.service.core
        buckets = await antientropy.differing_buckets(
            core.replica.placements, PLACEMENTS, link.call
        )
        ids: set[str] = set()
        for group in antientropy.chunks(buckets, MAX_SHOWN):
            theirs = _placed(await link.call("placed", {"buckets": group}, SLOW))
            ours = _placed(
                await core.run(antientropy.answer_placed, core.replica, {"buckets": group})
            )
            ids |= {entry[0] for entry in ours ^ theirs}
        return ids

    async def knowledge(self, payload: dict[str, Any]) -> dict[str, Any]:
        """All that this master knows of keys, page by page: for ``ha.join test=True``."""
        service = self._group.service
        core = service.core
        try:
            after = bytes.fromhex(str(payload.get("after", "")))
        except ValueError:
            raise InvalidRecord("no page ends there") from None
        if not after:
            await core.scan()
        packed = await core.run(knowledge.page, core.replica, after)
        return {
            "writes_not": service.notes.get("paused", "") or service.only_reports,
            "one_denied": core.keeper.store.one_denied,
            "page": packed.hex(),
        }

    async def sync(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.sync``: what would be changed where, and, unless ``test``, that it is done."""
        service = self._group.service
        test = bool(payload.get("test"))
        await service.core.scan()
        changes, conflicts, unreachable = await self._plan()
        notes: list[str] = []
        if not test:
            await service.core.apply()
            for name, link in list(service.links.items()):
                if name in unreachable:
                    continue
                try:
                    await link.exchange()
                except HaError as exc:
                    unreachable[name] = str(exc)
            if changes:
                changes, notes = await self._made(changes)
        return {
            "kind": "sync",
            "test": test,
            "changes": changes,
            "conflicts": await self._group.conflicts(sorted(conflicts)),
            "unreachable": unreachable,
            "notes": notes,
            "retcode": 2 if unreachable else 1 if conflicts or notes else 0,
        }

    async def _made(self, planned: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
        """Which of the planned changes were made, and a note for every master that left some."""
        service = self._group.service
        still, _, _ = await self._plan()
        left = {(change["master"], change["id"]) for change in still}
        made = [change for change in planned if (change["master"], change["id"]) not in left]
        notes = []
        for name, count in sorted(Counter(master for master, _ in left).items()):
            link = service.links.get(name)
            mode = link.info.get("mode") if link else service.mode
            why = f"its mode is {mode}" if mode != "enforce" else "see salt-run ha.status"
            notes.append(f"{name}: {count} not changed: {why}")
        return made, notes

    async def _plan(self) -> tuple[list[dict[str, Any]], set[str], dict[str, str]]:
        """What anti-entropy with every peer would change: computed here, nothing is stored."""
        service, core = self._group.service, self._group.service.core
        merged: dict[str, dict[bytes, Record]] = {}
        unreachable: dict[str, str] = {}
        lagging: set[str] = set()

        def add(records: Iterable[Record]) -> None:
            for record in records:
                known = merged.setdefault(record.minion_id, {})
                ours = known.get(record.fingerprint)
                known[record.fingerprint] = merge(ours, record) if ours else record

        for name, link in list(service.links.items()):
            try:
                buckets = await antientropy.differing_buckets(
                    core.replica.records, RECORDS, link.call
                )
                for group in await core.run(antientropy.portions, buckets, core.replica):
                    question = await core.run(antientropy.question, core.replica, group)
                    answer = await link.call("compare", question, SLOW)
                    add(antientropy.read_records(answer.get("records"))[0])
                    add(await core.run(antientropy.wanted, core.replica, answer.get("want")))
                # Where the records agree, a store may still lag: paused, or not writable.
                lagging |= await self._differing_ids(link)
            except HaError as exc:
                unreachable[name] = str(exc)
        lagging.update(await core.run(core.replica.dirty))
        ids = sorted({*merged, *lagging})

        def own() -> list[Record]:
            return [record for i in ids for record in core.replica.get(i).values()]

        add(await core.run(own))
        tables = await self._group.keys_of(ids)
        changes = []
        conflicts = set()
        for minion_id in ids:
            records = merged.get(minion_id, {})
            if len(accepted_keys(records.values())) > 1:
                conflicts.add(minion_id)
            for name, stored in tables[minion_id].items():
                wanted = settled(records, stored, self._one_denied(name))
                if wanted != stored:
                    changes.append(change_row(name, minion_id, stored, wanted))
        return changes, conflicts, unreachable

    def _one_denied(self, name: str) -> bool:
        """Whether that master's store holds one denied key an id only; files do."""
        service = self._group.service
        if name == service.config.name:
            return service.core.keeper.store.one_denied
        link = service.links.get(name)
        return bool(link.info.get("one_denied", True)) if link else True


def _held(summaries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Keys that are held back differ nowhere else: of what is held no other master hears."""
    return [
        {
            "path": name,
            "values": {name: f"{summary['held']} keys"},
            "fix": f"on {name}: salt-run ha.refill; or, if it was meant, salt-run ha.release",
        }
        for name, summary in sorted(summaries.items())
        if isinstance(summary.get("held"), int) and summary["held"] > 0
    ]


def change_row(master: str, minion_id: str, before: Stored, after: Stored) -> dict[str, Any]:
    """One planned change as ``ha.sync`` and ``ha.join`` print it."""
    gone = "deleted" if before.slot or before.denied else "absent"
    return {
        "master": master,
        "id": minion_id,
        "from": _text(before) or "absent",
        "to": _text(after) or gone,
    }


def _placed(answer: Mapping[str, Any]) -> set[tuple[str, str, bytes]]:
    return {(i, state, key) for i, state, key in answer.get("placed", ())}


def _text(stored: Stored) -> str:
    """``accepted 3a:9f:…, denied 77:01:…``; empty where the store shows nothing."""
    shown = [f"{stored.state} {minion_key.show(stored.slot[1])}"] if stored.slot else []
    shown += [f"denied {minion_key.show(key)}" for key in sorted(stored.denied)]
    return ", ".join(shown)
