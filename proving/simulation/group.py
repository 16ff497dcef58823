"""A group of masters: the part of their engines that talks to peers, and when all are level."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from proving.simulation.kernel import Kernel, Process, Worker
from proving.simulation.keys import AT, Keys, node
from proving.simulation.network import REGIONS, Conditions, Network, Payload, Traffic
from proving.simulation.replica import MemoryReplica, Pool
from proving.simulation.stage import Client
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import PeerError
from saltext_ha.config.mapping import HaConfig
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.merging import Merged
from saltext_ha.replication.record import Dot, Record, Value, decide, merge
from saltext_ha.sync import answers, messages
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.link import Link
from saltext_ha.sync.repair_leases import RepairLeases
from saltext_ha.sync.rounds import Rounds
from saltext_ha.sync.sending import Sender
from saltext_ha.sync.vouching import Vouching
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.peer import Peer

T = TypeVar("T")

MEMBERS_INTERVAL = 60.0
CERTIFICATE = "x" * 729  # as many characters as the PEM of a real one


@dataclass(frozen=True)
class Settings:
    """
    The properties of a group.

    :param learn: seconds that a master works on a peer's record: check, merge, commit, key file.
    :param known: the same for a record that says nothing new.
    :param look: seconds that it works to compare a bucket, or to look up a record.
    """

    masters: int = 50
    interval: float = HaConfig.sync_interval
    timeout: float = HaConfig.peer_timeout
    learn: float = 0.001
    known: float = 0.0001
    look: float = 0.00002


class MemoryCore:
    """``service.core.Core`` over a :class:`MemoryReplica`: one thread, whose work takes time."""

    def __init__(self, master: Master) -> None:
        self.replica = master.replica
        self._master = master
        self._worker = Worker(master.kernel)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Like :meth:`Core.run`."""
        async with self._worker:
            before = self.replica.looks
            result = function(*arguments)
            looks = self.replica.looks - before
            await self._master.kernel.sleep(looks * self._master.group.settings.look)
        return result

    async def learn(self, records: Sequence[Record]) -> Merged:
        """Like :meth:`Core.learn`: merged, durable, and in the key store when this returns."""
        async with self._worker:
            settings = self._master.group.settings
            news = self._master.news(records)
            repeated = len(records) - len(news)
            await self._master.kernel.sleep(len(news) * settings.learn + repeated * settings.known)
            self._master.learn(news)
        return Merged(len(news))

    async def dropped_elsewhere(self, told: Mapping[tuple[str, bytes], bytes]) -> None:
        """Nobody drops tombstones here."""


class Trustful:
    """Like :class:`.Vouching`, for a master that takes everything."""

    async def meet(self, core: MemoryCore, sender: str, raw: Any) -> None:
        """Nobody vouches for anything."""

    async def learn(
        self, core: MemoryCore, sender: str, raw: Any, records: Sequence[Record], unread: Any
    ) -> Merged:
        """All counts."""
        return await core.learn(records)

    def of(self, nodes: Iterable[str]) -> list[list[Any]]:
        """The same."""
        return []

    def note(self, peer: str, reasons: Sequence[str]) -> None:
        """Nothing is refused."""

    def refused(self, peer: str, reasons: Any) -> None:
        """The same."""


