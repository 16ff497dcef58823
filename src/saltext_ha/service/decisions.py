"""What operators decide: ``ha.resolve``, ``ha.restore``, ``ha.release``, ``ha.refill``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from saltext_ha import minion_key
from saltext_ha.errors import HaError
from saltext_ha.history import VIA
from saltext_ha.observer import OPERATOR
from saltext_ha.replication.placement import ABSENT, accepted_keys, place
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED, Record
from saltext_ha.service.actors import name
from saltext_ha.service.group import Command, Group
from saltext_ha.service.key_rows import NO_KEY, change_row, key_text, text

GLOB = re.compile(r"[*?\[]")
SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


class Decisions:
    """Commands that decide about keys."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of these."""
        return {
            "resolve": self.resolve,
            "restore": self.restore,
            "release": self.release,
            "refill": self.refill,
        }

    async def resolve(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.resolve``: of several accepted keys of an id one stays, the others are deleted."""
        core = self._group.service.core
        minion_id = str(payload.get("minion"))
        records = await core.run(core.replica.get, minion_id)
        accepted = accepted_keys(records.values())
        if len(accepted) < 2:
            raise HaError(
                f"{minion_id} is not in conflict; ha.status lists the ids that are"
                if records
                else f"no key of {minion_id!r} is known here"
            )
        right = minion_key.find(accepted, str(payload.get("fingerprint")))
        states = {key: ACCEPTED if key == right else DELETED for key in accepted}
        return await self._decide(minion_id, records, states, payload, "ha.resolve")

    async def restore(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.restore``: deleted or rejected keys are accepted again, everywhere."""
        core = self._group.service.core
        minion = str(payload.get("minion"))
        if GLOB.search(minion):
            return await self._restore_many(minion, payload)
        records = await core.run(core.replica.get, minion)
        key = _revoked_key(minion, records, str(payload.get("fingerprint") or ""))
        return await self._decide(minion, records, {key: ACCEPTED}, payload, "ha.restore")

    async def _restore_many(self, glob: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Every id that matches, and was revoked since then; those in doubt are left, and named."""
        core = self._group.service.core
        if payload.get("fingerprint"):
            raise HaError("a fingerprint belongs to one minion: name that, not a glob")
        since = time.time() - seconds(payload.get("since") or 0)
        if not payload.get("since"):
            raise HaError(f"{glob!r} is a glob: say since when, for instance since=2h")
        recent: dict[str, list[bytes]] = {}
        for record in await core.run(core.replica.revoked, glob):
            if max(value.at for value in record.values) >= since:
                recent.setdefault(record.minion_id, []).append(record.fingerprint)
        plans, notes = [], []
        for minion_id, keys in recent.items():
            records = await core.run(core.replica.get, minion_id)
            wanted = minion_key.show(keys[0], short=False) if len(keys) == 1 else ""
            try:
                key = _revoked_key(minion_id, records, wanted)
                plans.append((minion_id, records, {key: ACCEPTED}))
            except HaError as exc:
                notes.append(f"left as it is: {exc}")
        changes: list[dict[str, Any]] = []
        answer: dict[str, Any] = self._answer([], payload)
        for done, (minion_id, records, states) in enumerate(plans):
            try:
                answer = await self._decide(minion_id, records, states, payload, "ha.restore")
            except HaError as exc:
                notes.append(f"{len(plans) - done} ids from {minion_id} on are left: {exc}")
                break
            changes += answer["changes"]
            notes += answer["notes"]
        return {**answer, "changes": changes, "notes": notes, "retcode": 1 if notes else 0}

    async def release(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.release``: believe what the key store shows, though it was held back."""
        core = self._group.service.core
        held = await core.run(self._held)
        if not payload.get("test"):
            await core.release(_signed(payload, "ha.release"))
        return self._answer(
            [change_row("all", i, f"held, {known}", shown) for i, known, shown in held], payload
        )

    async def refill(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.refill``: bring this master's key store back to what is known, instead."""
        core, here = self._group.service.core, self._group.service.config.name
        held = await core.run(self._held)
        if not held and not core.keeper.holds.doubt:
            raise HaError(f"nothing is held on {here}: its key store is as it should be")
        if not payload.get("test"):
            await core.refill()
        return self._answer(
            [change_row(here, i, shown, known) for i, known, shown in held], payload
        )

    def _held(self) -> list[tuple[str, str, str]]:
        """(id, what is known of it, what the store shows) of all that is held on this master."""
        core = self._group.service.core
        found = []
        for minion_id in core.replica.held():
            known = place(core.replica.get(minion_id).values(), ABSENT)
            content = core.keeper.store.read(minion_id)
            shown = text(content.stored) or NO_KEY if content else "unreadable"
            found.append((minion_id, text(known) or NO_KEY, shown))
        return found

    async def _decide(
        self,
        minion_id: str,
        records: Mapping[bytes, Record],
        states: Mapping[bytes, str],
        payload: Mapping[str, Any],
        command: str,
    ) -> dict[str, Any]:
        overruled = set()
        if not payload.get("test"):
            by = _signed(payload, command)
            changed = await self._group.service.core.decide(minion_id, states, by, records)
            overruled = {r.fingerprint for r in changed if r.state != states[r.fingerprint]}
        changes = [
            change_row("all", minion_id, key_text(records[key].state, key), key_text(state, key))
            for key, state in states.items()
            if records[key].state != state and key not in overruled
        ]
        answer = self._answer(changes, payload)
        if overruled:
            answer["notes"].append(
                f"{minion_id}: another decision arrived at the same moment, and stands against "
                f"this one: salt-run ha.history {minion_id}. If this one is right, run it again"
            )
            answer["retcode"] = 1
        return answer

    def _answer(self, changes: list[dict[str, Any]], payload: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": "sync",
            "test": bool(payload.get("test")),
            "changes": changes,
            "conflicts": [],
            "notes": [],
            "unreachable": {
                name: link.error for name, link in self._group.service.links.items() if not link.up
            },
            "retcode": 0,
        }


def seconds(text: Any) -> float:
    """
    A span of time: seconds, or a number with s, m, h or d.

    :raises HaError: it is none.
    """
    found = SPAN.fullmatch(str(text))
    if not found:
        raise HaError(f"{text!r} is no span of time; takes for instance 90s, 30m, 2h, 1d")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2] or "s"]


def _revoked_key(minion_id: str, records: Mapping[bytes, Record], wanted: str = "") -> bytes:
    """
    The one deleted or rejected key of an id that can be accepted again.

    :raises HaError: there is none, or several, or another key is accepted.
    """
    revoked = [
        key
        for key, record in records.items()
        if any(value.state in (DELETED, REJECTED) for value in record.values)
    ]
    if not revoked:
        raise HaError(f"no deleted or rejected key of {minion_id!r} is known here")
    if not wanted and len(revoked) > 1:
        shown = ", ".join(minion_key.show(key) for key in sorted(revoked))
        raise HaError(f"several keys of {minion_id} were revoked, name one: {shown}")
    key = minion_key.find(revoked, wanted) if wanted else revoked[0]
    others = [k for k in accepted_keys(records.values()) if k != key]
    if others:
        raise HaError(
            f"{minion_id} is accepted with another key ({minion_key.show(others[0])}); "
            f"delete that first: salt-key -d {minion_id}"
        )
    return key


def _signed(payload: Mapping[str, Any], command: str) -> str:
    """By whom a decision was made, and with which command."""
    return f"{name(payload.get('by')) or OPERATOR}{VIA}{command}"
