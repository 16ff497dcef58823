"""``ha.remove_peer``: removes a master, shows what it did, and undoes that on request."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from saltext_ha.commands import arguments
from saltext_ha.commands.membership import undoing
from saltext_ha.commands.membership.deeds import Dealings
from saltext_ha.commands.membership.introductions import Pin, introduced_by
from saltext_ha.commands.membership.undoing import Undo
from saltext_ha.common.batches import BATCH, batches
from saltext_ha.common.errors import HaError
from saltext_ha.keystore import minion_key
from saltext_ha.membership.membership import Membership
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.keeper import Decision
from saltext_ha.replica import history_text
from saltext_ha.replica.history import VIA, Write
from saltext_ha.replication.record import DECISIONS, Dot
from saltext_ha.sync.group import Group
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.removals import Removed
from saltext_ha.transport.trust import Trust

WEEK = 7 * 86400.0
"""How far back to look by default, in seconds."""
ALL = "all"
COMMAND = "ha.remove_peer"


class MemberDecision(NamedTuple):
    """What one member decided about one key, and what becomes of it."""

    last: Write
    """Its last decision; or its last knock, if that replaced a decision."""
    state: str | None
    """The state of the key now; None: it is no longer known here."""
    undo: Undo


class Wish(NamedTuple):
    """What is asked for, and whether the master is a member still."""

    name: str
    pinned: bool
    test: bool
    undo: bool
    span: float | None
    """How far back to look, in seconds; None: all."""
    since: float
    """The same as Unix time."""
    since_text: str
    """As it was written."""
    by: str
    """Who asks."""

    @property
    def undoes(self) -> bool:
        return self.undo and not self.test


class RemovePeer:
    """
    The command that removes a master and what it left.

    :param by_secret: whether masters can join by a secret.
    :param notes: takes notes on the progress of undoing.
    """

    def __init__(
        self,
        group: Group,
        core: Core,
        trust: Trust,
        membership: Membership,
        *,
        by_secret: bool,
        notes: MutableMapping[str, str],
    ) -> None:
        self._group, self._core, self._trust = group, core, trust
        self._membership, self._by_secret, self._progress = membership, by_secret, notes
        self._dealings = Dealings(group, core, trust)

    def for_peers(self) -> dict[str, Handler]:
        return self._dealings.for_peers()

    async def remove_peer(self, payload: dict[str, Any]) -> dict[str, Any]:
        wish = self._wish(payload)
        unreached: dict[str, str] = {}
        if wish.pinned and not wish.test:
            # Before any question: once removed, it cannot add to what is found.
            unreached |= await self._membership.remove(wish.name)
        pins, unknown = await self._dealings.pins(wish.name)
        brought = introduced_by(wish.name, pins, self._group.name, wish.since)
        if wish.undoes and brought:
            unreached |= await self._membership.remove(others=_removed(brought))
        names = [wish.name, *sorted(brought)]
        unknown |= await self._level({*names, *unknown})
        asked = sorted(self._trust.pinned().keys() - set(names))
        writes, untold_by = await self._dealings.writes(names, wish.span, asked)
        unknown = {**untold_by, **unknown}
        decided = await self._decided(writes)
        left = await self._undo(decided, wish) if wish.undoes else {}
        for gone in {*unknown, *unreached} & set(names):
            unknown.pop(gone, None)
            unreached.pop(gone, None)
        rows = [_key_row(one, left.get((one.last.minion_id, one.last.key), "")) for one in decided]
        return {
            "kind": "removal",
            "name": wish.name,
            "test": wish.test,
            "undo": wish.undo,
            "since": None if wish.span is None else wish.since,
            "members": [_member_row(who, pins_of) for who, pins_of in sorted(brought.items())],
            "keys": rows,
            "knocks": sum(write.state not in DECISIONS for write in writes),
            "unknown": {**unreached, **unknown},
            "notes": [
                *self._notes(wish, brought, rows, unreached),
                *_by_nobody(pins, {wish.name, self._group.name}),
            ],
            "retcode": 2 if unknown or unreached else 1 if left else 0,
        }

    def _wish(self, payload: Mapping[str, Any]) -> Wish:
        """:raises HaError: there is no such peer, or the wish says too little."""
        name, undo = str(payload.get("name")), bool(payload.get("undo"))
        pinned = name in self._trust.pinned()
        if not pinned and name not in {note.name for note in self._trust.removals.notes()}:
            if why := self._group.damaged().get(name):
                raise HaError(f"{name} cannot be removed: {why}")
            if name == self._group.name:
                raise HaError(f"{name} is this master: salt-run ha.leave  takes it out")
            raise arguments.no_master([name], self._group.masters)
        span = _span(payload.get("since"))
        if undo and not payload.get("since"):
            raise HaError(
                f"undo=True: say since when {name} was in other hands, for instance since=2d; "
                "since=all is all that is known of it"
            )
        return Wish(
            name,
            pinned=pinned,
            test=bool(payload.get("test")),
            undo=undo,
            span=span,
            since=float("-inf") if span is None else time.time() - span,
            since_text=str(payload.get("since") or "7d"),
            by=arguments.author(payload, COMMAND),
        )

    async def _level(self, but: Container[str]) -> dict[str, str]:
        """Learn what all members except *but* know; name → why a member could not be asked."""
        errors = {name: why for name, why in self._group.unasked().items() if name not in but}
        for name, link in list(self._group.links.items()):
            if name in but or name not in self._trust.pinned():
                continue
            try:
                await link.exchange()
            except HaError as exc:
                errors[name] = str(exc)
        return errors

    # -- what it decided

    async def _decided(self, writes: Iterable[Write]) -> list[MemberDecision]:
        """
        The present state of each key that *writes* (the last first) decided, or left as a knock
        where others had decided.
        """
        core = self._core
        about: dict[str, dict[bytes, list[Write]]] = {}
        for write in writes:
            about.setdefault(write.minion_id, {}).setdefault(write.key, []).append(write)

        def look(minion_id: str, keys: Mapping[bytes, list[Write]]) -> list[MemberDecision]:
            records = core.replica.get(minion_id)
            # None of its writes counts any more, including older ones and knocks.
            dots = {Dot(w.node, w.counter) for written in keys.values() for w in written}
            plans = {
                key: undoing.undo(
                    key, records, dots, core.replica.history.decisions(minion_id, key)
                )
                for key in keys
            }
            plans = undoing.without_conflicts(plans, records)
            found = []
            for key, written in keys.items():
                decisions = [write for write in written if write.state in DECISIONS]
                if decisions or plans[key].target or plans[key].why == undoing.ANOTHER:
                    state = records[key].state if key in records else None
                    found.append(MemberDecision((decisions or written)[0], state, plans[key]))
            return found

        return [
            one
            for minion_id, keys in about.items()
            for one in await core.run(look, minion_id, keys)
        ]

    async def _undo(
        self, decided: Iterable[MemberDecision], wish: Wish
    ) -> dict[tuple[str, bytes], str]:
        """Carry the plan out; (id, key) → why it could not be done."""
        core = self._core
        todo: dict[str, dict[bytes, str]] = {}
        for one in decided:
            if one.undo.target:
                todo.setdefault(one.last.minion_id, {})[one.last.key] = one.undo.target
        left: dict[tuple[str, bytes], str] = {}
        try:
            for number, some in enumerate(batches(todo)):
                self._progress["removal"] = (
                    f"undoing what {wish.name} decided: {number * BATCH} of {len(todo)} minions"
                )
                found = await core.run(core.replica.records_of, some)
                plan = {each: Decision(todo[each], records) for each, records in found.items()}
                try:
                    changed = await core.order(core.keeper.decide, plan, wish.by)
                except HaError as exc:
                    left |= {(each, key): str(exc) for each in some for key in todo[each]}
                    continue
                left |= {
                    (record.minion_id, record.fingerprint): "another decision stands against it"
                    for record in changed
                    if record.state != todo[record.minion_id][record.fingerprint]
                }
        finally:
            self._progress.pop("removal", None)
        return left

    # -- for people

    def _notes(
        self,
        wish: Wish,
        brought: Iterable[str],
        rows: Iterable[Mapping[str, Any]],
        unreached: Mapping[str, str],
    ) -> list[str]:
        name = wish.name
        if wish.test:
            notes = [f"would remove {name} for good"] if wish.pinned else []
            if not wish.undo:
                notes.append("what it decided so far stays, unless it is undone (undo=True)")
            contact = self._group.contacts.get(name)
            if wish.pinned and not wish.undo and contact and contact.up:
                notes.append(
                    f"{name} runs: minions that are connected only to it stay there, and no other "
                    f"master reaches them. To take it out in good order: salt-run ha.drain {name}, "
                    "then salt-run ha.leave there"
                )
            return notes
        notes = []
        if wish.pinned:
            notes.append(f"{name} is removed for good: nobody takes anything from it any more")
        if wish.undo:
            notes += [f"{who}, which it introduced, is removed, too" for who in sorted(brought)]
        elif brought or any(row["to"] for row in rows):
            notes.append(
                "what is listed here stays as it is; to undo it, from when it was in other hands: "
                f"salt-run {COMMAND} {name} undo=True since={wish.since_text} (test=True shows "
                "what that does)"
            )
        notes += self._group.undeleted
        notes += [f"{other} is told later: {why}" for other, why in unreached.items()]
        if wish.pinned and self._by_secret:
            notes.append(
                f"if {name} was stolen: set a new secret (ha: secret_file) on all the others now, "
                "and restart salt-master on them; with the old one it joins again, with a new "
                "certificate. Also take it out of ha: masters"
            )
        if wish.pinned:
            notes.append(f"to have {name} back, it needs ha.leave there and a new invitation")
        return notes


def _by_nobody(pins: Iterable[Pin], but: Container[str]) -> list[str]:
    """What to say of masters of which no member knows who introduced them."""
    untold = sorted({pin.name for pin in pins if pin.introducer is None and pin.name not in but})
    if not untold:
        return []
    return [
        f"who introduced {', '.join(untold)} is not known everywhere: an older release pinned "
        "them; is each of them yours?"
    ]


def _span(since: Any) -> float | None:
    """How far back, in seconds; None: all."""
    if not since:
        return WEEK
    return None if since == ALL else arguments.span(since)


def _removed(brought: Mapping[str, Sequence[Pin]]) -> list[Removed]:
    now = history_text.iso(time.time())
    return [
        Removed(print_, name, now)
        for name, pins in brought.items()
        for print_ in sorted({pin.fingerprint for pin in pins})
    ]


def _member_row(name: str, pins: Sequence[Pin]) -> dict[str, Any]:
    first = min(pins, key=lambda pin: pin.at)
    return {
        "name": name,
        "fingerprint": first.fingerprint,
        "introducer": first.introducer,
        "added": first.added,
        "on": sorted(pin.on for pin in pins),
    }


def _key_row(one: MemberDecision, failed: str) -> dict[str, Any]:
    last = one.last
    by, _, command = last.by.partition(VIA)
    return {
        "id": last.minion_id,
        "fingerprint": minion_key.show(last.key, short=False),
        "what": last.state,
        "received": last.received,
        "from": last.sender,
        "at": last.at,
        "by": by,
        "on": last.on,
        "why": command,
        "state": one.state,
        "to": "" if failed else one.undo.target,
        "note": failed or one.undo.why,
    }
