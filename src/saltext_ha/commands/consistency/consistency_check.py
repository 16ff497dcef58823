"""
``ha.check_consistency``: asks every master about itself, and compares.

It asks every peer once for a digest of each section, then only for the facts that differ.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from saltext_ha.commands.keys.key_section import KeySection
from saltext_ha.common.errors import NO_SENSE, HaError, InvalidRecord
from saltext_ha.common.tasks import answers_of
from saltext_ha.config.consistency import ConsistencySettings
from saltext_ha.config.mapping import HaConfig
from saltext_ha.consistency import clock, result, sections
from saltext_ha.consistency.comparison import Difference
from saltext_ha.consistency.facts import Facts, Told
from saltext_ha.consistency.section import Mine
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)
T = TypeVar("T")

#: How often a peer is asked for its time; the answer with the shortest round trip counts.
ROUNDS = 3
#: How many checks' facts are kept from their first question to their second; for how many seconds.
KEPT = 4
KEPT_FOR = 60.0
#: Seconds after which facts of this master that are not read yet count as unknown.
READ_WITHIN = 25.0
HANGS = "still being read there: does a file system hang, or what sdb:// leads to?"
MALFORMED = "its answer is malformed; is another version of saltext-ha installed there?"


class OwnFacts:
    """
    This master's own facts, for the checks of all masters.

    :param master_key: the fingerprint of the running master's key.
    """

    def __init__(
        self, opts: Mapping[str, Any], config: HaConfig, keys: KeySection, master_key: str
    ) -> None:
        self._opts, self._config, self._keys = opts, config, keys
        self._master_key = master_key
        self._told: dict[bytes, dict[str, Told]] = {}
        # One check at a time: many must not take all threads. What may hang (file systems, sdb://)
        # has turns of its own: the other sections do not wait for it.
        self._turns = {
            **dict.fromkeys(sections.OF_MASTERS, asyncio.Lock()),
            sections.ROOTS: asyncio.Lock(),
            sections.RUNNING: asyncio.Lock(),
        }

    def for_peers(self) -> dict[str, Handler]:
        async def clocked(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return {"time": time.time(), "group": self._config.group}

        async def digests(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            wanted = wire.field(payload, "sections", list)
            told = await self.told(_nonce(payload), wanted)
            answer: dict[str, Any] = {"digests": {name: one.digest for name, one in told.items()}}
            if sections.KEYS in wanted:
                answer["keys"] = await self._keys.counts()
            return answer

        async def facts(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            wanted = wire.field(payload, "buckets", dict)
            told = await self.told(_nonce(payload), list(wanted))
            return {
                "facts": {
                    name: await asyncio.to_thread(one.answer, wanted[name])
                    for name, one in told.items()
                }
            }

        return {"clock": clocked, "consistency": digests, "facts": facts}

    async def told(self, nonce: bytes, wanted: Sequence[Any]) -> dict[str, Told]:
        """The sections *wanted* of this master, as read when the check *nonce* first asked."""
        names = [name for name in sections.OF_MASTERS if name in wanted]
        mine = Mine(self._opts, self._config, nonce, self._master_key)
        parts: dict[asyncio.Lock, list[str]] = {}
        for name in names:
            parts.setdefault(self._turns[name], []).append(name)
        read = await asyncio.gather(*(self._read(mine, part, turn) for turn, part in parts.items()))
        told = {name: one for part in read for name, one in part.items()}
        return {name: told[name] for name in names}

    async def _read(self, mine: Mine, names: Sequence[str], turn: asyncio.Lock) -> dict[str, Told]:
        known = self._told.get(mine.nonce, {})
        missing = [name for name in names if name not in known]
        if missing:
            silent = {name: Told(Facts({}, {"": HANGS}), mine.nonce) for name in missing}
            known = {**known, **silent, **await _taken(mine, missing, turn)}
            self._keep(mine.nonce, known)
        return {name: known[name] for name in names}

    def _keep(self, nonce: bytes, told: Mapping[str, Told]) -> None:
        if nonce not in self._told:
            loop = asyncio.get_running_loop()
            loop.call_later(KEPT_FOR, self._told.pop, nonce, None)
        self._told[nonce] = {**self._told.get(nonce, {}), **told}
        while len(self._told) > KEPT:
            del self._told[next(iter(self._told))]


class ConsistencyCheck:
    """
    The command itself.

    :param explain: adds to each difference in the roots the tree that it is in.
    :param note: called with each answer about all sections.
    """

    def __init__(
        self,
        group: Group,
        config: HaConfig,
        core: Core,
        own: OwnFacts,
        keys: KeySection,
        explain: Callable[[Sequence[Difference]], Awaitable[None]],
        note: Callable[[dict[str, Any]], None],
    ) -> None:
        self._group, self._config, self._core = group, config, core
        self._own, self._keys, self._explain, self._note = own, keys, explain, note

    async def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        names = sections.select(payload.get("only"))
        answer = await self.answer(names)
        if names == sections.NAMES:
            self._note(answer)
        return {**answer, "retcode": result.exit_code(answer)}

    async def answer(self, names: Sequence[str] = sections.NAMES) -> dict[str, Any]:
        """The answer about the sections *names*."""
        settings = self._config.consistency
        own, nonce = self._group.name, secrets.token_bytes(32)
        contacts, unreached = dict(self._group.contacts), self._group.unasked()

        async def all_say(ask: Callable[[Contact], Awaitable[T]]) -> dict[str, T]:
            """What each peer that was reached until now says, all asked at once."""
            asked = [name for name in contacts if name not in unreached]
            said, errors = await answers_of(asked, lambda name: _sensible(ask(contacts[name])))
            unreached.update(errors)
            return said

        rounds = ROUNDS if clock.NAME in names else 1
        met = await all_say(lambda contact: _meet(contact, rounds))
        # All masters work at the same time: each reads its own files.
        own_part = asyncio.ensure_future(self._own.told(nonce, names))
        asking = asyncio.ensure_future(all_say(lambda contact: _ask(contact, nonce, names)))
        if sections.KEYS in names:
            await self._core.scan()
        told, said = await own_part, await asking
        theirs = await all_say(
            lambda contact: _complete(contact, nonce, told, said[contact.peer.name]["digests"])
        )
        found: dict[str, Any] = {}
        if sections.KEYS in names:
            counts = {name: each["keys"] for name, each in said.items()}
            # May add to unreached.
            found[sections.KEYS] = await self._keys.answer(counts, unreached, settings)
        groups = {own: self._config.group, **{name: group for name, (group, _) in met.items()}}
        if len(set(groups.values())) > 1 and tuple(names) == sections.NAMES:
            found["group"] = _group_section(groups, unreached)
        for name, section in sections.OF_MASTERS.items():
            if name in names:
                parts = {own: told[name].facts}
                parts |= {p: facts[name] for p, facts in theirs.items() if p not in unreached}
                found[name] = await asyncio.to_thread(
                    result.of_section, section, parts, unreached, settings
                )
        if sections.ROOTS in names:
            await self._explain(found[sections.ROOTS]["differences"])
        if clock.NAME in names:
            offsets = {name: offset for name, (_, offset) in met.items() if offset}
            found[clock.NAME] = _clock_section(own, offsets, unreached, settings)
        return result.answer(found, {own, *contacts, *unreached}, unreached)


def _clock_section(
    own: str,
    offsets: Mapping[str, clock.Offset],
    unreached: Mapping[str, str],
    settings: ConsistencySettings,
) -> dict[str, Any]:
    """:param offsets: peer → how far its clock is from that of this master, *own*."""
    apart = clock.compare(own, offsets, unreached)
    return {
        **result.of_differences(clock.NAME, apart, unreached, settings),
        "offsets": {name: offset.data() for name, offset in offsets.items()},
    }


async def _sensible(work: Awaitable[T]) -> T:
    """The result of *work*. :raises HaError: the peer does not answer, or answers nonsense."""
    try:
        return await work
    except (InvalidRecord, *NO_SENSE):
        raise HaError(MALFORMED) from None


async def _meet(contact: Contact, rounds: int) -> tuple[str, clock.Offset | None]:
    """
    The group of a peer, and its clock. This small question comes before anything that takes long:
    an unresponsive one is noticed early, and no master is busy yet while the clocks are compared.
    """
    group, measured = "", []
    for _ in range(rounds):
        asked = time.time()
        answer = await contact.call("clock", {})
        measured.append((float(answer["time"]), asked, time.time()))
        group = str(answer["group"])
    return group, clock.offset(measured)


async def _ask(contact: Contact, nonce: bytes, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The ``digests`` of a peer, and how many of its ``keys`` are held or denied."""
    answer = await contact.call("consistency", {"nonce": nonce, "sections": list(names)}, SLOW)
    keys = answer["keys"].items() if sections.KEYS in names else ()
    return {
        "digests": dict(answer["digests"]),
        "keys": {str(what): int(number) for what, number in keys},
    }


