"""Which version of each tree is current, as far as this master knows: it asks its peers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from saltext_ha.common.errors import HaError, InvalidRecord, PeerError, PeerRefused, reason_of
from saltext_ha.common.fail_points import point
from saltext_ha.common.tasks import answers_of
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.deployments import HERE
from saltext_ha.replica.history import Receipt
from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import KEPT, MOST_NUMBER, Deployment, Entry, Register
from saltext_ha.replication.record import Dot
from saltext_ha.sync import register_rows as rows
from saltext_ha.sync.codec import MAX_TIME
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.vouching import Vouching, writers
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

LONGEST = 512


class TreeRegisters(Mapping[str, Register]):
    """
    The register of each tree.

    :param names: of the trees.
    :param contacts: to the peers, by name.
    :param refuse: takes the name of a peer that sent nonsense.
    :param vouching: the masters' statements of what they wrote.
    :ivar changed: set whenever a peer's register changed one here.
    """

    def __init__(
        self,
        names: Iterable[str],
        core: Core,
        contacts: Mapping[str, Contact],
        refuse: Callable[[str], None],
        vouching: Vouching,
    ) -> None:
        self._core, self._contacts = core, contacts
        self._refuse, self._vouching = refuse, vouching
        self._writing = asyncio.Lock()
        self.changed = asyncio.Event()
        self._asked: set[str] = set()
        self._met = False
        """Whether all peers that are up were asked since the start."""
        self._troubles: dict[str, str] = {}
        """Peer → the note on what it says, or does not say."""
        stored = core.replica.trees.all(from_rows)
        self._known = {name: stored.get(name, Register()) for name in names}

    def __getitem__(self, name: str) -> Register:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def kept(self, name: str) -> set[bytes]:
        """Versions of a tree that a rollback can go back to."""
        return {entry.version for entry in self._known[name].entries[:KEPT]}

    def unasked(self) -> list[str]:
        """
        Peers that are still to be asked after the start. Down is an answer, too: a master must
        serve when it is the only one left.
        """
        if self._met:
            return []
        unasked = [
            name
            for name, contact in self._contacts.items()
            if name not in self._asked and contact.up is not False
        ]
        self._met = not unasked
        return sorted(unasked)

    def notes(self) -> Iterator[str]:
        """Notes on what peers say, or do not say."""
        yield from (why for peer, why in self._troubles.items() if peer in self._contacts)

    # -- what this master writes and tells

    async def decide(
        self, name: str, entry: Entry, known: Register, old: Entry | None = None
    ) -> Register:
        """
        Make *entry* current, over all deployments known here; returns the register, for the peers.

        :param known: the register that whoever deploys has looked at.
        :param old: as :func:`.deployment.deploy` takes it.
        :raises HaError: the register is another one by now.
        """
        replica = self._core.replica

        def write() -> Register:
            with replica.transaction():
                dot = replica.next_dot()
                register = deployment.deploy(self._known[name], dot, entry, old)
                self._put(name, register)
            return register

        async with self._writing:
            if why := self.moved(name, known):
                raise HaError(why)
            self._known[name] = register = await self._core.run(write)
        point("tree.decided")
        return register

    def moved(self, name: str, known: Register) -> str:
        """Why the register of a tree is no longer as *known*, and what to do; empty: it is."""
        if self._known[name] == known:
            return ""
        return (
            f"tree {name} was deployed on another master meanwhile; look at it by test=True, and "
            "deploy again"
        )

    def told(self, name: str, register: Register, adopt: bool) -> dict[str, Any]:
        """The message that has a peer serve the current version."""
        return {
            "tree": name,
            "register": to_rows(register),
            "vouched": self._vouched(register),
            "adopt": adopt,
        }

    def for_peers(self) -> dict[str, Handler]:
        return {"trees": self._answer}

    async def _answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        have = wire.field(payload, "have", dict)
        told = {n: r for n, r in self._known.items() if have.get(n) != r.digest}
        return {
            "trees": {name: to_rows(register) for name, register in told.items()},
            "vouched": self._vouched(*told.values()),
        }

    def _vouched(self, *registers: Register) -> list[Any]:
        return self._vouching.of(writers(registers))

    def _put(self, name: str, register: Register, receipt: Receipt = HERE) -> None:
        """Store a register; inside a transaction only."""
        replica = self._core.replica
        replica.trees.put(name, to_rows(register))
        replica.deployments.wrote(name, register.entries, receipt)
        point("tree.record")

    # -- what peers know

    async def learn(self, told: Mapping[str, Register], vouched: Any, sender: str) -> None:
        """Merge the registers that the peer *sender* knows, with the vouching beside them."""
        await self._vouching.meet(self._core, sender, vouched, told.values())
        async with self._writing:
            news = self._vouching.news(self._known, told, "tree", sender)
            if not news:
                return
            receipt = Receipt(sender, time.time())

            def write() -> None:
                with self._core.replica.transaction():
                    for name, register in news.items():
                        self._put(name, register, receipt)

            await self._core.run(write)
            self._known.update(news)
            self.changed.set()

    async def compare(self, with_these: Collection[str] | None = None) -> dict[str, str]:
        """
        Ask peers for their registers; returns peer → why it could not be asked.

        :param with_these: peers that must be asked, even if they are not up; None: all that are up.
        """
        must = with_these is not None
        contacts = {
            name: contact
            for name, contact in self._contacts.items()
            if with_these is None or name in with_these
        }
        _, errors = await answers_of(
            contacts, lambda name: self._compare(name, contacts[name], must)
        )
        return errors

    async def _compare(self, name: str, contact: Contact, must: bool) -> None:
        """:raises HaError: the peer could not be asked, or its answer is not taken; says why."""
        if not contact.up and not must:
            self._troubles.pop(name, None)
            raise HaError(contact.error or "it is not up")
        have = {tree: register.digest for tree, register in self._known.items()}
        try:
            answer = await contact.call("trees", {"have": have})
            told = wire.field(answer, "trees", dict)
            registers = {tree: from_rows(told[tree]) for tree in self._known.keys() & told.keys()}
            await self.learn(registers, answer.get("vouched"), name)
        except PeerRefused as exc:
            # It may be of a release without trees, and must keep nobody from serving.
            self._asked.add(name)
            why = self._trouble(name, f"{name} does not say what is current there", exc)
            raise HaError(why) from None
        except PeerError:  # its contact has noted it
            self._troubles.pop(name, None)
            raise
        except (HaError, OSError) as exc:
            # Nonsense, or our own disk is full: ask it again in the next round.
            if isinstance(exc, InvalidRecord):
                self._refuse(name)
            raise HaError(self._trouble(name, f"what {name} says is not taken", exc)) from None
        self._troubles.pop(name, None)
        self._asked.add(name)

    def _trouble(self, name: str, what: str, exc: Exception) -> str:
        """Note what is the matter with a peer; returns why."""
        why = reason_of(exc)
        text = f"trees: {what}: {why}"
        if self._troubles.get(name) != text:
            log.warning("ha %s", text)
        self._troubles[name] = text
        return why


def conflict(name: str, register: Register) -> str:
    """
    The note on a tree that two people deployed without knowing of each other; empty: they did not.
    """
    if not register.conflict:
        return ""
    sides = ", ".join(
        f"number {value.entry.number} on {value.entry.on} by {value.entry.by}"
        for value in register.values
    )
    return (
        f"tree {name}: different versions were deployed at once, or while masters did not see each "
        f"other ({sides}); each master goes on serving its own: salt-run ha.deploy {name}, or "
        "salt-run ha.rollback, ends that"
    )


def to_rows(register: Register) -> list[Any]:
    """``[[[node, counter, [entry, …]], …], [[node, counter], …]]``."""
    values = ([*value.dot, [list(entry) for entry in value.kept]] for value in register.values)
    return rows.to_rows(values, register.context)


def from_rows(raw: Any) -> Register:
    """:raises InvalidRecord: the rows make no sense; none of them may be used."""
    kinds = (str, int, list)
    return Register(*rows.from_rows(raw, "register of a tree", kinds, _deployment))


def _deployment(node: str, counter: int, kept: list[Any]) -> Deployment:
    if not 1 <= len(kept) <= KEPT:
        raise InvalidRecord("malformed deployment")
    kinds = (int, bytes, float, str, str, str, str, int, int)
    entries = tuple(Entry(*row) for row in wire.rows(kept, "deployment", *kinds))
    for entry in entries:
        texts = (entry.by, entry.on, entry.source, entry.message)
        if (
            len(entry.version) != 32
            or not 0 <= entry.at <= MAX_TIME
            or not 0 <= entry.number <= MOST_NUMBER
            or min(entry.files, entry.size) < 0
            or any(len(text) > LONGEST for text in texts)
        ):
            raise InvalidRecord("malformed deployment")
    return Deployment(Dot(node, counter), entries)
