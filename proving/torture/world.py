"""A group of masters and the network between them: what is up, who reaches whom, who agrees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lab.engines import befriend
from lab.network import Network
from proving.torture.auditor import Auditor, Report
from proving.torture.bus import TAG
from proving.torture.history import BULK, History, MasterSpec
from proving.torture.keys import ACCEPTED, DENIED, KEYS, Entry, Slot, slot_of
from proving.torture.ledger import GRANT, Ledger
from proving.torture.member import Member
from proving.torture.nursery import Nursery
from proving.torture.proxy import OPEN, REFUSE, SILENT, SLOW, Loop, Relay
from proving.torture.reactions import Reactions
from proving.torture.watch import Operation, Watcher
from saltext_ha.reconciler.write_mode import ADOPTING

BULK_KEY = "k2"
# For what never comes: at a load of 30 it takes a minute.
SETTLED = 180.0
NOTICED = 3.0
POLL = 0.03

T = TypeVar("T")


class Violation(Exception):
    """An invariant does not hold; the message begins with its number."""


class World:
    """
    The masters of *history*, below *root*, started and settled.

    :param nurseries: one for each Salt that is to take part.
    :param mutant: a guard to take out of the product; empty for none.
    :param mounting: see :class:`proving.torture.faults.Disk`.
    """

    def __init__(
        self,
        history: History,
        root: Path,
        nurseries: Sequence[Nursery],
        *,
        mutant: str = "",
        mounting: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.operations: list[Operation] = []
        self.hands: dict[str, list[Operation]] = {}
        """Master → when a fault changed its key folder as a whole."""
        self.mounting = mounting
        self.members: dict[str, Member] = {}
        self.relays: dict[tuple[str, str], Relay] = {}
        self._root, self._nurseries, self._mutant = root, nurseries, mutant
        self.drops = history.drops
        self._network = Network()
        self._loop = Loop()
        self.watcher = Watcher()
        self.reactions = Reactions(root)
        port = self._network.ports.peer
        self.auditor = Auditor(self._loop, root / "auditor", self._network.address(), port)
        try:
            self._build(history, port)
        except BaseException:
            self.close()
            raise

    def _build(self, history: History, port: int) -> None:
        specs = (*history.masters, history.spare)
        homes = {spec.name: self._network.address() for spec in specs}
        for a in homes:
            for b in homes:
                if a != b:
                    address = (self._network.address(), port)
                    self.relays[a, b] = Relay(self._loop, address, (homes[b], port))
        self._homes, self._port = homes, port
        for spec in history.masters:
            member = self.add(spec)
            for minion_id in BULK:
                member.operator.put(minion_id, BULK_KEY)
                self.ledger.act(spec.name, GRANT, (minion_id, BULK_KEY))
            self.watcher.add(member)
        befriend(*(member.place for member in self.members.values()))
        for member in self.members.values():
            self.auditor.introduce(member)
            member.place.begin()
            member.start()
        self.watcher.start()
        self.settle(self.group())

    def add(self, spec: MasterSpec) -> Member:
        """Add a master that is not started, and in no group."""
        nursery = self._nurseries[spec.salt % len(self._nurseries)]
        native = nursery.salt.split(".")[0]
        member = Member(
            {
                "root": str(self._root),
                "name": spec.name,
                "port": self._port,
                "options": {
                    "interface": self._homes[spec.name],
                    "reactor": [{f"{TAG}*": ["/srv/reactor/any.sls"]}],
                },
                "ha": {
                    "state_dir": str(self._root / spec.name / "ha"),
                    "sync_interval": 0.2,
                    "scan_interval": 2,
                    "peer_timeout": 1,
                    "keep_tombstones": 0 if self.drops else 30,
                    "once": {"reactor": True},
                    "peers": [
                        {"name": b, "url": "https://{}:{}".format(*relay.address)}
                        for (a, b), relay in self.relays.items()
                        if a == spec.name
                    ],
                },
            },
            nursery,
            offset=spec.offset,
            layout=spec.layout if native == "3008" else "legacy",
            mutant=self._mutant,
            mounting=self.mounting,
        )
        self.members[spec.name] = member
        self.counts[f"master on Salt {nursery.salt}"] += 1
        self.counts[f"master with the key folder of {'3007' if member.legacy else '3008'}"] += 1
        if spec.offset:
            self.counts["clock off by up to 6 h"] += 1
        return member

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the event loop of the relays."""
        return self._loop.run(work)

    def close(self) -> None:
        if self.watcher.is_alive():
            self.watcher.stop()
        for member in self.members.values():
            member.close()
        self.reactions.close()
        self.auditor.close()
        for relay in self.relays.values():
            relay.close()
        self._loop.close()
        self._network.close()

    # -- who reaches whom

    def group(self) -> list[str]:
        """The names of the masters in the group."""
        return [name for name, member in self.members.items() if not member.gone]

    def may_reach(self) -> list[list[str]]:
        """Groups of masters among which news may spread in any way."""
        alive = [name for name, member in self.members.items() if member.pid]
        return list(components(alive, lambda a, b: self.relays[a, b].mode not in (REFUSE, SILENT)))

    def reach(self) -> list[list[str]]:
        """Groups of healthy members among which news spreads."""
        healthy = [name for name in self.group() if self.members[name].healthy]
        return list(components(healthy, lambda a, b: self.relays[a, b].mode in (OPEN, SLOW)))

    def flow(self) -> None:
        """Enter in the ledger what each master may know by now."""
        self.ledger.can_flow(self.may_reach())

    # -- what they agree on

    def settle(self, group: Sequence[str], deadline: float = SETTLED) -> dict[str, Report]:
        """
        Wait until the masters of *group* have noticed everything and show the same. Do not wait for
        a master that lost its replica and is alone: it waits for a peer, and says so.

        :raises Violation: they do not, in *deadline* seconds.
        """
        end = time.monotonic() + deadline
        while True:
            flaw, reports = self._disagreement(group)
            if not flaw:
                self.flow()
                self.ledger.settled(group)
                return reports
            if len(group) == 1 and any(ADOPTING in r.notes for r in reports.values()):
                return reports
            if time.monotonic() > end:
                raise Violation(f"I1 not settled within {deadline:g} s: {flaw}")
            time.sleep(POLL)

    def _disagreement(self, group: Sequence[str]) -> tuple[str, dict[str, Report]]:
        reports: dict[str, Report] = {}
        shown: dict[str, dict[str, Entry]] = {}
        for name in group:
            member = self.members[name]
            before = member.folders.look()
            report = self.auditor.report(member)
            shown[name] = member.folders.look()
            if report is None:
                return f"the engine of {name} does not answer", reports
            reports[name] = report
            if report.held:
                return f"{name} holds {report.held} keys back", reports
            if report.dirty or before != shown[name]:
                return f"{name} has {report.dirty} keys to apply: {report.notes}", reports
            for minion_id in sorted(shown[name].keys() | report.shown.keys()):
                there, noted = shown[name].get(minion_id, {}), report.shown.get(minion_id, {})
                if self.view(name, there) != self.view(name, noted):
                    return f"{name} has not noticed {minion_id}: {there}, noted {noted}", reports
        first = group[0]
        for name in group[1:]:
            if reports[name].root != reports[first].root:
                return f"the records of {first} and {name} differ", reports
            for minion_id in sorted(shown[first].keys() | shown[name].keys()):
                ours, theirs = (self.slot(n, shown[n].get(minion_id, {})) for n in (first, name))
                if ours != theirs and minion_id not in reports[name].conflicts:
                    return f"{minion_id} on {first}: {ours}, on {name}: {theirs}", reports
        return "", reports

    def notice(self, name: str, minion_id: str) -> None:
        """Wait until the engine of *name* has recorded what its folders show for *minion_id*."""
        member = self.members[name]
        if not member.healthy:
            return
        end = time.monotonic() + NOTICED
        while time.monotonic() < end:
            report = self.auditor.report(member)
            if report and not report.held:
                there, noted = member.folders.entry(minion_id), report.shown.get(minion_id, {})
                if self.view(name, there) == self.view(name, noted):
                    self.ledger.noticed(name, minion_id)
                    return
            time.sleep(POLL)
        self.counts["not noticed in time"] += 1

    def notice_all(self, name: str) -> None:
        """:meth:`notice` every id that is in the folders of *name*, or has gone from them."""
        member = self.members[name]
        report = self.auditor.report(member) if member.healthy else None
        for minion_id in member.folders.look().keys() | (report.shown if report else {}).keys():
            self.notice(name, minion_id)

    def slot(self, name: str, entry: Entry) -> Slot | None:
        """The slot that the Salt of master *name* reads from *entry*."""
        return slot_of(entry, self.members[name].legacy)

    def view(self, name: str, entry: Entry) -> tuple[Slot | None, str | None]:
        """The slot, and the denied key."""
        return self.slot(name, entry), entry.get(DENIED)

    def accepted(self, name: str) -> dict[str, str]:
        """Accepted ids and their keys, as the folders of master *name* show them."""
        found = {}
        for minion_id, entry in self.members[name].folders.look().items():
            slot = self.slot(name, entry)
            if slot and slot[0] == ACCEPTED:
                found[minion_id] = slot[1]
        return found


def pairs_of(minion_id: str) -> Iterator[tuple[str, str]]:
    """Every pair that an id can have."""
    return ((minion_id, key) for key in KEYS)


def components(names: Iterable[str], linked: Callable[[str, str], bool]) -> Iterator[list[str]]:
    """Those of *names* that are linked, directly or by others, and in any direction."""
    left = list(names)
    while left:
        found = [left.pop(0)]
        for name in found:
            near = [other for other in left if linked(name, other) or linked(other, name)]
            found += near
            left = [other for other in left if other not in near]
        yield found
