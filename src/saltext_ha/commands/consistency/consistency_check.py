"""
``ha.check_consistency``: asks every master about itself, and compares.

It asks every peer once for a digest of each section, then only for the facts that differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from saltext_ha.commands.keys.key_section import KeySection
from saltext_ha.common.errors import NO_SENSE, HaError, InvalidRecord
from saltext_ha.config.mapping import HaConfig
from saltext_ha.consistency import clock, result, sections
from saltext_ha.consistency.comparison import Difference
from saltext_ha.consistency.facts import Facts, Told
from saltext_ha.consistency.section import Mine
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.sync.line import Line
from saltext_ha.transport import wire
from saltext_ha.transport.control_server import Command
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

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

    :param opts: this master's configuration; *config*: the ``ha:`` part of it.
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

    :param config: this master's, with the expected differences.
    :param own: this master's facts.
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

    def commands(self) -> dict[str, Command]:
        return {"check": self.check}

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
        check = _Check(names, nonce)
        check.unreached |= self._group.unasked()
        lines = dict(self._group.lines)
        rounds = ROUNDS if clock.NAME in names else 1
        await asyncio.gather(*(check.meet(line, rounds) for line in lines.values()))
        # All masters work at the same time: each reads its own files.
        own_part = asyncio.ensure_future(self._own.told(nonce, names))
        asked = [line for line in lines.values() if line.peer.name not in check.unreached]
        looking = [self._core.scan()] if sections.KEYS in names else []
        await asyncio.gather(*looking, *map(check.ask, asked))
        told = await own_part
        await asyncio.gather(
            *(
                check.complete(line, told)
                for line in lines.values()
                if line.peer.name not in check.unreached
            )
        )
        found: dict[str, Any] = {}
        if sections.KEYS in names:
            # May add to check.unreached.
            found[sections.KEYS] = await self._keys.answer(check.counts, check.unreached, settings)
        groups = {own: self._config.group, **check.groups}
        if len(set(groups.values())) > 1 and tuple(names) == sections.NAMES:
            found["group"] = _group_section(groups, check.unreached)
        for name, section in sections.OF_MASTERS.items():
            if name in names:
                parts = {own: told[name].facts}
                parts.update({peer: facts[name] for peer, facts in check.facts.items()})
                parts = {peer: parts[peer] for peer in parts if peer not in check.unreached}
                found[name] = await asyncio.to_thread(
                    result.of_section, section, parts, check.unreached, settings
                )
        if sections.ROOTS in names:
            await self._explain(found[sections.ROOTS]["differences"])
        if clock.NAME in names:
            apart = clock.compare(own, check.offsets, check.unreached)
            found[clock.NAME] = {
                **result.of_differences(clock.NAME, apart, check.unreached, settings),
                "offsets": {name: offset.data() for name, offset in check.offsets.items()},
            }
        return result.answer(found, {own, *lines, *check.unreached}, check.unreached)


class _Check:
    """One check: what the peers have answered so far."""

    def __init__(self, names: Sequence[str], nonce: bytes) -> None:
        self.names = list(names)
        self.nonce = nonce
        self.unreached: dict[str, str] = {}
        self.groups: dict[str, str] = {}
        self.offsets: dict[str, clock.Offset] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.facts: dict[str, dict[str, Facts]] = {}
        self._digests: dict[str, Mapping[str, Any]] = {}

    async def meet(self, line: Line, rounds: int) -> None:
        """
        Ask a peer a small question before anything that takes long: an unresponsive one is noticed
        early, and no master is busy yet while the clocks are compared.
        """
        name = line.peer.name
        measured = []
        with self._asking(name):
            for _ in range(rounds):
                asked = time.time()
                answer = await line.call("clock", {})
                measured.append((float(answer["time"]), asked, time.time()))
            self.groups[name] = str(answer["group"])
            offset = clock.offset(measured)
            if offset:
                self.offsets[name] = offset

    async def ask(self, line: Line) -> None:
        """Ask a peer for its digests."""
        name = line.peer.name
        with self._asking(name):
            answer = await line.call(
                "consistency", {"nonce": self.nonce, "sections": self.names}, SLOW
            )
            self._digests[name] = dict(answer["digests"])
            if sections.KEYS in self.names:
                self.counts[name] = {
                    str(what): int(number) for what, number in answer["keys"].items()
                }

    async def complete(self, line: Line, told: Mapping[str, Told]) -> None:
        """Ask a peer for the facts whose digests differ from this master's."""
        name = line.peer.name
        theirs = self._digests[name]
        differ = [section for section, one in told.items() if theirs.get(section) != one.digest]
        facts = {section: one.facts for section, one in told.items()}
        if differ:
            buckets = {section: told[section].buckets for section in differ}
            with self._asking(name):
                answer = await line.call("facts", {"nonce": self.nonce, "buckets": buckets}, SLOW)
                for section in differ:
                    facts[section] = told[section].facts.completed(answer["facts"].get(section))
        self.facts[name] = facts

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Count the peer *name* as unreached if it does not answer, or answers nonsense."""
        try:
            yield
        except (InvalidRecord, *NO_SENSE):
            self.unreached[name] = MALFORMED
        except HaError as exc:
            self.unreached[name] = str(exc)


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
