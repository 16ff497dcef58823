"""What masters of two releases do together, with a method for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import Lab, Master, wait_for

SOON = 60.0
COMMANDS = ("ha.keys", "ha.peers", "ha.history")


class Scene:
    """
    Three masters; m1 and m3 are older.

    :param old: the interpreters of m1 and m3. :param upgrade: installs this release in one.
    """

    def __init__(self, lab: Lab, old: Sequence[Path], upgrade: Callable[[Path], None]) -> None:
        self._lab, self._old, self._upgrade = lab, old, upgrade
        ha = {"sync_interval": 1, "peer_timeout": 2}
        self._m1 = lab.add_master("m1", ha=ha, python=old[0])
        self._m2 = lab.add_master("m2", ha=ha)
        self._m3 = lab.add_master("m3", ha=ha, python=old[1])
        self._m1.share_master_key(self._m2, self._m3)
        self._wanted: dict[str, str] = {}
        """Id → the folder in which its key must be; empty: in none."""
        self._told: dict[str, list[Any]] = {}

    def steps(self) -> Iterator[Callable[[], None]]:
        """The steps in their order."""
        yield self.start
        yield self.join
        yield self.change
        yield self.miss
        yield self.ask
        yield self.upgrade_m1
        yield self.remember
        yield self.change
        yield self.miss
        yield self.ask
        yield self.upgrade_m3
        yield self.remember
        yield self.change
        yield self.ask

    def start(self) -> None:
        """m1 and m3 of the earlier commit and m2 of this one run"""
        self._lab.start_all()

    def join(self) -> None:
        """m1 invites m2, and m2 invites m3"""
        for first, other in ((self._m1, self._m2), (self._m2, self._m3)):
            other.join(first.invite()).check()
        wait_for(self._level, SOON, "the group has met")

    def change(self) -> None:
        """Keys are accepted, rejected and deleted on each of them, and all show it"""
        for master in self._masters():
            for word, folder in (("-a", "minions"), ("-r", "minions_rejected"), ("-d", "")):
                self._decide(master, word, folder)
        self._shown()

    def miss(self) -> None:
        """Each is stopped while another one changes keys, and catches up"""
        for away, here in ((self._m2, self._m1), (self._m3, self._m2), (self._m1, self._m2)):
            before = self._knocked(here)
            self._shown()
            away.stop()
            here.salt_key("-d", before, "-y").check()
            self._wanted[before] = ""
            self._decide(here, "-a", "minions")
            away.start()
            self._shown()

    def ask(self) -> None:
        """The commands answer on each, and name only other releases, and what one lacks"""
        for master in self._masters():
            for command in COMMANDS:
                master.salt_run(command).check()
            found = master.salt_run("ha.check_consistency", timeout=120).data
            assert not found["unknown"], f"{master.name}: {found['unknown']}"
            differ = {n: each for n, each in found["sections"].items() if each["status"] != "same"}
            rest = {name for name, each in differ.items() if not _is_untold(each)}
            assert rest <= {"versions"}, f"{master.name}: {rest}: {found}"
        self._told = {each: self._history(self._m1, each) for each in self._wanted}

    def upgrade_m1(self) -> None:
        """m1 is upgraded, and starts with what it has on its disk"""
        self._renewed(self._m1, self._old[0])

    def upgrade_m3(self) -> None:
        """m3 is upgraded as well"""
        self._renewed(self._m3, self._old[1])

    def _renewed(self, master: Master, python: Path) -> None:
        master.stop()
        self._upgrade(python)
        master.start()
        wait_for(self._level, SOON, "the group has met again")

    def remember(self) -> None:
        """They show the same keys as before, and tell the same of them"""
        self._shown()
        for minion_id, told in self._told.items():
            now = self._history(self._m1, minion_id)
            assert now == told, f"history of {minion_id}: {told} has become {now}"

    def _masters(self) -> list[Master]:
        return [self._m1, self._m2, self._m3]

    def _level(self) -> bool:
        """Whether each master says that all run and have the same keys."""
        rows = [row for each in self._masters() for row in each.control("status")["masters"]]
        return len(rows) == 9 and all(
            row["state"] == "running" and row["behind"] == 0 for row in rows
        )

    def _knocked(self, master: Master) -> str:
        """Put the pending key of a new minion there; return its id."""
        minion_id = f"minion-{len(self._wanted)}"
        master.plant("minions_pre", minion_id, self._lab.key_pair()[1])
        self._wanted[minion_id] = "minions_pre"
        return minion_id

    def _decide(self, master: Master, word: str, folder: str) -> None:
        minion_id = self._knocked(master)
        master.salt_key(word, minion_id, "-y").check()
        self._wanted[minion_id] = folder

    def _shown(self) -> None:
        """Wait until all masters that run have each key in the folder where it must be."""

        def differing() -> list[str]:
            return [
                f"{master.name}: {minion_id}"
                for master in self._masters()
                for folder, keys in master.keys().items()
                for minion_id, wanted in self._wanted.items()
                if (minion_id in keys) != (folder == wanted)
            ]

        try:
            wait_for(lambda: not differing(), SOON, "")
        except TimeoutError:
            raise AssertionError(f"not as they are to be: {differing()}") from None

    def _history(self, master: Master, minion_id: str) -> list[Any]:
        """What a master tells about the decisions on an id."""
        answer = master.salt_run("ha.history", minion_id).check().data
        return [(each["state"], each["by"], each["on"]) for each in answer["writes"]]


def _is_untold(section: Mapping[str, Any]) -> bool:
    """Whether a section of a check is unknown only because an older release does not report it."""
    why = section["unknown"].values()
    return bool(why) and not section["differences"] and all("not reported" in each for each in why)
