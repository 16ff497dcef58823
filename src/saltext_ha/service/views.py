"""
What operators ask the engine, and what engines ask each other for it.

Each command gathers from this master and, at once, from every peer; a peer that does not answer
is *unknown* with its reason, and never counts as being the same.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from saltext_ha import minion_key
from saltext_ha.consistency import compare, snapshot
from saltext_ha.errors import HaError, InvalidRecord
from saltext_ha.peering.trust import Peer
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys, place
from saltext_ha.replication.record import Record, merge
from saltext_ha.service import antientropy
from saltext_ha.service.antientropy import PLACEMENTS, RECORDS
from saltext_ha.service.link import Link

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

MAX_SHOWN = 1000
SLOW = 30.0  # seconds that a peer may take for an answer that needs work

Command = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
PeerHandler = Callable[[Peer, dict[str, Any]], Awaitable[dict[str, Any]]]


class Views:
    """The commands of one engine."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def commands(self) -> dict[str, Command]:
        """What the control socket answers."""
        return {
            "status": self.status,
            "keys": self.keys,
            "check": self.check,
            "sync": self.sync,
            "peers": self.peers,
            "release": self.release,
        }

    def for_peers(self) -> dict[str, PeerHandler]:
        """What peers may ask for these commands."""

        async def summary(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return await self.summary()

        async def shown(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return {"keys": await self.shown(payload)}

        async def snap(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            nonce = payload.get("nonce")
            if not isinstance(nonce, bytes) or len(nonce) < 16:
                raise InvalidRecord("nonce is not 16 bytes or more")
            return await self.snapshot(nonce)

        return {"summary": summary, "keys": shown, "snapshot": snap}

    # -- this master

    async def summary(self) -> dict[str, Any]:
        """Counts, digests and troubles of this master."""
        service, core = self._service, self._service.core

        def read() -> dict[str, Any]:
            counts = core.replica.counts()
            return {
                "accepted": counts.get("accepted", 0),
                "pending": counts.get("pending", 0),
                "rejected": counts.get("rejected", 0),
                "denied": counts.get("denied", 0),
                "conflicts": core.replica.conflicts()[:MAX_SHOWN],
                "held": len(core.replica.held()),
                "dirty": len(core.replica.dirty()),
            }

        notes = list(service.notes.values())
        if core.problem:
            notes.append(core.problem)
        if core.keeper.refused:
            some = ", ".join(sorted(core.keeper.refused)[:5])
            notes.append(f"{len(core.keeper.refused)} key files are no keys and stay here: {some}")
        return {
            **service.describe(),
            **await core.run(read),
            "root": core.replica.records.root,
            "placements": core.replica.placements.root,
            "notes": notes,
        }

    async def shown(self, payload: Mapping[str, Any]) -> list[list[Any]]:
        """What the store shows: ``[id, state, fingerprint, [denied, …]]`` by glob or by ids."""
        replica = self._service.core.replica
        ids, glob = payload.get("ids"), payload.get("glob", "*")
        if not isinstance(glob, str) or not (ids is None or isinstance(ids, list)):
            raise InvalidRecord("takes a glob or a list of ids")

        def read() -> list[list[Any]]:
            if ids is None:
                items: Iterable[tuple[str, Stored]] = replica.placed(glob)
            else:
                items = [(str(i), replica.applied(str(i)).stored) for i in ids[: 10 * MAX_SHOWN]]
            return [[i, s.state, s.key, sorted(s.denied)] for i, s in items if s != ABSENT]

        return await self._service.core.run(read)

    async def snapshot(self, nonce: bytes) -> dict[str, Any]:
        """What this master is, for check_consistency."""
        service = self._service
        return await asyncio.get_running_loop().run_in_executor(
            None, snapshot.of_this_master, service.config.name, service.opts, nonce
        )

    # -- the group

    async def status(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The table of ``ha.status``."""
        service = self._service
        own, (answers, errors) = await asyncio.gather(
            self.summary(), self._ask("summary", {}, service.config.peer_timeout)
        )
        masters = [self._row(service.config.name, own, None, 0, own=True)]
        for name, link in sorted(service.links.items()):
            answer = answers.get(name)
            behind = await self._behind(link, own, answer) if answer else None
            seen = None if link.seen is None else round(time.monotonic() - link.seen, 1)
            masters.append(self._row(name, answer, seen, behind, errors.get(name, "")))
        conflicts = sorted({c for a in (own, *answers.values()) for c in _texts(a, "conflicts")})
        held = {
            row["name"]: row["held"]
            for row in masters
            if isinstance(row["held"], int) and row["held"]
        }
        running = [row for row in masters if row["state"] == "running"]
        level = [row for row in running if row["behind"] == 0]
        ok = (
            len(level) == len(masters)
            and not conflicts
            and not held
            and not any(row["note"] for row in masters)
        )
        unknown = any(row["state"] == "unknown" for row in masters)
        return {
            "kind": "status",
            "group": service.config.group,
            "state": "ok" if ok else "degraded",
            "mode": service.config.mode,
            "tolerates": max(0, len(level) - 1),
            "masters": masters,
            "conflicts": await self._conflicts(conflicts),
            "held": [{"master": name, "keys": count} for name, count in held.items()],
            "refused": service.listener.refused,
            "notes": [f"{file}: {why}" for file, why in service.trust.problems().items()],
            "retcode": 2 if unknown else 0 if ok else 1,
        }

    @staticmethod
    def _row(
        name: str,
        summary: Mapping[str, Any] | None,
        seen: float | None,
        behind: int | None,
        error: str = "",
        own: bool = False,
    ) -> dict[str, Any]:
        answer = summary or {}
        root = answer.get("root")
        notes = [error, *_texts(answer, "notes")]
        if answer.get("dirty"):
            notes.append(f"{answer['dirty']} keys still to be applied")
        return {
            "name": name,
            "self": own,
            "state": "running" if summary else "unknown",
            "salt": answer.get("salt"),
            "accepted": answer.get("accepted"),
            "pending": answer.get("pending"),
            "rejected": answer.get("rejected"),
            "denied": answer.get("denied"),
            "digest": root.hex()[:6] if isinstance(root, bytes) else None,
            "behind": behind,
            "held": answer.get("held"),
            "seen": seen,
            "note": "; ".join(note for note in notes if note),
        }

    async def _behind(
        self, link: Link, own: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> int | None:
        """In how many buckets the peer differs from this master: mostly one key each."""
        replica = self._service.core.replica
        if answer.get("root") == own["root"] and answer.get("placements") == own["placements"]:
            return 0
        try:
            records = await antientropy.differing_buckets(replica.records, RECORDS, link.call)
            placed = await antientropy.differing_buckets(replica.placements, PLACEMENTS, link.call)
        except HaError:
            return None
        return len({*records, *placed})

    async def _conflicts(self, ids: list[str]) -> list[dict[str, Any]]:
        keys = await self._keys_of(ids) if ids else {}
        return [
            {
                "id": minion_id,
                "keys": {
                    name: f"{stored.state} {minion_key.show(stored.key)}" if stored.key else None
                    for name, stored in keys.get(minion_id, {}).items()
                },
            }
            for minion_id in ids
        ]

    async def keys(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The table of ``ha.keys``: every id that matches, on every master."""
        service = self._service
        glob = str(payload.get("glob", "*"))
        answers, errors = await self._ask("keys", {"glob": glob}, SLOW)
        tables = {service.config.name: _table(await self.shown({"glob": glob}))}
        tables.update({name: _table(answer.get("keys")) for name, answer in answers.items()})
        ids = sorted({minion_id for table in tables.values() for minion_id in table})
        conflicts = set(await service.core.run(service.core.replica.conflicts))
        masters = [service.config.name, *sorted(service.links)]
        rows = []
        for minion_id in ids:
            stored = {name: table.get(minion_id, ABSENT) for name, table in tables.items()}
            for key in sorted(_keys(stored.values())):
                states: dict[str, str | None] = {
                    name: _state_of(stored[name], key) if name in stored else "unknown"
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
                        "note": "",
                    }
                )
        differ = any(not row["same"] for row in rows)
        return {
            "kind": "keys",
            "masters": masters,
            "keys": rows,
            "unknown": errors,
            "retcode": 2 if errors else 1 if differ else 0,
        }

    async def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.check_consistency``."""
        service = self._service
        nonce = secrets.token_bytes(32)
        await service.core.scan()
        own, (answers, errors) = await asyncio.gather(
            self.snapshot(nonce), self._ask("snapshot", {"nonce": nonce}, SLOW)
        )
        snapshots: dict[str, Mapping[str, Any] | None] = {service.config.name: own}
        snapshots.update({name: answers.get(name) for name in service.links})
        extra = {"keys": await self._key_section(errors)}
        result = compare.compare(snapshots, errors, extra)
        return {**result, "retcode": compare.exit_code(result)}

    async def _key_section(self, errors: dict[str, str]) -> dict[str, Any]:
        service, replica = self._service, self._service.core.replica
        ids: set[str] = set(await service.core.run(replica.conflicts))
        for name, link in service.links.items():
            if name in errors:
                continue
            try:
                ids |= await self._differing_ids(link)
            except HaError as exc:
                errors[name] = str(exc)
        tables = await self._keys_of(sorted(ids)[:MAX_SHOWN])
        conflicts = set(await service.core.run(replica.conflicts))
        differences = []
        for minion_id, stored in sorted(tables.items()):
            values: dict[str, Any] = {
                name: {"absent": True} if not s.slot else f"{s.state} {minion_key.show(s.slot[1])}"
                for name, s in stored.items()
            }
            values.update({name: {"unknown": why} for name, why in errors.items()})
            fix = (
                f"two keys are accepted: keep the right one, delete the id with salt-key -d "
                f"{minion_id}, and accept the right minion again"
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
        core = self._service.core
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

    async def _keys_of(self, ids: list[str]) -> dict[str, dict[str, Stored]]:
        """For each id what every master that answers shows for it."""
        answers, _ = await self._ask("keys", {"ids": ids}, SLOW)
        tables = {self._service.config.name: _table(await self.shown({"ids": ids}))}
        tables.update({name: _table(answer.get("keys")) for name, answer in answers.items()})
        return {
            minion_id: {name: table.get(minion_id, ABSENT) for name, table in tables.items()}
            for minion_id in ids
        }

    async def sync(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.sync``: what would be changed where, and, unless ``test``, that it is done."""
        service = self._service
        test = bool(payload.get("test"))
        await service.core.scan()
        changes, conflicts, unreachable = await self._plan()
        if not test:
            await service.core.apply()
            for name, link in service.links.items():
                if name in unreachable:
                    continue
                try:
                    await link.exchange()
                except HaError as exc:
                    unreachable[name] = str(exc)
        return {
            "kind": "sync",
            "test": test,
            "changes": changes,
            "conflicts": await self._conflicts(sorted(conflicts)),
            "unreachable": unreachable,
            "retcode": 2 if unreachable else 1 if conflicts else 0,
        }

    async def _plan(self) -> tuple[list[dict[str, Any]], set[str], dict[str, str]]:
        """What anti-entropy with every peer would change: computed here, nothing is stored."""
        service, core = self._service, self._service.core
        merged: dict[tuple[str, bytes], Record] = {}
        unreachable: dict[str, str] = {}

        def add(records: Iterable[Record]) -> None:
            for record in records:
                pair = (record.minion_id, record.fingerprint)
                merged[pair] = merge(merged[pair], record) if pair in merged else record

        for name, link in service.links.items():
            try:
                buckets = await antientropy.differing_buckets(
                    core.replica.records, RECORDS, link.call
                )
                for group in antientropy.portions(buckets, core.replica):
                    question = await core.run(antientropy.question, core.replica, group)
                    answer = await link.call("compare", question, SLOW)
                    add(antientropy.read_records(answer.get("records"))[0])
                    add(await core.run(antientropy.wanted, core.replica, answer.get("want")))
            except HaError as exc:
                unreachable[name] = str(exc)
        ids = sorted({i for i, _ in merged} | set(await core.run(core.replica.dirty)))

        def known() -> list[Record]:
            return [record for i in ids for record in core.replica.get(i).values()]

        add(await core.run(known))
        tables = await self._keys_of(ids)
        changes = []
        conflicts = set()
        for minion_id in ids:
            records = [record for (i, _), record in merged.items() if i == minion_id]
            if len(accepted_keys(records)) > 1:
                conflicts.add(minion_id)
            for name, stored in tables[minion_id].items():
                wanted = place(records, stored)
                if wanted.slot != stored.slot:
                    changes.append(
                        {
                            "master": name,
                            "id": minion_id,
                            "from": _slot_text(stored),
                            "to": _slot_text(wanted),
                        }
                    )
        return changes, conflicts, unreachable

    async def peers(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.peers``: whom this master trusts, and how each of them does."""
        service = self._service
        rows = []
        for name, peer in sorted(service.trust.peers().items()):
            link = service.links.get(name)
            seen = None if not link or link.seen is None else round(time.monotonic() - link.seen, 1)
            rows.append(
                {
                    "name": name,
                    "url": peer.url,
                    "fingerprint": peer.fingerprint,
                    "state": "up" if link and link.up else "unknown",
                    "seen": seen,
                    "note": link.error if link else "not connected yet",
                }
            )
        return {
            "kind": "peers",
            "self": {
                "name": service.config.name,
                "url": service.config.url,
                "fingerprint": service.identity.fingerprint,
            },
            "peers": rows,
            "retcode": 2 if any(row["state"] == "unknown" for row in rows) else 0,
        }

    async def release(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.release``: believe that the keys that are held back were really deleted."""
        core = self._service.core
        test = bool(payload.get("test"))
        ids = sorted(await core.run(core.replica.held)) if test else await core.release()
        name = self._service.config.name
        return {
            "kind": "sync",
            "test": test,
            "changes": [
                {"master": "all", "id": i, "from": f"held on {name}", "to": "deleted"} for i in ids
            ],
            "conflicts": [],
            "unreachable": {},
            "retcode": 0,
        }

    async def _ask(
        self, method: str, payload: dict[str, Any], timeout: float
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Ask every peer at once: answers, and reasons of those who gave none."""
        links = self._service.links

        async def ask(link: Link) -> dict[str, Any] | str:
            try:
                return await link.call(method, payload, timeout)
            except HaError as exc:
                return str(exc)

        found = await asyncio.gather(*(ask(link) for link in links.values()))
        answers: dict[str, dict[str, Any]] = {}
        errors: dict[str, str] = {}
        for name, answer in zip(links, found, strict=True):
            if isinstance(answer, str):
                errors[name] = answer
            else:
                answers[name] = answer
        return answers, errors


def _table(raw: Any) -> dict[str, Stored]:
    """What a master shows, as :meth:`Views.shown` puts it."""
    table = {}
    for minion_id, state, key, denied in raw or ():
        table[str(minion_id)] = Stored(state, key, frozenset(denied))
    return table


def _placed(answer: Mapping[str, Any]) -> set[tuple[str, str, bytes]]:
    return {(i, state, key) for i, state, key in answer.get("placed", ())}


def _keys(shown: Iterable[Stored]) -> set[bytes]:
    return {key for s in shown for key in (*s.denied, *([s.key] if s.key else []))}


def _state_of(stored: Stored, key: bytes) -> str | None:
    if stored.key == key:
        return stored.state
    return "denied" if key in stored.denied else None


def _slot_text(stored: Stored) -> str:
    return f"{stored.state} {minion_key.show(stored.slot[1])}" if stored.slot else "absent"


def _texts(answer: Mapping[str, Any], name: str) -> list[str]:
    found = answer.get(name)
    return [str(item) for item in found] if isinstance(found, list) else []