class Master:
    """One master, up or down. It keeps its replica while it is down, as a real one does."""

    def __init__(self, group: Group, number: int, replica: MemoryReplica) -> None:
        self.group = group
        self.kernel: Kernel = group.kernel
        self.network: Network = group.network
        self.number = number
        self.name = f"m{number + 1}"
        self.region = number % len(REGIONS)
        self.is_up = False
        self.replica = replica
        self.links: dict[str, Link] = {}
        self.reached: dict[str, float] = {}
        """Minion id → when it learned of the write."""
        self.level_since: float | None = 0.0
        """Since when it knows all that there is to know."""
        self._counter = group.keys.count + 1
        self._processes: set[Process] = set()
        self._life = 0

    # -- life

    def start(self, delay: float = 0.0) -> None:
        """Begin to listen, and to call the others within *delay* seconds."""
        self.is_up = True
        self.core = MemoryCore(self)
        self.leases = RepairLeases(self.name)
        for peer in self.group.masters:
            if peer is not self:
                self.links[peer.name] = self._link(peer)
                wait = delay * self.group.random.random()
                self._process(self._later(wait, self.links[peer.name]))
        self._process(self._follow_members())

    def stop(self) -> None:
        """Stop it like ``kill -9``."""
        self.is_up = False
        self._life += 1
        processes, self._processes = self._processes, set()
        for process in processes:
            process.stop()
        self.links = {}

    def link_to_new(self, peer: Master) -> None:
        """Link to *peer*, which has joined."""
        self.links[peer.name] = self._link(peer)
        self._process(self.links[peer.name].run())

    def _link(self, peer: Master) -> Link:
        core, vouching, counters = cast(Core, self.core), cast(Vouching, Trustful()), Counters()
        settings = self.group.settings
        description = Peer(peer.name, f"https://{peer.name}.example.com:4530", CERTIFICATE, "")
        client = cast(PeerClient, Client(self, description, settings.timeout))
        contact = Contact(client, lambda tag, data: None, settings.interval)
        sender = Sender(contact, peer.name, core, vouching, counters)
        rounds = Rounds(contact, sender, core, vouching, self.leases, counters)
        return Link(
            contact,
            sender,
            rounds,
            greeting=self._describe,
            met=self._met,
            mistrusted=self._mistrusted,
        )

    async def _later(self, seconds: float, link: Link) -> None:
        await self.kernel.sleep(seconds)
        await link.run()

    async def _met(self, contact: Contact) -> None:
        await contact.call("signature", {"anew": False})

    async def _mistrusted(self, peer: Peer) -> bool:
        return False  # nobody renews a certificate here

    async def _follow_members(self) -> None:
        # Like engine.service, every minute and each time over new connections.
        await self.kernel.sleep(MEMBERS_INTERVAL * self.group.random.random())
        while True:
            for link in list(self.links.values()):
                self._process(self._tell_members(link.contact))
            await self.kernel.sleep(MEMBERS_INTERVAL)

    async def _tell_members(self, contact: Contact) -> None:
        target = self.group.masters[int(contact.peer.name[1:]) - 1]
        sketch, limit = self.group.sketch(), self.group.settings.timeout
        with contextlib.suppress(PeerError):
            await self.network.call(self, target, "members", sketch, limit, False)
            await contact.call("signature", {"anew": False})

    def _process(self, coroutine: Any) -> None:
        process = Process(coroutine, lambda done, value: self._processes.discard(done))
        if not process.over:
            self._processes.add(process)

    # -- what peers ask, as engine.service answers

    def serve(
        self, caller: int, method: str, payload: Payload, reply: Callable[[Payload], None]
    ) -> None:
        """Answer the master *caller*."""
        link = self.links.get(f"m{caller + 1}")
        if link:
            link.heard()
        replica: Any = self.replica
        if method == "digest":
            reply(answers.answer_digest(replica, payload))
        elif method == "branches":
            name, now = f"m{caller + 1}", self.kernel.now
            reply(
                answers.answer_branches(
                    replica, payload, lambda branch: self.leases.open_to(branch, name, now)
                )
            )
        elif method == "hello":
            reply({**self._describe(), "caller": f"m{caller + 1}"})
        elif method == "signature":
            reply({"signature": "0" * 32, "shared": False})
        elif method == "members":
            reply({"self": self.group.sketch()["self"], "same": True})
        else:
            self._process(self._work(self._life, f"m{caller + 1}", method, payload, reply))

    async def _work(
        self,
        life: int,
        caller: str,
        method: str,
        payload: Payload,
        reply: Callable[[Payload], None],
    ) -> None:
        if method == "compare":
            question, taken = self.leases.admit(payload, caller, self.kernel.now)
            answer = await self.core.run(answers.answer_compare, self.replica, question)
            self.leases.answered(taken, answer, caller)
        elif method == "push":
            records, reasons = messages.read_records(payload.get("records"))
            if reasons:
                raise AssertionError(f"{self.name} refuses what it was sent: {reasons[0]}")
            with self.leases.receiving(len(records), lambda: self.kernel.now):
                merged = await self.core.learn(records)
            self.leases.received((record.minion_id for record in records), caller)
            answer = {"learned": merged.learned, "refused": [], "dropped": []}
        else:
            raise AssertionError(f"the simulation does not know the method {method}")
        if life == self._life:
            reply(answer)

    def _describe(self) -> Payload:
        return {
            "name": self.name,
            "group": "prod",
            "mode": "enforce",
            "one_denied": True,
            "salt": "3008.3",
            "version": "0.1.0",
        }

    # -- what it knows

    def news(self, records: Iterable[Record]) -> list[Record]:
        """The *records* of a peer that say something new, merged with what is known."""
        found = []
        for theirs in records:
            ours = self.replica.get(theirs.minion_id).get(theirs.fingerprint)
            merged = merge(ours, theirs) if ours else theirs
            if merged != ours:
                found.append(merged)
        return found

    def learn(self, records: Iterable[Record]) -> None:
        """Know *records* from now on."""
        for record in records:
            self.replica.put(record)
            if record.minion_id in self.group.watched:
                self.reached.setdefault(record.minion_id, self.kernel.now)
        self.group.note(self)

    def decide(self, changes: Iterable[tuple[int, str]], push: bool = True) -> None:
        """An operator here makes *changes* (key, new state); one look at the store finds all."""
        records = []
        for index, state in changes:
            keys = self.group.keys
            record = self.replica.get(keys.minion_id(index))[keys.fingerprint(index)]
            self._counter += 1
            value = Value(Dot(node(self.number), self._counter), state, AT, "root", self.name)
            record = decide(record, dict(record.context), value)
            self.replica.put(record)
            records.append(record)
        self.group.written(self, records)
        if push:
            for link in self.links.values():
                link.push(records)


