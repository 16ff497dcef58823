"""
What operators decide: ``ha.resolve``, ``ha.restore``, ``ha.release``, ``ha.refill``; and how much
of that is still to be written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saltext_ha.commands.arguments import author, is_glob, span
from saltext_ha.common.batches import BATCH, batches
from saltext_ha.common.errors import HaError
from saltext_ha.health.fitness import counted
from saltext_ha.keystore import minion_key
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.keeper import Decision
from saltext_ha.replication import interpretation
from saltext_ha.replication.placement import ABSENT, accepted_keys, place
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED, Record
from saltext_ha.sync.group import Group
from saltext_ha.sync.key_rows import NO_KEY, change_row, key_text, text

# What to do about held keys, and the argument that confirms ha.release.
CONFIRM = (
    "salt-run ha.refill brings back what the group knows. If {number} are to be deleted on all "
    "masters: salt-run ha.release deletes={count}"
)
NAMED = 3
COUNT_WITHIN = 2.0  # seconds for counting what is left
WELL = "nothing is held on {}: its key store is as it should be"


class Held(NamedTuple):
    """A held id: what the group knows of it, what the store shows, what a release would delete."""

    minion_id: str
    known: str
    shown: str
    deletes: int
    """How many of its accepted and rejected keys a release deletes on all masters."""


class Decisions:
    def __init__(self, group: Group, core: Core) -> None:
        self._group, self._core = group, core

    async def resolve(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.resolve``: of several accepted keys of an id one stays, the others are deleted."""
        core = self._core
        minion_id = str(payload.get("minion"))
        records = await core.run(core.replica.get, minion_id)
        accepted = accepted_keys(records.values())
        if len(accepted) < 2:
            raise HaError(
                f"{minion_id} is not in conflict; ha.status lists the ids that are"
                if records
                else f"no key of {minion_id!r} is known here; ha.status lists the ids that are in "
                "conflict"
            )
        right = minion_key.find(accepted, str(payload.get("fingerprint")))
        states = {key: ACCEPTED if key == right else DELETED for key in accepted}
        plan = {minion_id: Decision(states, records)}
        done = await self._decide(plan, payload, "ha.resolve")
        return await self._answer(*done, payload)

    async def restore(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.restore``: deleted or rejected keys are accepted again, everywhere."""
        core = self._core
        minion = str(payload.get("minion"))
        if is_glob(minion):
            return await self._restore_many(minion, payload)
        if payload.get("since"):
            raise HaError(f"since= is for a glob, and {minion!r} is none: leave it out")
        records = await core.run(core.replica.get, minion)
        key = _revoked_key(minion, records, str(payload.get("fingerprint") or ""))
        plan = {minion: Decision({key: ACCEPTED}, records)}
        done = await self._decide(plan, payload, "ha.restore")
        return await self._answer(*done, payload)

    async def _restore_many(self, glob: str, payload: dict[str, Any]) -> dict[str, Any]:
        """
        Restore all ids that match and were revoked within ``since``, except doubtful ones, and keys
        that were never accepted: a deletion of all takes strangers who knocked, too.
        """
        core = self._core
        if payload.get("fingerprint"):
            raise HaError("a fingerprint belongs to one minion: name that, not a glob")
        since = time.time() - span(payload.get("since") or 0)
        if not payload.get("since"):
            raise HaError(f"{glob!r} is a glob: say since when, for instance since=2h")
        recent, strange = await self._revoked_since(glob, since)
        notes, changes = [], []
        if strange:
            more = ", …" if len(strange) > NAMED else ""
            notes.append(
                f"{counted(len(strange))} left alone, never accepted as far as {self._group.name} "
                f"knows ({', '.join(strange[:NAMED])}{more}). If some are yours: run this on the "
                "master where they were deleted, or ha.restore ID for each"
            )
        elif not recent:
            notes.append(
                f"no key of an id that matches {glob!r} was deleted or rejected within "
                f"{payload['since']}; salt-run ha.history {glob!r} shows when"
            )
        plans: dict[str, Decision] = {}
        for some in batches(recent):
            for minion_id, records in (await core.run(core.replica.records_of, some)).items():
                keys = recent[minion_id]
                wanted = minion_key.show(keys[0], short=False) if len(keys) == 1 else ""
                try:
                    key = _revoked_key(minion_id, records, wanted)
                    plans[minion_id] = Decision({key: ACCEPTED}, records)
                except HaError as exc:
                    notes.append(f"left as it is: {exc}")
        for number, some in enumerate(batches(plans)):
            plan = {minion_id: plans[minion_id] for minion_id in some}
            try:
                made, left = await self._decide(plan, payload, "ha.restore")
            except HaError as exc:
                todo = len(plans) - number * BATCH
                notes.append(f"{todo} ids from {some[0]} on are left: {exc}")
                break
            changes += made
            notes += left
        return await self._answer(changes, notes, payload)

    async def _revoked_since(
        self, glob: str, since: float
    ) -> tuple[dict[str, list[bytes]], list[str]]:
        """
        Keys revoked at *since* or later, by id; and the ids of others that were never accepted, as
        far as is known here.
        """
        core = self._core
        accepted: dict[str, list[bytes]] = {}
        unclear: list[tuple[str, bytes]] = []
        strange: list[str] = []

        def sort(records: Sequence[Record]) -> None:
            for minion_id, key, *_ in records:
                was = core.replica.history.was_accepted(minion_id, key)
                if was:
                    accepted.setdefault(minion_id, []).append(key)
                elif was is None:
                    unclear.append((minion_id, key))
                else:
                    strange.append(minion_id)

        revoked = await core.run(core.replica.revoked, glob)
        late = [r for r in revoked if max(value.at for value in r.revocations) >= since]
        for some in batches(late):
            await core.run(sort, some)
        for minion_id, key in unclear:
            if minion_id in accepted:  # which of them is to be restored?
                accepted[minion_id].append(key)
            else:
                strange.append(minion_id)
        return accepted, sorted(strange)

    async def release(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.release``: believe what the key store shows, although it was held."""
        self._check_whole()
        here, wish = self._group.name, payload.get("deletes")
        if wish is not None and type(wish) is not int:
            raise HaError(f"deletes={wish!r}: takes the number of keys that are to be deleted")
        held, errors = await self._all_held()
        well = not held and not self._core.mode.doubt
        if wish and well:
            raise HaError(WELL.format(here))
        deletes = sum(each.deletes for each in held)
        confirmed = CONFIRM.format(number=counted(deletes), count=deletes)
        by = author(payload, "ha.release")
        if not payload.get("test") and deletes != (wish or 0):
            raise HaError(f"nothing was done. {confirmed}")
        if not payload.get("test") and not await self._released(held, by):
            raise HaError(f"nothing was done: what is held on {here} changed meanwhile. Look again")
        rows = [
            change_row("all", each.minion_id, f"held, {each.known}", each.shown) for each in held
        ]
        answer = self._with_errors(await self._answer(rows, [], payload), errors)
        if deletes and payload.get("test"):
            answer["notes"].append(confirmed)
        if well:
            answer["notes"].append(WELL.format(here))
        return {**answer, "deletes": deletes}

    async def _released(self, held: Sequence[Held], by: str) -> bool:
        """Release *held*, and say so, if that is still what is held; no key arrives in between."""
        done = False

        def release() -> list[Record]:
            nonlocal done
            done = self._held() == held
            ids = [each.minion_id for each in held]
            return self._core.keeper.release(by, ids) if done else []

        await self._core.order(release)
        return done

    async def refill(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.refill``: bring this master's key store back to what the group knows."""
        self._check_whole()
        core, here = self._core, self._group.name
        held, errors = await self._all_held()
        if not held and not core.mode.doubt:
            answer = self._with_errors(await self._answer([], [], payload, only=here), errors)
            answer["notes"].append(WELL.format(here))
            return answer
        if not payload.get("test"):
            if core.mode.never:
                raise HaError(
                    f"{here} does not write its key store: {core.mode.never}. Bring the "
                    "keys back by hand; those that are there again are no longer held"
                )
            await core.order(core.keeper.reconciler.adopt)
        rows = [change_row(here, each.minion_id, each.shown, each.known) for each in held]
        return await self._answer(rows, [], payload, only=here)

    async def left(self, payload: dict[str, Any]) -> dict[str, Any]:
        """How many keys are still to be written to the store; None while the disk is slow."""
        core = self._core
        return {"keys": await core.glance(lambda: len(core.replica.dirty()), COUNT_WITHIN)}

    def _check_whole(self) -> None:
        """:raises HaError: this master lost its replica, and has not yet pulled all from peers."""
        if self._core.mode.lost:
            raise HaError(
                f"{self._group.name} lost its replica.db, and not all has come from its peers yet: "
                "run this again when salt-run ha.status no longer says so"
            )

    async def _all_held(self) -> tuple[list[Held], dict[str, str]]:
        """
        The ids held here. If there are none, and the store is not in doubt, all masters are asked,
        and the second value is master → why it could not be.

        :raises HaError: none are held here, but on other masters.
        """
        held = await self._core.run(self._held)
        if held or self._core.mode.doubt:
            return held, {}
        told, errors = await self._group.summaries()
        there = [
            f"{counted(each.held)} on {name}" for name, each in sorted(told.items()) if each.held
        ]
        if there:
            raise HaError(
                f"nothing is held on {self._group.name}, but {', '.join(there)}. Run there, first "
                "with test=True: salt-run ha.refill; or, if the change was meant, salt-run "
                "ha.release"
            )
        return [], errors

    @staticmethod
    def _with_errors(answer: dict[str, Any], errors: Mapping[str, str]) -> dict[str, Any]:
        """*answer*, and which masters could not be asked whether they hold keys."""
        retcode = 2 if errors else answer["retcode"]
        return {**answer, "unreachable": {**answer["unreachable"], **errors}, "retcode": retcode}

    def _held(self) -> list[Held]:
        """All ids held on this master."""
        core = self._core
        found = []
        for minion_id in core.replica.held.all():
            records = core.replica.get(minion_id)
            known = place(records.values(), ABSENT)
            content = core.keeper.store.peek(minion_id)
            shown, deletes = "unreadable", 0
            if content:
                shown = text(content.stored) or NO_KEY
                states = {key: record.state for key, record in records.items()}
                before = core.replica.applied(minion_id).stored
                writes = interpretation.interpret(before, content.stored, states)
                gone = {write.key for write in writes if write.state == DELETED}
                deletes = sum(states.get(key) in (ACCEPTED, REJECTED) for key in gone)
            found.append(Held(minion_id, text(known) or NO_KEY, shown, deletes))
        return found

    async def _decide(
        self, plan: Mapping[str, Decision], payload: Mapping[str, Any], command: str
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """
        Decide about keys of ids, a batch at most; returns the changes, and notes about what was
        not done.

        :raises HaError: nothing was recorded.
        """
        overruled = set()
        if not payload.get("test"):
            core, by = self._core, author(payload, command)
            overruled = {
                (record.minion_id, record.fingerprint)
                for record in await core.order(core.keeper.decide, plan, by)
                if record.state != plan[record.minion_id].states[record.fingerprint]
            }
        changes = [
            change_row("all", minion_id, key_text(before, key), key_text(state, key))
            for minion_id, (states, records) in plan.items()
            for key, state in states.items()
            if (before := records[key].state) != state and (minion_id, key) not in overruled
        ]
        notes = [
            f"{minion_id}: another decision arrived at the same moment, and holds instead of this "
            f"one; salt-run ha.history {minion_id} shows it. If this one is right, run the command "
            "again"
            for minion_id in dict.fromkeys(minion_id for minion_id, _ in sorted(overruled))
        ]
        return changes, notes

    async def _answer(
        self,
        changes: list[dict[str, Any]],
        left: list[str],
        payload: Mapping[str, Any],
        only: str = "",
    ) -> dict[str, Any]:
        """
        The answer to decisions. Its ``retcode`` is 1 if something is *left*, or if there are
        changes that no master writes, as far as known: of peers only the mode is.

        :param left: notes about what was not done.
        :param only: the one master whose key store changes; empty: all.
        """
        test = bool(payload.get("test"))
        modes, unreachable = await self._group.modes()
        modes = {only: modes[only]} if only else modes
        idle = {name: f"its mode is {mode}" for name, mode in modes.items() if mode != "enforce"}
        unwritten = await self._core.run(self._core.replica.dirty)
        if unwritten and self._core.problem:
            idle.setdefault(self._group.name, self._core.problem)
        written = len(idle) < len(modes)
        notes = list(left)
        if changes and not test:
            notes += [f"{name}: not changed: {why}" for name, why in sorted(idle.items())]
        return {
            "kind": "sync",
            "test": test,
            "changes": changes,
            "written": written and not test,
            "conflicts": [],
            "notes": notes,
            "unreachable": unreachable,
            "retcode": 1 if left or (changes and not test and not written) else 0,
        }


def _revoked_key(minion_id: str, records: Mapping[bytes, Record], wanted: str) -> bytes:
    """
    The deleted or rejected key of an id that can be accepted again.

    :param wanted: its fingerprint; may be empty if there is only one.
    :raises HaError: there is none, or several, or another key is accepted.
    """
    revoked = [key for key, record in records.items() if record.revocations]
    if not revoked:
        raise HaError(
            f"no deleted or rejected key of {minion_id!r} is known here; ask a master that was up "
            "at that time"
        )
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
