"""
Makes a history from a seed. Pure; no step depends on the result of an earlier one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from proving.torture import once_schedule
from proving.torture.history import BULK, HOT, KEY_NAMES, MAX_OFFSET, History, MasterSpec, Step
from proving.torture.proxy import DEAF, REFUSE, SILENT, SLOW

UNDONE_BY = {
    "kill": "start",
    "stop": "start",
    "freeze": "cont",
    "fill": "free",
    "protect": "unprotect",
    "unmount": "mount",
    "lose_replica": "start",
}
"""Never two of one kind at a time: what two masters alone know is gone if both lose it."""


def history(seed: int) -> History:
    return once_schedule.woven(_Author(seed).write())


class _Author:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.steps: list[Step] = []
        count = self.rng.choice((3, 3, 3, 4, 4, 5))
        specs = [self._master(f"m{number + 1}") for number in range(count + 1)]
        self.masters, self.spare = specs[:-1], specs[-1]
        self.names = [master.name for master in self.masters]
        self.joined = False
        self.ids = 0

    def write(self) -> History:
        episodes: list[tuple[int, Callable[[], None]]] = [
            (3, self.calm),
            (5, self.race),
            (5, self.partition),
            (2, self.one_way),
            (2, self.slow),
            (4, self.crash),
            (3, self.freeze),
            (3, self.full_disk),
            (4, self.read_only),
            (4, self.lost_replica),
            (3, self.older_replica),
            (3, self.older_folder),
            (3, self.reverted),
            (3, self.unmounted),
            (3, self.wiped),
            (4, self.storm),
            (3, self.replay),
            (2, self.membership),
        ]
        weights, works = [weight for weight, _ in episodes], [work for _, work in episodes]
        self.some(2, 4)
        for work in self.rng.choices(works, weights, k=self.rng.randint(2, 4)):
            work()
            if self.rng.random() < 0.4:
                self.some(1, 3)
        drops = self.rng.random() < 0.4
        return History(self.seed, tuple(self.masters), self.spare, tuple(self.steps), drops)

    def _master(self, name: str) -> MasterSpec:
        offset = self.rng.choice((0, self.rng.randint(-MAX_OFFSET, MAX_OFFSET)))
        return MasterSpec(
            name, offset, self.rng.choice(("legacy", "3008", "3008")), self.rng.randrange(100)
        )

    # -- what people and minions do

    def act(self, on: str | None = None, minion_id: str | None = None) -> Step:
        rng = self.rng
        on, minion_id = on or rng.choice(self.names), minion_id or rng.choice(HOT)
        what = rng.choices(
            ("knock", "accept", "accept_denied", "reject", "reject_accepted", "delete", "put",
             "remove", "bulk_accept", "bulk_delete"),
            (7, 7, 2, 1.5, 1.5, 5, 1, 1, 1, 1),
        )[0]  # fmt: skip
        step: Step = {"do": what, "on": on, "id": minion_id}
        if what in ("knock", "put"):
            step["key"] = rng.choices(KEY_NAMES, (5, 3, 1))[0]
        if what == "bulk_accept":
            del step["id"]
        if what == "bulk_delete":
            del step["id"]
            step["ids"] = sorted(rng.sample(BULK, rng.randint(2, 4)))
        if rng.random() < 0.15:
            step["untold"] = True  # no event on the bus
        return step

    def some(self, low: int, high: int, names: Sequence[str] | None = None) -> None:
        """A few acts, one after the other; mostly each is noticed before the next."""
        for _ in range(self.rng.randint(low, high)):
            step = self.act(self.rng.choice(names) if names else None)
            if step["do"] == "accept" and self.rng.random() < 0.5:
                key = self.rng.choice(KEY_NAMES[:2])
                self.add("knock", on=step["on"], id=step["id"], key=key, wait=True)
            if self.rng.random() < 0.6:
                step["wait"] = True
            self.steps.append(step)

    def contested(self, names: Sequence[str], about: str = "") -> None:
        """Two masters decide differently about one key, which may be accepted before."""
        minion_id, rng = about or self.rng.choice(HOT), self.rng
        for name in rng.sample(list(names), min(2, len(names))):
            what = rng.choice(("accept", "accept", "delete", "delete", "reject_accepted", "reject"))
            if what == "accept":
                self.add("knock", on=name, id=minion_id, key=rng.choice(KEY_NAMES[:2]), wait=True)
            self.add(what, on=name, id=minion_id, wait=rng.random() < 0.7)

    def fresh(self) -> str:
        """An id to which nothing happened yet."""
        self.ids += 1
        return f"new{self.ids}"

    def known(self, chance: float = 1.0) -> str:
        """With that *chance* an id that is accepted, as all know; otherwise one of :data:`HOT`."""
        rng = self.rng
        if rng.random() >= chance:
            return rng.choice(HOT)
        minion_id = self.fresh() if rng.random() < 0.5 else rng.choice(HOT)
        on = rng.choice(self.names)
        self.add("knock", on=on, id=minion_id, key=rng.choice(KEY_NAMES[:2]), wait=True)
        self.add("accept", on=on, id=minion_id, wait=True)
        self.add("settle")
        return minion_id

    def add(self, do: str, **more: Any) -> None:
        self.steps.append({"do": do, **more})

    def settle(self, chance: float = 0.5) -> None:
        if self.rng.random() < chance:
            self.add("settle")

    def one(self) -> str:
        return self.rng.choice(self.names)

    def others(self, name: str) -> list[str]:
        return [other for other in self.names if other != name]

    # -- episodes

    def calm(self) -> None:
        self.some(2, 5)
        self.settle(1.0)

    def race(self) -> None:
        rng = self.rng
        about = self.known(0.7)
        acts = []
        for name in rng.sample(self.names, rng.randint(2, len(self.names))):
            for _ in range(rng.choice((1, 1, 2))):
                step = self.act(name, about if rng.random() < 0.8 else None)
                acts.append({**step, "after": round(rng.choice((0, rng.uniform(0, 0.3))), 4)})
        if rng.random() < 0.5:
            acts.append({"do": "kill", "on": self.one(), "after": round(rng.uniform(0, 0.3), 4)})
        self.steps.append({"do": "race", "acts": acts})
        for act in acts:
            if act["do"] == "kill":
                self.settle(0.2)
                self.add("start", on=act["on"])
        self.settle()

    def partition(self) -> None:
        rng = self.rng
        about = self.known(0.6)
        names = list(self.names)
        rng.shuffle(names)
        cut = rng.randint(1, len(names) - 1)
        sides = [names[:cut], names[cut:]]
        if rng.random() < 0.2:
            sides = [[name] for name in names]
        elif rng.random() < 0.3 and len(names) > 3:
            first, second = sorted(rng.sample(range(1, len(names)), 2))
            sides = [names[:first], names[first:second], names[second:]]
        elif rng.random() < 0.15 and len(names) > 2:
            # A chain: m1-m2-m3, and m1 and m3 do not see each other.
            sides = [names[i : i + 2] for i in range(len(names) - 1)]
        self.add("partition", sides=sides, mode=rng.choice((REFUSE, SILENT)))
        for side in sides:
            self.some(1, 3, side)
        for _ in range(rng.randint(0, 2)):
            self.contested([rng.choice(sides[0]), rng.choice(sides[-1])], about)
        self.settle(0.3)
        if rng.random() < 0.3:
            victim = self.one()
            self.add("kill", on=victim)
            self.some(0, 1)
            self.add("start", on=victim)
        self.add("heal", break_off=rng.random() < 0.5)
        self.settle()

    def one_way(self) -> None:
        pairs = [
            (a, b) for a in self.names for b in self.names if a != b and self.rng.random() < 0.5
        ]
        self.add("links", pairs=pairs, mode=self.rng.choice((DEAF, REFUSE, SILENT)))
        self.some(2, 4)
        self.contested(self.names)
        self.add("heal", break_off=self.rng.random() < 0.5)
        self.settle()

    def slow(self) -> None:
        pairs = [(a, b) for a in self.names for b in self.names if a != b]
        self.add("links", pairs=self.rng.sample(pairs, len(pairs) // 2), mode=SLOW)
        self.some(2, 4)
        self.race()
        self.add("heal", break_off=False)

    def crash(self) -> None:
        name = self.one()
        about = self.known(0.5)
        self.add(self.rng.choice(("kill", "kill", "stop")), on=name)
        self.some(1, 3)
        self.contested([name, self.rng.choice(self.others(name))], about)
        self.settle(0.3)
        self.add("start", on=name)
        self.settle()

    def storm(self) -> None:
        """Faults on several masters, and perhaps between them, before any is over."""
        rng = self.rng
        about = self.known(0.6)
        self.add("settle")
        struck = rng.sample(self.names, min(len(self.names), rng.choice((2, 3))))
        faults = rng.sample(list(UNDONE_BY), len(struck))
        for name, fault in zip(struck, faults, strict=True):
            if fault == "lose_replica":
                self.add("kill", on=name)
            self.add(fault, on=name)
            self.some(0, 2)
        if rng.random() < 0.4:
            first = struck[0]
            self.add("partition", sides=[[first], self.others(first)], mode=REFUSE)
        self.contested(self.names, about)
        self.settle(0.3)
        undone = list(zip(struck, faults, strict=True))
        rng.shuffle(undone)
        for name, fault in undone:
            self.add(UNDONE_BY[fault], on=name)
            self.some(0, 1)
        self.add("heal", break_off=rng.random() < 0.5)
        self.settle()

    def freeze(self) -> None:
        name = self.one()
        about = self.known(0.5)
        self.add("freeze", on=name)
        self.some(1, 3)
        self.contested([name, self.rng.choice(self.others(name))], about)
        self.settle(0.2)
        self.add("cont", on=name)
        self.settle()

    def full_disk(self) -> None:
        name = self.one()
        about = self.known(0.5)
        self.add("fill", on=name)
        self.some(1, 3)
        self.contested([name, self.rng.choice(self.others(name))], about)
        self.restart(name, 0.4)
        self.add("free", on=name)
        self.settle()

    def read_only(self) -> None:
        name = self.one()
        about = self.known(0.6)
        self.add("protect", on=name)
        self.some(1, 3, self.others(name))
        self.contested(self.others(name), about)
        self.settle(0.5)
        self.restart(name, 0.6)
        self.add("unprotect", on=name)
        self.settle()

    def restart(self, name: str, chance: float) -> None:
        if self.rng.random() < chance:
            self.add("kill", on=name)
            self.add("start", on=name)

    def lost_replica(self) -> None:
        name, rng = self.one(), self.rng
        others = self.others(name)
        if rng.random() < 0.7:
            # The content of this master is older than what the others decide meanwhile.
            minion_id = self.fresh()
            self.add("knock", on=name, id=minion_id, key="k0", wait=True)
            self.add(rng.choice(("reject", "reject", "accept")), on=name, id=minion_id, wait=True)
            self.add("settle")
            self.add("kill", on=name)
            other = rng.choice(others)
            self.add("delete", on=other, id=minion_id, wait=True)
            self.add("knock", on=other, id=minion_id, key="k0", wait=True)
            self.add("accept", on=other, id=minion_id, wait=True)
        else:
            self.known(0.5)
            self.add("kill", on=name)
            self.some(1, 3)
        self.add("lose_replica", on=name)
        alone = rng.random() < 0.4
        if alone:
            self.add("partition", sides=[[name], others], mode=REFUSE)
        self.add("start", on=name)
        if alone:
            self.some(0, 2)
            self.restart(name, 0.5)
            self.add("heal", break_off=True)
        self.settle()

    def older_replica(self) -> None:
        name = self.one()
        self.settle(0.7)
        self.add("save_replica", on=name)
        self.some(1, 4)
        self.contested(self.names)
        self.settle(0.5)
        self.add(self.rng.choice(("kill", "stop")), on=name)
        self.add("restore_replica", on=name)
        self.add("start", on=name)
        self.settle()

    def older_folder(self) -> None:
        name = self.one()
        about = self.known()
        self.add("save_folder", on=name)
        # A folder is signed anew at each start, and every hour; a backup is older than that.
        self.add("kill", on=name)
        self.add("start", on=name)
        self.some(1, 4)
        self.contested(self.names, about)
        self.add("settle")
        if self.rng.random() < 0.5:
            self.add("kill", on=name)
        self.add("restore_folder", on=name)
        self.add("start", on=name)
        self.settle()

    def reverted(self) -> None:
        """A virtual machine goes back to its snapshot: nothing on it shows that it did."""
        name = self.one()
        about = self.known()
        self.add("save_machine", on=name)
        self.add("delete", on=self.rng.choice(self.others(name)), id=about, wait=True)
        self.some(0, 3)
        self.settle(0.8)
        self.add("await_dropping", id=about)
        self.add("restore_machine", on=name)
        self.add("start", on=name)
        self.settle()

    def unmounted(self) -> None:
        name = self.one()
        self.add("settle")
        down = self.rng.random() < 0.4
        if down:
            self.add("stop", on=name)
        self.add("unmount", on=name)
        if down and self.rng.random() < 0.7:
            self.add("start", on=name)
        self.some(0, 3, self.others(name))
        if self.rng.random() < 0.5:
            self.contested(self.others(name))
        self.add("mount", on=name)
        self.add("start", on=name)
        self.add("settle")

    def wiped(self) -> None:
        """All accepted keys are removed from the right folder: only their number tells."""
        name = self.one()
        self.add("wipe", on=name, down=self.rng.random() < 0.3)
        self.add("start", on=name)
        self.add("held", on=name)
        self.some(0, 3, self.others(name))
        if self.rng.random() < 0.5:
            self.contested(self.others(name))
        self.restart(name, 0.3)
        self.add(self.rng.choice(("refill", "put_back")), on=name)
        self.add("settle")

    def replay(self) -> None:
        source, target = self.rng.sample(self.names, 2)
        about = self.known(0.6)
        self.add("record", on=source)
        self.some(1, 3)
        self.contested(self.names, about)
        self.settle()
        self.add("replay", on=target, seed=self.rng.randrange(1000))

    def membership(self) -> None:
        rng = self.rng
        if len(self.names) > 2 and rng.random() < 0.6:
            name = self.one()
            self.settle(0.7)
            self.add("remove_member", on=rng.choice(self.others(name)), name=name)
            self.names.remove(name)
            self.some(0, 2)
        if not self.joined:
            self.joined = True
            new = self.spare.name
            via = self.one()
            for _ in range(rng.randint(0, 2)):
                self.add(
                    "had", on=new, id=rng.choice((*HOT, BULK[0])), key=rng.choice(KEY_NAMES),
                    state=rng.choice(("accepted", "pending")),
                )  # fmt: skip
            self.add("join", on=new, via=via, running=rng.random() < 0.5)
            self.names.append(new)
            self.some(1, 2)
            self.settle()