class Group:
    """*settings.masters* masters that know the same *keys*; nobody is up yet."""

    def __init__(
        self,
        keys: Keys,
        settings: Settings,
        conditions: Conditions,
        seed: int,
    ) -> None:
        self.keys = keys
        self.settings = settings
        self.random = random.Random(seed)
        self.kernel = Kernel()
        self.network = Network(self.kernel, self.random, conditions)
        self.pool = Pool()
        self.watched: set[str] = set()
        self.truth = MemoryReplica(keys, self.pool)
        """What all masters know in the end: every write is merged into it at once."""
        self.masters: list[Master] = []
        self._behind: dict[Master, None] = {}
        for _ in range(settings.masters):
            self.add()

    def add(self, empty: bool = False) -> Master:
        """Add a master, which is down; *empty*: it knows nothing."""
        replica = MemoryReplica(self.keys, self.pool, empty)
        master = Master(self, len(self.masters), replica)
        self.masters.append(master)
        self.network.hosts.append(master)
        self.note(master)
        return master

    def sketch(self) -> Payload:
        """What masters tell each other about the members, which all know here."""
        me = {"name": "m1", "url": "https://m1.example.com:4530"}
        return {"self": me, "group": "prod", "digest": b"x" * 16}

    def start(self) -> None:
        """Start all masters, until they are connected and level; its cost is not counted."""
        for master in self.masters:
            master.start(self.settings.interval)
        self.run(max(15.0, 2 * self.settings.interval))
        self.network.traffic = Traffic()

    def run(self, seconds: float, over: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return whether *over* came true."""
        return self.kernel.run(self.kernel.now + seconds, over)

    def written(self, writer: Master, records: Iterable[Record]) -> None:
        """Note that *writer* wrote *records*: no other master is level until they arrive there."""
        for record in records:
            ours = self.truth.get(record.minion_id).get(record.fingerprint)
            self.truth.put(merge(ours, record) if ours else record)
        for master in self.masters:
            self.note(master)

    def note(self, master: Master) -> None:
        """Note whether *master* knows all now."""
        if master.replica.records.root != self.truth.records.root:
            master.level_since = None
            self._behind[master] = None
        elif master.level_since is None:
            master.level_since = self.kernel.now
            self._behind.pop(master, None)

    def level(self) -> bool:
        """Whether all masters that are up know all."""
        return not any(master.is_up for master in self._behind)

    def until_level(self, limit: float) -> None:
        """
        Let time pass until all are level.

        :raises AssertionError: they are not within *limit* seconds.
        """
        if not self.level() and not self.run(limit, self.level):
            behind = [master.name for master in self._behind if master.is_up]
            raise AssertionError(f"after {limit:g} s still behind: {', '.join(behind)}")

    def states(self, index: int) -> Counter[str | None]:
        """How many masters see key *index* in which state."""
        key = self.keys.fingerprint(index)
        found = (m.replica.get(self.keys.minion_id(index)).get(key) for m in self.masters)
        return Counter(record.state if record else None for record in found)