async def _complete(
    contact: Contact, nonce: bytes, told: Mapping[str, Told], digests: Mapping[str, Any]
) -> dict[str, Facts]:
    """The facts of a peer: it is asked for those whose *digests* differ from this master's."""
    facts = {section: one.facts for section, one in told.items()}
    differ = {name: one for name, one in told.items() if digests.get(name) != one.digest}
    if differ:
        buckets = {section: one.buckets for section, one in differ.items()}
        answer = await contact.call("facts", {"nonce": nonce, "buckets": buckets}, SLOW)
        for section, one in differ.items():
            facts[section] = one.facts.completed(answer["facts"].get(section))
    return facts


async def _taken(mine: Mine, names: Sequence[str], turn: asyncio.Lock) -> dict[str, Told]:
    """Those of the sections *names* that can be read in time."""
    taken: dict[str, Told] = {}

    def take() -> None:
        for name in names:
            taken[name] = Told(_facts(name, mine), mine.nonce)

    try:
        await asyncio.wait_for(turn.acquire(), READ_WITHIN)
    except asyncio.TimeoutError:
        return {}
    # What hangs keeps the thread, and its turn; do not wait for it.
    taking = asyncio.ensure_future(asyncio.to_thread(take))
    taking.add_done_callback(lambda _: turn.release())
    done, _ = await asyncio.wait({taking}, timeout=READ_WITHIN)
    for each in done:
        each.result()  # raises what it raised
    return taken.copy()


def _facts(name: str, mine: Mine) -> Facts:
    """One section of this master; if it fails, it is unknown, and the log says why."""
    try:
        return sections.OF_MASTERS[name].take(mine)
    except Exception as exc:
        log.exception("ha consistency: section %s failed", name)
        return Facts({}, {"": f"failed there: {type(exc).__name__}; its log says why"})


def _group_section(groups: Mapping[str, str], unreached: Mapping[str, str]) -> dict[str, Any]:
    """Masters that trust each other and are configured for different groups."""
    values: dict[str, Any] = dict(groups)
    values.update({name: {"unknown": why} for name, why in unreached.items()})
    fix = "make ha: group: the same in the configuration of all, restart salt-master there"
    return result.of_differences(
        "group", [{"path": "ha:group", "values": values, "fix": fix}], dict(unreached)
    )


def _nonce(payload: Mapping[str, Any]) -> bytes:
    nonce = wire.field(payload, "nonce", bytes)
    if not 16 <= len(nonce) <= 64:
        raise InvalidRecord("nonce is not 16 to 64 bytes")
    return nonce
