"""The group as one engine sees it; asks all peers at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, InvalidRecord, StoreError
from saltext_ha.common.tasks import answers_of
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED, PENDING, REJECTED
from saltext_ha.sync.answers import RECORDS
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.key_rows import conflict_row
from saltext_ha.sync.links import Links
from saltext_ha.sync.summary import MasterSummary
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import Pins

T = TypeVar("T")

MAX_SHOWN = 1000
SLOW = 30.0  # seconds that a peer may take for an answer that needs work
JUST_JOINED = "joined just now; not asked yet"
MEANWHILE = "joined while masters were asked; ask again"
LEFT = "is not in the group any more"


class Group:
    """
    Gathers what the commands need from this master and its peers.

    A peer that does not answer is missing from the answers, and the errors say why: it is
    *unknown*, and must never count as equal.

    :ivar name: this master's name.
    :ivar links: to the peers, by name; a peer that has just joined has none yet.
    :ivar contacts: of these links, for those who only ask.
    :ivar timeout: seconds that a peer may take for an answer that needs no work.
    """

    def __init__(self, name: str, core: Core, pins: Pins, links: Links, timeout: float) -> None:
        self.name, self.links, self.timeout = name, links, timeout
        self.contacts: Mapping[str, Contact] = links.contacts
        self._core, self._pins = core, pins

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other masters, by name."""
        return self._pins.peers()

    @property
    def unread(self) -> list[str]:
        """What is wrong with the folder of peers and the files in it; see :meth:`damaged`."""
        return list(self._pins.problems().values())

    @property
    def undeleted(self) -> list[str]:
        """Which files of removed peers could not be deleted."""
        return list(self._pins.undeleted().values())

    @property
    def masters(self) -> list[str]:
        """All masters of the group, by name; also those that cannot be asked."""
        return sorted({self.name, *self.peers, *self.unasked()})

    @property
    def others(self) -> list[str]:
        """All :attr:`masters` but this one."""
        return [name for name in self.masters if name != self.name]

    def damaged(self) -> dict[str, str]:
        """
        Masters whose files cannot be read, and why; they are missing from :attr:`peers`. A file of
        this master's own name is no master's.
        """
        return {n: why for n, why in self._pins.damaged().items() if n != self.name}

    def unasked(self) -> dict[str, str]:
        """Masters that cannot be asked: they have just joined, or their file cannot be read."""
        joined = dict.fromkeys(self.peers.keys() - self.contacts.keys(), JUST_JOINED)
        return {**joined, **self.damaged()}

    def unreached(self) -> dict[str, str]:
        """Masters that do not answer this one's calls, and why."""
        return {
            name: contact.why_down for name, contact in self.contacts.items() if contact.why_down
        }

    def why_unasked(self, name: str) -> str:
        """Why there is no link to the master *name*."""
        return self.unasked().get(name, JUST_JOINED if name in self.peers else LEFT)

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""

        async def shown(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return {"keys": await self.shown(payload)}

        return {"keys": shown}

    async def shown(self, payload: Mapping[str, Any]) -> list[list[Any]]:
        """
        What the store shows: ``[id, state, fingerprint, [denied, …]]`` by glob or by ids.

        :raises StoreError: it is not known.
        """
        if unseen := self._core.unseen:
            raise StoreError(unseen)
        keeper = self._core.keeper
        ids, glob = payload.get("ids"), wire.field(payload, "glob", str, "*")
        if not (ids is None or isinstance(ids, list)):
            raise InvalidRecord("takes a glob or a list of ids")
        ids = ids and [minion_id for minion_id in ids[: 10 * MAX_SHOWN] if type(minion_id) is str]

        def read() -> list[list[Any]]:
            items = keeper.shown(glob) if ids is None else keeper.shown_of(ids)
            return [[i, s.state, s.key, sorted(s.denied)] for i, s in items if s != ABSENT]

        return await self._core.run(read)

    def _trifle(self) -> dict[str, Any]:
        """A small question, for the method ``digest``: it needs no work."""
        return {"tree": RECORDS, "root": self._core.replica.records.root}

    async def silent(self) -> dict[str, str]:
        """The peers that do not answer a small question now, and why."""
        return (await self.ask("digest", self._trifle()))[1]

    async def ask(
        self,
        method: str,
        payload: dict[str, Any] | None = None,
        timeout: float | None = None,
        own: Awaitable[dict[str, Any]] | None = None,
        without: Collection[str] = (),
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """
        Ask every peer at once; return the answers, and the reasons why peers did not answer.

        :param timeout: seconds that a peer may take; by default :attr:`timeout`. A peer gets longer
            only if it answers a small question in time, so an unresponsive one is noticed as fast.
        :param own: the answer of this master, if it belongs to them.
        :param without: peers that are not asked.
        """
        trifle = self._trifle()

        async def ask(contact: Contact) -> dict[str, Any]:
            if timeout and timeout > self.timeout:
                await contact.call("digest", trifle)
            return await contact.call(method, payload or {}, timeout or self.timeout)

        works = {self.name: own} if own is not None else {}
        works |= {
            name: ask(contact) for name, contact in self.contacts.items() if name not in without
        }
        answers, errors = await answers_of(works, works.__getitem__)
        # Members may have come and gone meanwhile.
        errors |= {name: why for name, why in self.unasked().items() if name not in works}
        return answers, errors

    async def call(
        self, name: str, method: str, payload: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """The answer of the peer *name*. :raises HaError: there is none; says why."""
        contact = self.contacts.get(name)
        if contact is None:
            raise HaError(self.why_unasked(name))
        return await contact.call(method, payload, timeout)

    async def summaries(self) -> tuple[dict[str, MasterSummary], dict[str, str]]:
        """What each peer tells of itself; and why some do not answer, or make no sense."""
        answers, errors = await self.ask("summary")
        return read_each(answers, errors, lambda _, answer: MasterSummary.read(answer)), errors

    async def modes(self) -> tuple[dict[str, str], dict[str, str]]:
        """Each master → its write mode now; and why some do not answer."""
        told, errors = await self.summaries()
        theirs = {name: each.mode for name, each in sorted(told.items())}
        return {self.name: self._core.mode.name, **theirs}, errors

    async def shown_everywhere(
        self, question: dict[str, Any], without: Collection[str] = ()
    ) -> tuple[dict[str, dict[str, Stored]], dict[str, str]]:
        """
        What each master shows, *question* as in :meth:`shown`; and why some do not answer, or make
        no sense. Peers in *without* are not asked.
        """
        answers, errors = await self.ask("keys", question, SLOW, without=without)
        own: dict[str, dict[str, Any]] = {}
        try:
            own[self.name] = {"keys": await self.shown(question)}
        except StoreError as exc:
            errors[self.name] = str(exc)

        def tables() -> dict[str, dict[str, Stored]]:
            everywhere = {**own, **answers}
            return read_each(everywhere, errors, lambda _, answer: table(answer.get("keys")))

        # Whatever grows with the number of keys must not hold up the event loop.
        return await asyncio.to_thread(tables), errors

    async def keys_of(self, ids: list[str], errors: dict[str, str]) -> dict[str, dict[str, Stored]]:
        """
        For each id, what every master shows, except masters in *errors*, which are not asked.

        :param errors: master → reason; a master that does not answer about all *ids* is added, also
            one that joins or leaves meanwhile.
        """
        everywhere: dict[str, dict[str, Stored]] = {self.name: {}}
        parts = list(batches(ids, 10 * MAX_SHOWN))
        told = Counter[str]()
        for batch in parts:
            shown, failed = await self.shown_everywhere({"ids": batch}, tuple(errors))
            told.update(shown.keys())
            for name, found in shown.items():
                everywhere.setdefault(name, {}).update(found)
            for name, why in failed.items():
                errors.setdefault(name, why)
        for name, count in told.items():
            if count < len(parts):
                errors.setdefault(name, MEANWHILE if name in self.masters else LEFT)
        for name in errors:
            everywhere.pop(name, None)
        return {
            minion_id: {name: shown.get(minion_id, ABSENT) for name, shown in everywhere.items()}
            for minion_id in ids
        }

    async def conflicts(
        self, ids: list[str], unasked: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """
        The rows of *ids*, which are in conflict; see :func:`.conflict_row`.

        :param unasked: masters that are not asked, and why.
        """
        if not ids:
            return []
        tables = await self.keys_of(ids, dict(unasked or {}))
        conflicts = []
        for minion_id in ids:
            records = await self._core.run(self._core.replica.get, minion_id)
            conflicts.append(conflict_row(minion_id, tables[minion_id], records.values()))
        return conflicts


def table(raw: Any) -> dict[str, Stored]:
    """
    What a master shows, in the form of :meth:`Group.shown`.

    :raises InvalidRecord: it makes no sense.
    """
    found = {}
    for minion_id, state, key, denied in wire.rows(raw, "keys", str, object, object, list):
        keys = [*denied, *([] if key is None else [key])]
        known = state in (None, ACCEPTED, PENDING, REJECTED)
        if not known or any(type(each) is not bytes for each in keys):
            raise InvalidRecord("malformed keys: a state and fingerprints were expected")
        found[minion_id] = Stored(state, key, frozenset(denied))
    return found


def read_each(
    answers: Mapping[str, Mapping[str, Any]],
    errors: dict[str, str],
    read: Callable[[str, Mapping[str, Any]], T],
) -> dict[str, T]:
    """Each answer by *read*; a master whose answer makes no sense is added to *errors*."""
    found = {}
    for name, answer in answers.items():
        try:
            found[name] = read(name, answer)
        except HaError as exc:
            errors[name] = str(exc)
    return found
