"""Acts out the steps of a history, with a method for each kind of step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from lab.wait import wait_for
from proving.torture.faults import can_protect
from proving.torture.history import BULK, History, Step
from proving.torture.keys import ACCEPTED, DENIED, PENDING
from proving.torture.ledger import DELETE, GRANT, KNOCK, REJECT
from proving.torture.member import Copy, Member
from proving.torture.once_acts import OnceActs
from proving.torture.people import People
from proving.torture.proxy import OPEN
from proving.torture.watch import Operation
from proving.torture.world import BULK_KEY, Violation, World, pairs_of
from saltext_ha.common.errors import HaError
from saltext_ha.membership import invites
from saltext_ha.membership.join import Applicant, join
from saltext_ha.reconciler.write_mode import ADOPTING
from saltext_ha.transport import identity
from saltext_ha.transport.trust import Trust

LONG = 50_000
"""Seconds that an invitation holds: more than any clock is wrong."""
HARMLESS = {"event", "once", "settle", "record", "replay", "held", "had", "await_dropping"}
"""Steps, besides acts of people, that are no fault for leading."""
HELD = 60.0
DROPPED = 3.0
"""Seconds within which a level group drops its tombstones: it looks every 0.4 s."""


class Player(People):
    """Acts out on *world*."""

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world)
        self._history = history
        self.once = OnceActs(world)
        self._recordings: list[tuple[list[Any], set[int]]] = []
        self._wiped = 0

    def play(self, step: Step, number: int) -> None:
        """
        Act out *step*.

        :raises Violation: it broke an invariant.
        """
        self.ledger.step = number
        handler: Callable[[Step], bool | None] = getattr(self, f"_{step['do']}", self._act)
        harmless = handler == self._act or step["do"] in HARMLESS
        self.world.flow()
        with contextlib.nullcontext() if harmless else self.once.trouble():
            happened = handler(step)
        self.world.flow()
        name = str(step["do"]) + (f" {step['mode']}" if "mode" in step else "")
        self.counts[name if happened is not False else f"{name} (nothing to do)"] += 1

    # -- engines

    def _kill(self, step: Step) -> bool:
        return self._member(step).kill()

    def _stop(self, step: Step) -> bool:
        return self._member(step).stop()

    def _start(self, step: Step) -> bool:
        member = self._member(step)
        if member.pid or member.gone:
            return False
        member.start()
        return True

    def _freeze(self, step: Step) -> bool:
        member = self._member(step)
        member.freeze()
        return member.stopped

    def _cont(self, step: Step) -> bool:
        member = self._member(step)
        was = member.stopped
        member.cont()
        return was

    # -- the network

    def _partition(self, step: Step) -> None:
        together = {frozenset((a, b)) for side in step["sides"] for a in side for b in side}
        for (a, b), relay in self.world.relays.items():
            if frozenset((a, b)) not in together:
                relay.set(step["mode"])

    def _links(self, step: Step) -> None:
        for a, b in step["pairs"]:
            self.world.relays[a, b].set(step["mode"])

    def _heal(self, step: Step) -> None:
        for relay in self.world.relays.values():
            if relay.mode != OPEN:
                relay.set(OPEN, step["break_off"])

    def _record(self, step: Step) -> bool:
        member = self._member(step)
        if not member.healthy:
            return False
        ids = {act.pair[0] for act in self.ledger.acts}
        records = self.world.auditor.record(member, ids)
        self._recordings.append((records, self.ledger.known_to(member.name)))
        return True

    def _replay(self, step: Step) -> bool:
        member = self._member(step)
        if not member.healthy or not self._recordings:
            return False
        records, known = self._recordings[-1]
        try:
            sent = self.world.auditor.replay(member, records, step["seed"])
        except HaError:
            return False
        self.ledger.carried(known, member.name)
        self.counts["messages late, twice and out of order"] += sent
        return True

    # -- disks

    def _fill(self, step: Step) -> None:
        member = self._member(step)
        member.disk.fill(member.pid)

    def _free(self, step: Step) -> bool:
        member = self._member(step)
        was = member.disk.full
        self._make_room(member)
        member.await_listening()
        return was

    def _make_room(self, member: Member) -> None:
        member.disk.free(member.pid)
        self.counts["empty key files left by a full disk"] += member.operator.clean()

    def _protect(self, step: Step) -> bool:
        if not can_protect(self.world.mounting):
            return False
        self._member(step).disk.protect()
        return True

    def _unprotect(self, step: Step) -> bool:
        member = self._member(step)
        was = member.disk.read_only
        member.disk.unprotect()
        member.await_listening()
        return was

    def _unmount(self, step: Step) -> bool:
        member = self._member(step)
        if not self.world.accepted(member.name) or not member.disk.healthy:
            return False
        # An act that is not noticed yet is held with the rest, until somebody releases it.
        self.world.notice_all(member.name)
        with _Hands(self.world, member):
            member.disk.unmount()
        return True

    def _mount(self, step: Step) -> bool:
        member, world = self._member(step), self.world
        if not member.disk.away:
            return False
        if member.pid and not member.stopped:
            self._must_hold(member, 1)
        self.check_bulk(f"while the key folder of {member.name} was away", member.name)
        with _Hands(world, member):
            member.disk.mount()
        if member.healthy:
            # An act before the engine notices that the store is back is held with the rest.
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: self._holds_nothing(member), 5, "it is noticed")
        return True

    def _wipe(self, step: Step) -> bool:
        member, world = self._member(step), self.world
        if not member.healthy or member.gone:
            return False
        # A key that its engine does not know yet would not be held, but count as never there.
        reports = world.settle(next(group for group in world.reach() if member.name in group))
        self._wiped = len(world.accepted(member.name))
        waits = ADOPTING in reports[member.name].notes
        if waits or self._wiped <= member.place.config.hold_minimum:
            return False
        # So few files go faster than any engine looks: it must not see only some of them gone.
        if step["down"]:
            member.stop()
        member.freeze()
        with _Hands(world, member):
            member.disk.wipe()
        member.cont()
        return True

    def _held(self, step: Step) -> bool:
        """So many missing keys must not be believed, though the folder is the right one."""
        member = self._member(step)
        if not member.disk.wiped or not member.pid or member.stopped:
            return False
        self._must_hold(member, self._wiped)
        return True

    def _holds_nothing(self, member: Member) -> bool:
        report = self.world.auditor.report(member)
        return report is not None and not report.held

    def _must_hold(self, member: Member, count: int) -> None:
        def held() -> bool:
            report = self.world.auditor.report(member)
            return report is not None and report.held >= count

        try:
            wait_for(held, HELD, "held")
        except TimeoutError as exc:
            what = f"{count} accepted keys or more" if count > 1 else "all accepted keys"
            raise Violation(f"I8 {member.name} lost {what} and does not hold them back") from exc
        self.counts["keys held back"] += 1

    def _refill(self, step: Step) -> bool:
        member = self._member(step)
        if not member.disk.wiped or not member.pid or member.stopped:
            return False
        self._check_wiped(member)
        member.disk.fill_up()
        member.await_listening()
        report = self.world.auditor.report(member)
        if report is not None and not report.held:
            return False  # others have decided about all of them
        member.control("refill")
        return True

    def _put_back(self, step: Step) -> bool:
        member = self._member(step)
        if not member.disk.wiped:
            return False
        self._check_wiped(member)
        there = member.folders.look()
        with _Hands(self.world, member):
            member.disk.put_back()
        for minion_id, entry in member.folders.look().items():
            if ACCEPTED in entry and ACCEPTED not in there.get(minion_id, {}):
                # If it was revoked elsewhere meanwhile, this accepts it again.
                known = self.ledger.known_to(member.name)
                self.ledger.ghost(member.name, GRANT, (minion_id, entry[ACCEPTED]), known)
        member.await_listening()
        return True

    def _check_wiped(self, member: Member) -> None:
        self.check_bulk(f"after {member.name} had been wiped", member.name)

    def check_bulk(self, when: str, but: str = "") -> None:
        """:raises Violation: a key that nobody touched is no longer accepted on some master."""
        for name in self.world.group():
            member = self.world.members[name]
            if name == but or member.disk.emptied:
                continue
            accepted = self.world.accepted(name)
            for minion_id in BULK:
                if not self.ledger.about((minion_id, BULK_KEY), DELETE, REJECT, KNOCK):
                    joined = any(a.on == name for a in self.ledger.about((minion_id, BULK_KEY)))
                    if joined and accepted.get(minion_id) != BULK_KEY:
                        raise Violation(f"I8 {minion_id} went from {name} {when}")

    # -- what is lost and restored

    def _lose_replica(self, step: Step) -> None:
        member = self._member(step)
        member.kill()
        member.lose_replica()
        self._forget(member, set())

    def _save_replica(self, step: Step) -> bool:
        member = self._member(step)
        if member.disk.full:
            return False
        member.save_replica(self.ledger.known_to(member.name))
        return True

    def _restore_replica(self, step: Step) -> bool:
        member = self._member(step)
        copy = member.copies.get("replica")
        if copy is None or member.disk.full:
            return False
        member.kill()
        member.restore_replica()
        self._forget(member, copy.known)
        self._since(member, copy)
        return True

    def _save_folder(self, step: Step) -> bool:
        member = self._member(step)
        if not member.disk.healthy:
            return False
        member.save_folder(self.ledger.known_to(member.name))
        return True

    def _restore_folder(self, step: Step) -> bool:
        member = self._member(step)
        if "folder" not in member.copies or not member.disk.healthy:
            return False
        with _Hands(self.world, member):
            member.restore_folder()
        self._forget(member, set())
        return True

    def _save_machine(self, step: Step) -> bool:
        member = self._member(step)
        if not member.disk.healthy or member.stopped:
            return False
        # A snapshot is of one instant.
        member.freeze()
        member.save_machine()
        member.cont()
        return True

    def _restore_machine(self, step: Step) -> bool:
        member = self._member(step)
        if "machine" not in member.copies or not member.disk.healthy:
            return False
        member.kill()
        with _Hands(self.world, member):
            member.restore_machine()
        self._lose_track(member)
        return True

    def _await_dropping(self, step: Step) -> bool:
        """If tombstones are dropped, wait until no master has one of the id."""
        group = [self.world.members[name] for name in self.world.group()]
        if not self.world.drops or not all(member.healthy for member in group):
            return False

        def dropped() -> bool:
            return not any(self.world.auditor.record(member, [step["id"]]) for member in group)

        try:
            wait_for(dropped, DROPPED, "tombstones dropped")
        except (TimeoutError, HaError):
            return False  # other keys of the id are still known, or a master cannot be reached
        return True

    def _forget(self, member: Member, known: set[int]) -> None:
        self._lose_track(member)
        self._ghosts(member, known)

    def _lose_track(self, member: Member) -> None:
        self.ledger.forgot(member.name)
        # What is lost may have recorded that the AES key was still to be rotated.
        now = time.monotonic()
        self.world.hands.setdefault(member.name, []).append(
            Operation(member.name, "", now - 2, now)
        )

    def _since(self, member: Member, copy: Copy) -> None:
        """Changes since the backup may count as made now, by somebody who knew the backup."""
        now = member.folders.look()
        for minion_id in now.keys() | copy.shown.keys():
            if now.get(minion_id) != copy.shown.get(minion_id):
                for pair in pairs_of(minion_id):
                    self.ledger.ghost(member.name, DELETE, pair, copy.known)

    def _ghosts(self, member: Member, known: set[int]) -> None:
        """The folders' content may be taken in as acts of nobody in particular, knowing *known*."""
        kinds = {ACCEPTED: GRANT, PENDING: KNOCK, DENIED: KNOCK}
        for minion_id, entry in member.folders.look().items():
            for state, key in entry.items():
                if state in kinds:
                    self.ledger.ghost(member.name, kinds[state], (minion_id, key), known)
                if state == ACCEPTED and self.world.drops:
                    # It may be a key that was deleted and forgotten, which is let in as a knock.
                    self.ledger.ghost(member.name, KNOCK, (minion_id, key), known)

    # -- members

    def _remove_member(self, step: Step) -> bool:
        by, member = self._member(step), self.world.members[step["name"]]
        if not by.healthy or member.gone or by.gone:
            return False
        by.control("remove_peer", name=member.name)
        member.kill()
        member.gone = True
        self.ledger.forgot(member.name)
        return True

    def _had(self, step: Step) -> bool:
        """Give a key to the master that joins later."""
        member = self._spare()
        if member.pid or member.folders.entry(step["id"]):
            return False
        self.ledger.begin()
        if step["state"] == ACCEPTED:
            member.operator.put(step["id"], step["key"])
        else:
            member.operator.knock(step["id"], step["key"])
        kind = GRANT if step["state"] == ACCEPTED else KNOCK
        self.ledger.act(member.name, kind, (step["id"], step["key"]))
        return True

    def _join(self, step: Step) -> bool:
        via, world = self.world.members.get(step["via"]), self.world
        if via is None or not via.healthy or via.gone:
            return False
        member = self._spare()
        if step["running"]:
            member.start()
        world.auditor.introduce(member)
        own = via.place.config
        token = invites.make_token(
            own.state_dir,
            identity.load_or_create(own.state_dir, own.name),
            (own.url,),
            own.group,
            expires_in=LONG,
        )
        new = member.place.config
        ours = identity.load_or_create(new.state_dir, new.name)
        joiner = Applicant(ours, Trust(new.state_dir), new.name, new.url, new.group)
        if world.drops:
            # A key that it accepted may have been deleted here, and nobody remembers.
            self.ledger.forgotten(self.ledger.known_to(via.name), before=member.name)
        world.run(join(joiner, token.encode()))
        member.gone = False
        if not member.pid:
            # It starts like a master whose replica was lost: it asks its peers first.
            self._ghosts(member, self.ledger.known_to(member.name))
            if world.drops:
                self.ledger.forgot(member.name)  # keys that it accepted may be only knocks now
            member.start()
        return True

    def _spare(self) -> Member:
        spec = self._history.spare
        if spec.name not in self.world.members:
            member = self.world.add(spec)
            member.gone = True  # in no group yet
            self.world.watcher.add(member)
        return self.world.members[spec.name]

    # -- all together

    def _event(self, step: Step) -> bool:
        return self.once.event(step)

    def _once(self, step: Step) -> bool:
        return self.once.once(step)

    def _settle(self, step: Step) -> None:
        for group in self.world.reach():
            self.world.settle(group)
        self.once.look()

    def finish(self) -> None:
        """Heal everything that is still wrong, and wait until all masters agree."""
        self.ledger.step += 1
        with self.once.trouble():
            self._heal_all()
        self.world.settle(self.world.group())
        self.once.look()

    def _heal_all(self) -> None:
        for relay in self.world.relays.values():
            relay.set(OPEN)
        for name in self.world.group():
            member = self.world.members[name]
            member.cont()
            self._make_room(member)
            member.disk.unprotect()
            if member.disk.away:
                self._mount({"do": "mount", "on": name})
            self._put_back({"do": "put_back", "on": name})
            member.start()
        self.world.flow()

    def _member(self, step: Step) -> Member:
        member = self.world.members.get(step["on"])
        return member if member is not None else self._spare()


class _Hands:
    """Changes of the key folder inside this block are the fault's, and no engine's."""

    def __init__(self, world: World, member: Member) -> None:
        self._world, self._name = world, member.name

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *exc: object) -> None:
        operation = Operation(self._name, "", self._begun, time.monotonic())
        self._world.hands.setdefault(self._name, []).append(operation)
