"""Acts the steps of a history out, one method a kind of step, and enters what came of it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from lab.wait import wait_for
from saltext_ha.errors import HaError
from saltext_ha.peering import identity, invites
from saltext_ha.peering.join import join
from saltext_ha.peering.trust import Trust
from torture.faults import can_protect
from torture.keys import ACCEPTED, DENIED, PENDING
from torture.ledger import DELETE, GRANT, KNOCK, REJECT, Act
from torture.member import Copy, Member
from torture.operators import Done
from torture.proxy import OPEN
from torture.schedule import BULK, History, Step
from torture.watch import Operation
from torture.world import BULK_KEY, Violation, World, pairs_of

MAX_REVOKED = 8
"""Fewer accepted keys than are held back are taken away on a master in one history."""
LONG = 50_000
"""Seconds that an invitation holds: longer than any clock is off."""


class Player:
    """Acts out on *world*."""

    def __init__(self, world: World, history: History) -> None:
        self.world, self.ledger, self.counts = world, world.ledger, world.counts
        self._history = history
        self._recordings: list[tuple[list[Any], set[int]]] = []

    def play(self, step: Step, number: int) -> None:
        """
        One step.

        :raises Violation: an invariant was broken on the way.
        """
        self.ledger.step = number
        handler: Callable[[Step], bool | None] = getattr(self, f"_{step['do']}", self._act)
        self.world.flow()
        happened = handler(step)
        self.world.flow()
        name = str(step["do"]) + (f" {step['mode']}" if "mode" in step else "")
        self.counts[name if happened is not False else f"{name} (nothing to do)"] += 1

    # -- people and minions

    def _act(self, step: Step) -> bool:
        member = self.world.members.get(step["on"])
        if member is None or member.disk.away:
            return False
        done = self._do(member, step)
        self._enter(member, step, done)
        if step.get("wait"):
            for minion_id in done:
                self.world.notice(member.name, minion_id)
        return bool(done)

    def _do(self, member: Member, step: Step) -> dict[str, Done]:
        """Touch the files; what came of it by id, where anything did."""
        did: dict[str, Done] = {}
        for minion_id in self._ids(member, step):
            begun = time.monotonic()
            done = self._hand(member, step, minion_id)
            if not step.get("untold"):
                member.tell(done.events)
            self.world.operations.append(
                Operation(member.name, minion_id, begun, time.monotonic())
            )
            if not done.nothing:
                did[minion_id] = done
        return did

    def _ids(self, member: Member, step: Step) -> list[str]:
        if step["do"] == "bulk_accept":
            return sorted(i for i, entry in member.folders.look().items() if PENDING in entry)
        return list(step.get("ids") or [step["id"]])

    def _hand(self, member: Member, step: Step, minion_id: str) -> Done:
        operator, what = member.operator, step["do"]
        if what in ("delete", "remove", "bulk_delete", "reject_accepted"):
            entry = member.folders.entry(minion_id)
            if ACCEPTED in entry:
                if member.revoked >= MAX_REVOKED:
                    return Done()
                member.revoked += 1
        if what == "knock":
            return operator.knock(minion_id, step["key"])
        if what == "put":
            return operator.put(minion_id, step["key"])
        hands: dict[str, Callable[[], Done]] = {
            "accept": lambda: operator.accept(minion_id),
            "bulk_accept": lambda: operator.accept(minion_id),
            "accept_denied": lambda: operator.accept(minion_id, denied=True),
            "reject": lambda: operator.reject(minion_id),
            "reject_accepted": lambda: operator.reject(minion_id, accepted=True),
            "delete": lambda: operator.delete(minion_id),
            "bulk_delete": lambda: operator.delete(minion_id),
            "remove": lambda: operator.remove(minion_id),
        }
        return hands[what]()

    def _enter(
        self, member: Member, step: Step, did: dict[str, Done], racing: bool = False
    ) -> list[Act]:
        acts: list[Act] = []
        silent = step["do"] == "remove" or bool(step.get("untold"))
        for minion_id, done in did.items():
            self.ledger.begin()

            def act(kind: str, key: str, certain: bool = True, i: str = minion_id) -> None:
                acts.append(self.ledger.act(member.name, kind, (i, key), certain))

            # A key that is gone in the instant in which the engine moves it: who tells nobody
            # cannot be told from somebody who made the same move.
            vague = silent and (racing or self.ledger.unsettled(member.name, minion_id))
            if done.granted:
                act(GRANT, done.granted)
            if done.rejected:
                act(REJECT, done.rejected)
            if done.knocked:
                act(KNOCK, done.knocked)
            for _, key in sorted(done.gone):
                act(DELETE, key, not vague)
            if done.rejected or (done.gone and not done.granted) or done.broken:
                # salt-key speaks of ids: other keys that the engine knows may be meant, too.
                named = {key for _, key in done.gone} | {done.rejected}
                for pair in pairs_of(minion_id):
                    if pair[1] not in named:
                        act(DELETE, pair[1], False)
        return acts

    def _race(self, step: Step) -> None:
        world = self.world
        can_reach = world.may_reach()
        queues: dict[str, list[Step]] = defaultdict(list)
        for act in sorted(step["acts"], key=lambda act: float(act["after"])):
            # Whoever kills an engine does not wait for the operator there.
            queues[act["on"] + ("/engine" if act["do"] == "kill" else "")].append(act)
        did: dict[str, list[tuple[Step, dict[str, Done]]]] = defaultdict(list)
        begun = time.monotonic()

        def work(name: str) -> None:
            for act in queues[name]:
                time.sleep(max(0.0, begun + act["after"] - time.monotonic()))
                member = world.members.get(act["on"])
                if member is None:
                    continue
                if act["do"] == "kill":
                    self.counts["kill while racing"] += member.kill()
                elif not member.disk.away:
                    did[name].append((act, self._do(member, act)))

        threads = [threading.Thread(target=work, args=(name,)) for name in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entered: list[Act] = []
        for name, done in did.items():
            for act, what in done:
                entered += self._enter(world.members[name], act, what, racing=True)
                kind = act["do"] if what else f"{act['do']} (nothing to do)"
                self.counts[f"{kind} while racing"] += 1
        self.ledger.raced(entered, can_reach)

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
        disk = self._member(step).disk
        was = disk.read_only
        disk.unprotect()
        return was

    def _unmount(self, step: Step) -> bool:
        member = self._member(step)
        if not self.world.accepted(member.name) or not member.disk.healthy:
            return False
        with _Hands(self.world, member):
            member.disk.unmount()
        return True

    def _mount(self, step: Step) -> bool:
        member, world = self._member(step), self.world
        if not member.disk.away:
            return False
        if member.pid and not member.stopped:
            try:
                wait_for(lambda: self._held(member), 5, "held")
                self.counts["keys held back"] += 1
            except TimeoutError as exc:
                raise Violation(f"I8 {member.name} has no keys and holds nothing back") from exc
        self.check_bulk(f"while the key folder of {member.name} was away", member.name)
        with _Hands(world, member):
            member.disk.mount()
        return True

    def _held(self, member: Member) -> bool:
        report = self.world.auditor.report(member)
        return report is not None and report.held > 0

    def check_bulk(self, when: str, but: str = "") -> None:
        """:raises Violation: a key that nobody touched is accepted no more on some master."""
        for name in self.world.group():
            member = self.world.members[name]
            if name == but or member.disk.away:
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

    def _forget(self, member: Member, known: set[int]) -> None:
        self.ledger.forgot(member.name)
        self._ghosts(member, known)
        # An AES key that was still to be rotated was written down in what is lost.
        now = time.monotonic()
        self.world.hands.setdefault(member.name, []).append(Operation(member.name, "", now - 2, now))

    def _since(self, member: Member, copy: Copy) -> None:
        """What changed since the backup is taken for work that was done now, knowing what it had."""
        now = member.folders.look()
        for minion_id in now.keys() | copy.shown.keys():
            if now.get(minion_id) != copy.shown.get(minion_id):
                for pair in pairs_of(minion_id):
                    self.ledger.ghost(member.name, DELETE, pair, copy.known)

    def _ghosts(self, member: Member, known: set[int]) -> None:
        """What its folders show is taken in as nobody's work, by one who knew *known*."""
        kinds = {ACCEPTED: GRANT, PENDING: KNOCK, DENIED: KNOCK}
        for minion_id, entry in member.folders.look().items():
            for state, key in entry.items():
                if state in kinds:
                    self.ledger.ghost(member.name, kinds[state], (minion_id, key), known)

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
        """A master that is to join later has keys already."""
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
        trust = Trust(new.state_dir)
        world.run(
            join(
                identity.load_or_create(new.state_dir, new.name),
                trust,
                token.encode(),
                new.name,
                new.url,
                new.group,
            )
        )
        member.gone = False
        if not member.pid:
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

    def _settle(self, step: Step) -> None:
        for group in self.world.reach():
            self.world.settle(group)

    def finish(self) -> None:
        """Heal everything that is still wrong, and wait until all masters agree."""
        self.ledger.step += 1
        for relay in self.world.relays.values():
            relay.set(OPEN)
        for name in self.world.group():
            member = self.world.members[name]
            member.cont()
            self._make_room(member)
            member.disk.unprotect()
            if member.disk.away:
                self._mount({"do": "mount", "on": name})
            member.start()
        self.world.flow()
        self.world.settle(self.world.group())

    def _member(self, step: Step) -> Member:
        member = self.world.members.get(step["on"])
        return member if member is not None else self._spare()


class _Hands:
    """What changes in the key folder meanwhile is nobody's doing but the fault's."""

    def __init__(self, world: World, member: Member) -> None:
        self._world, self._name = world, member.name

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *exc: object) -> None:
        operation = Operation(self._name, "", self._begun, time.monotonic())
        self._world.hands.setdefault(self._name, []).append(operation)
