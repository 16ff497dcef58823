"""
Remembers runs by their names, on all masters, so that the next leader knows of them.

Before anything runs, this master writes the run down and tells all masters that are up. A master
that was down, or did not get the message, learns of the run by asking (every ``sync_interval``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from saltext_ha.common.beat import rest
from saltext_ha.common.errors import HaError, InvalidRecord, LeadsNoMore, PeerError, reason_of
from saltext_ha.common.printable import is_printable
from saltext_ha.common.processes import is_alive
from saltext_ha.once.leader import Leader
from saltext_ha.once.leadership import NO_MORE
from saltext_ha.reconciler.core import Core
from saltext_ha.replication import runs
from saltext_ha.replication.record import Dot
from saltext_ha.replication.runs import RUNNING, STATES, UNFINISHED, InTheWay, Run, RunRegister
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync import register_rows
from saltext_ha.sync.codec import MAX_TIME, NODE
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.vouching import Vouching, writers
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

MOST = 500
"""Names that are remembered; beyond, ended ones that began first are forgotten."""
LONGEST_NAME = 64
LONGEST = 128
KINDS = (str, int, str, str, str, str, float, float, int, str, int)
TELLING = 3.0  # seconds for a peer to write a run down
TURN = 1.0  # seconds between two looks at the processes of runs


class Runs:
    """
    The runs that one master knows of.

    :param name: this master's.
    :param contacts: to the peers, by name.
    :param vouching: the masters' statements of what they have written.
    :param interval: seconds between two comparisons with the peers.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        contacts: Mapping[str, Contact],
        leader: Leader,
        vouching: Vouching,
        interval: float,
    ) -> None:
        self._name, self._core, self._contacts = name, core, contacts
        self._leader, self._vouching, self._interval = leader, vouching, interval
        self._writing = asyncio.Lock()
        self._processes: dict[tuple[str, Dot], psutil.Process] = {}
        self._troubles: dict[str, str] = {}
        """Peer → why this master does not take what it says."""
        self.registers = core.replica.runs.all(lambda rows: from_rows(rows, 0.0))

    # -- what others ask

    def for_peers(self) -> dict[str, Handler]:
        return {"runs": self._answer, "runs_told": self._told}

    async def _answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return self._message(self._rows(wire.field(payload, "have", dict)))

    async def _told(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Merge the runs that a peer tells; returns this master's runs under the same names."""
        told = wire.field(payload, "runs", dict)
        await self._learn(told, payload.get("vouched"), peer.name)
        return self._message({n: rows for n, rows in self._rows({}).items() if n in told})

    def _message(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """A message with *rows*, and with the vouching of their writers."""
        nodes = writers(self.registers[name] for name in rows)
        return {"runs": dict(rows), "vouched": self._vouching.of(nodes)}

    def _rows(self, have: Mapping[str, Any]) -> dict[str, Any]:
        now = time.time()
        return {
            name: to_rows(register, now)
            for name, register in self.registers.items()
            if have.get(name) != register.digest
        }

    def notes(self) -> Iterator[str]:
        for name, why in self._troubles.items():
            if name in self._contacts:
                yield f"once: what {name} says is not taken: {why}"

    def table(self) -> list[dict[str, Any]]:
        """The last runs under each name, as plain data, sorted by name; see ``ha.leader``."""
        reached, now = self.reached(), time.time()
        return [
            {
                "name": name,
                "function": run.function,
                "state": run.state if run.state != RUNNING or run.on in reached else UNFINISHED,
                "on": run.on,
                "by": run.by,
                "ago": round(max(0.0, now - run.began), 1),
                "seconds": round(run.ended - run.began, 1) if run.ended else None,
                "fence": run.fence or None,
            }
            for name, register in sorted(self.registers.items())
            for run in register.values
        ]

    def reached(self) -> set[str]:
        """The masters whose own runs are known here."""
        return {self._name, *(name for name, contact in self._contacts.items() if contact.up)}

    # -- running

    def in_the_way(self, name: str, function: str, within: float) -> InTheWay | None:
        """
        The run because of which *function* must not run under *name* now; None if it may.

        :param within: as in :meth:`begin`.
        :raises InvalidRecord: what runs, or ran, under that name is another function.
        """
        known = self.registers.get(name, RunRegister())
        found = runs.in_the_way(known, time.time(), within, self.reached())
        if found and found.run.function != function[:LONGEST]:
            raise InvalidRecord(
                f"name={name}: {found.why}, but it was {found.run.function}, not {function}; give "
                "each function a name of its own"
            )
        return found

    async def begin(
        self, name: str, function: str, by: str, within: float, pid: int
    ) -> tuple[Run | None, InTheWay | None]:
        """
        Note that this master begins to run *function* under *name*, in the process *pid*.

        :param within: seconds in which it may run only once in the whole group.
        :return: the run; or None, and what is in its way; if nothing is, it gave way to another
            run that gave way, too: begin again.
        :raises InvalidRecord: as :meth:`in_the_way`. :raises HaError: the run cannot be noted, or
            this master leads no more; it must not run.
        """
        try:
            process = psutil.Process(pid)
        except psutil.Error as exc:
            raise HaError(f"the process that is to run it is not found: {exc}") from None
        await self._ask_all()  # it may have been away, or lost its replica, and lead again
        async with self._writing:
            if found := self.in_the_way(name, function, within):
                return None, found
            known = self.registers.get(name, RunRegister())
            fence = self._leader.standing.fence or 0
            dot = await self._next_dot()
            run = Run(
                dot, RUNNING, self._name, by[:64], function[: LONGEST],
                time.time(), 0.0, fence, dot,
            )  # fmt: skip
            await self._write({name: known.written(dot, [run])})
            self._processes[name, run.start] = process
        await self._tell_all(name)
        gives_way = runs.yields(self.registers[name], run.start, self.reached())
        try:
            why = "" if gives_way else await self._claim(name, within)
        except HaError:
            await self._withdraw(name, run, known)
            raise
        if not gives_way and not why:
            log.info("ha once: name=%s runs %s by=%s", name, ascii(function), ascii(by))
            return run, None
        await self._withdraw(name, run, known)
        return None, InTheWay(run, why) if why else self.in_the_way(name, function, within)

    async def _claim(self, name: str, within: float) -> str:
        """Why the store of the leader refuses a run; empty if it does not."""
        if not self._leader.standing.leads:
            raise LeadsNoMore(NO_MORE)
        return await self._leader.claim(name, within)

    async def _withdraw(self, name: str, run: Run, known: RunRegister) -> None:
        """Take back *run*, which replaced the runs in *known*, and tell all."""
        async with self._writing:
            self._processes.pop((name, run.start), None)
            left = runs.withdraw(self.registers[name], run.start)
            latest = left.last.began if left.last else -math.inf
            for earlier in (each for each in known.values if each.began > latest):
                left = runs.put_back(left, await self._next_dot(), earlier)
            await self._write({name: left})
        await self._tell_all(name)

    async def end(self, name: str, start: Dot, state: str) -> None:
        """Note how a run ended, by one of ``STATES``. :raises HaError: that cannot be noted."""
        if state not in STATES:
            raise InvalidRecord(f"state: takes one of: {', '.join(STATES)}")
        async with self._writing:
            known = self.registers.get(name, RunRegister())
            ended = any(run.start == start for run in known.values)
            if ended:
                dot = await self._next_dot()
                await self._write({name: runs.end(known, dot, start, state, time.time())})
            self._processes.pop((name, start), None)
        if not ended:
            return
        level = logging.ERROR if state == UNFINISHED else logging.INFO
        log.log(level, "ha once: name=%s is %s", name, state)
        await self._tell_all(name)

    async def run(self) -> None:
        """Look after runs and compare them with peers, while the engine runs."""
        due = 0.0
        while True:
            await self._look_after()
            if time.monotonic() >= due:
                await self._ask_all()
                due = time.monotonic() + self._interval
            await rest(min(TURN, self._interval))

    async def _look_after(self) -> None:
        for (name, start), process in list(self._processes.items()):
            if not is_alive(process):
                await self._give_up(name, start)
        # Nobody looks after a run from before this start. A run that others say this master runs,
        # as after the loss of its replica.db, would never end.
        for name, register in dict(self.registers).items():
            for run in register.values:
                begun = (name, run.start) in self._processes
                if run.state == RUNNING and run.on == self._name and not begun:
                    await self._give_up(name, run.start)

    async def _give_up(self, name: str, start: Dot) -> None:
        with contextlib.suppress(HaError):  # a full disk: noted elsewhere, and tried again
            await self.end(name, start, UNFINISHED)

    # -- with the peers

    def _answering(self) -> list[tuple[str, Contact]]:
        """
        The peers that are up, or that were not tried yet: this master may lead before the first
        round with them has ended.
        """
        return [
            (name, contact) for name, contact in self._contacts.items() if contact.up is not False
        ]

    async def _ask_all(self) -> None:
        """Learn of all runs that masters that are up know of."""
        asked = self._answering()
        await asyncio.gather(*(self._compare(peer, contact) for peer, contact in asked))

    async def _tell_all(self, name: str) -> None:
        """Tell all masters that are up; returns once each has written it down, or time is up."""
        asked = self._answering()
        await asyncio.gather(*(self._tell(peer, contact, name) for peer, contact in asked))

    async def _tell(self, peer: str, contact: Contact, name: str) -> None:
        rows = {name: to_rows(self.registers[name], time.time())}
        await self._ask(peer, contact, "runs_told", self._message(rows))

    async def _compare(self, peer: str, contact: Contact) -> None:
        have = {name: register.digest for name, register in self.registers.items()}
        await self._ask(peer, contact, "runs", {"have": have})

    async def _ask(self, peer: str, contact: Contact, method: str, payload: dict[str, Any]) -> None:
        """Learn what *peer* answers."""
        try:
            answer = await contact.client.call(method, payload, TELLING)
            await self._learn(wire.field(answer, "runs", dict), answer.get("vouched"), peer)
        except PeerError:
            pass  # a release without runs; or it asks when it is back
        except HaError as exc:
            why = reason_of(exc)
            if self._troubles.get(peer) != why:
                log.warning("ha once: what %s says is not taken: %s", peer, why)
            self._troubles[peer] = why
        else:
            self._troubles.pop(peer, None)

    async def _learn(self, told: Mapping[Any, Any], vouched: Any, sender: str) -> None:
        now = time.time()
        read = {check(name): from_rows(rows, now) for name, rows in told.items()}
        await self._vouching.meet(self._core, sender, vouched, read.values())
        async with self._writing:
            await self._write(self._vouching.news(self.registers, read, "once", sender))

    async def _next_dot(self) -> Dot:
        """The dot of the next write; one that stays unused, as the disk is full, does no harm."""
        replica = self._core.replica

        def take() -> Dot:
            with replica.transaction():
                return replica.next_dot()

        return await self._core.run(take)

    async def _write(self, changed: Mapping[str, RunRegister]) -> None:
        """Write registers down, and forget the least worthy beyond :data:`MOST`."""
        if not changed:
            return
        replica = self._core.replica
        after = {**self.registers, **changed}
        forgotten = sorted(after, key=lambda name: _worth(after[name]))[: max(0, len(after) - MOST)]

        def write() -> None:
            with replica.transaction():
                for name, register in changed.items():
                    replica.runs.put(name, to_rows(register, 0.0))
                for name in forgotten:
                    replica.runs.drop(name)

        await self._core.run(write)
        self.registers = {name: r for name, r in after.items() if name not in forgotten}


def check(name: Any) -> str:
    """Check the name of a run. :raises InvalidRecord: says what a name takes."""
    good = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and is_printable(name)
    if not good:
        raise InvalidRecord(f"name: takes at most {LONGEST_NAME} printable characters")
    return str(name)


def _worth(register: RunRegister) -> tuple[bool, float]:
    """The sort key of a register by worth: still running, then how late it began."""
    running = any(run.state == RUNNING for run in register.values)
    return running, register.last.began if register.last else 0.0


def to_rows(register: RunRegister, now: float) -> list[Any]:
    """
    The rows of a register.

    :param now: rows have times as seconds before it, because clocks of masters differ; 0 in
        replica.db, for times by this master's clock.
    """
    values = (
        (
            *run.dot,
            run.state,
            run.on,
            run.by,
            run.function,
            now - run.began,
            now - run.ended if run.ended else 0.0,
            run.fence,
            *run.start,
        )
        for run in register.values
    )
    return register_rows.to_rows(values, register.context)


def from_rows(raw: Any, now: float) -> RunRegister:
    """The register in rows, with times before *now*. :raises InvalidRecord: a row is invalid."""

    def read(*row: Any) -> Run:
        node, counter, state, on, by, function, began, ended, fence, starter, start = row
        if (
            state not in STATES
            or not NODE.fullmatch(starter)
            or not 1 <= start <= MOST_WRITES
            or not 0 <= fence < 2**63
            or not (abs(began) < MAX_TIME and abs(ended) < MAX_TIME)
            or any(len(text) > LONGEST for text in (on, by, function))
        ):
            raise InvalidRecord("malformed run")
        over = now - ended if ended else 0.0
        return Run(
            Dot(node, counter), state, on, by, function, now - began, over, fence,
            Dot(starter, start),
        )  # fmt: skip

    return RunRegister(*register_rows.from_rows(raw, "register of runs", KINDS, read))
