"""What operators and minions do in a history, one after the other or at the same time."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable

from proving.torture.history import Step
from proving.torture.keys import ACCEPTED, PENDING
from proving.torture.ledger import DELETE, GRANT, KNOCK, REJECT, Act
from proving.torture.member import Member
from proving.torture.operators import Done
from proving.torture.watch import Operation
from proving.torture.world import World, pairs_of

MAX_REVOKED = 8
"""Most accepted keys that are taken away on one master in a history; more would be held."""


class People:
    """Acts on the key folders of *world*, and enters the results in its ledger."""

    def __init__(self, world: World) -> None:
        self.world, self.ledger, self.counts = world, world.ledger, world.counts

    def _act(self, step: Step) -> bool:
        member = self.world.members.get(step["on"])
        if member is None or member.disk.emptied:
            return False
        done = self._do(member, step)
        self._enter(member, step, done)
        if step.get("wait"):
            for minion_id in done:
                self.world.notice(member.name, minion_id)
        return bool(done)

    def _do(self, member: Member, step: Step) -> dict[str, Done]:
        """Touch the files; return id → result, for ids that changed."""
        did: dict[str, Done] = {}
        for minion_id in self._ids(member, step):
            begun = time.monotonic()
            done = self._hand(member, step, minion_id)
            if not step.get("untold"):
                member.tell(done.events)
            self.world.operations.append(Operation(member.name, minion_id, begun, time.monotonic()))
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

            # If a key is removed without an event in the instant in which the engine moves it, the
            # engine cannot tell this from somebody making the same move.
            vague = silent and (racing or self.ledger.unsettled(member.name, minion_id))
            if done.granted:
                act(GRANT, done.granted, not done.shadowed)
            if done.rejected:
                act(REJECT, done.rejected)
            if done.knocked:
                act(KNOCK, done.knocked)
            for _, key in sorted(done.gone):
                act(DELETE, key, not vague)
            if done.rejected or (done.gone and not done.granted) or done.broken:
                # salt-key speaks of ids, so it may mean other keys that the engine knows, too.
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
            # A kill does not wait for the operator on that master.
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
                elif not member.disk.emptied:
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
