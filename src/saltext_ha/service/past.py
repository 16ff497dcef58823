"""What was: ``ha.history``, and how long it is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from saltext_ha import minion_key
from saltext_ha.errors import HaError
from saltext_ha.history import BEGINNING, BEGINNING_OF_ACCOUNTS, VIA, AccountPlace, Line, Place
from saltext_ha.replication.account import BEGAN, ENDED, HOLDS, Account, Decided
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.service.core import Core
from saltext_ha.service.decisions import seconds
from saltext_ha.service.group import Command, Group

log = logging.getLogger(__name__)

MAX_LINES = 100_000
PRUNE_INTERVAL = 3600.0


class Past:
    """The command that looks back."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of these."""
        return {"history": self.history}

    async def history(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.history``: who did what to which key, when, on which master, and why."""
        core = self._group.service.core
        limit = payload.get("limit", 100)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LINES:
            raise HaError(f"limit={limit!r}: takes a whole number from 1 to {MAX_LINES}")
        glob, by = str(payload.get("glob", "*")), str(payload.get("by_whom") or "*")
        span = payload.get("since")
        since = time.time() - seconds(span) if span else None

        def read() -> list[Line]:
            # One more than is shown, to know whether there is more.
            return core.replica.history.lines(glob, limit + 1, since, by)

        lines = await core.run(read)
        name = self._group.service.config.name
        return {
            "kind": "history",
            "writes": [row(line, name) for line in lines[:limit]],
            "more": len(lines) > limit,
            "retcode": 0,
        }


def row(line: Line, here: str) -> dict[str, Any]:
    """One line of the history as plain data; *here* is the master whose history it is."""
    account = line.account
    by, _, command = line.by.partition(VIA)
    decisions = account.decisions if account else ()
    return {
        "id": line.minion_id,
        "at": line.at,
        "time": _iso(line.at),
        "on": here if account else line.on,
        "by": by,
        "what": _what(account) if account else line.state,
        "state": (account.outcome or None) if account else line.state,
        "fingerprint": minion_key.show(line.key, short=False) if line.key else None,
        "why": sentence(account) if account else command,
        "decisions": [_decision(decided) for decided in decisions],
    }


def _iso(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""  # the clock of whoever wrote it was out of its mind


def _what(account: Account) -> str:
    return f"{account.outcome} holds" if account.kind == HOLDS else account.kind


def _decision(decided: Decided) -> dict[str, Any]:
    by, _, command = decided.by.partition(VIA)
    return {
        "state": decided.state,
        "fingerprint": minion_key.show(decided.key, short=False),
        "at": decided.at,
        "by": by,
        "command": command,
        "on": decided.on,
    }


def sentence(account: Account) -> str:
    """An account in words: ``rejected on m2 by bob and accepted on m1 by alice, neither …``."""
    several = account.kind != HOLDS
    show = _shower([decided.key for decided in account.decisions])

    def told(decided: Decided) -> str:
        words = [decided.state, "on", decided.on]
        words += ["by", decided.by] if decided.by else []
        return " ".join([show(decided.key), *words] if several else words)

    if account.kind == ENDED:
        ends = [told(decided) for decided in account.decisions if decided.state != ACCEPTED]
        stays = {show(decided.key) for decided in account.decisions if decided.state == ACCEPTED}
        rest = f"{_listed(sorted(stays))} stays" if stays else "no key is accepted now"
        return f"{_listed(ends)}; {rest}"
    unaware = (
        "neither knowing of the other"
        if len(account.decisions) == 2
        else "none knowing of the others"
    )
    end = "end it with ha.resolve" if account.kind == BEGAN else f"{account.outcome} holds"
    return f"{_listed([told(decided) for decided in account.decisions])}, {unaware}: {end}"


def _listed(texts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def _shower(keys: Sequence[bytes]) -> Callable[[bytes], str]:
    """How to show *keys*: short, but not so that two different ones look alike."""
    short = len({minion_key.show(key) for key in keys}) == len(set(keys))
    return lambda key: minion_key.show(key, short=short)


async def prune_regularly(core: Core, days: float, interval: float = PRUNE_INTERVAL) -> None:
    """Drop what is older than *days*, every *interval* seconds."""
    while True:
        await asyncio.sleep(interval)
        try:
            await prune(core, time.time() - days * 86400)
        except HaError as exc:
            # A disk that is full says so in the status; the next round may find it better.
            log.debug("ha history: not pruned: %s", exc)


async def prune(core: Core, before: float) -> None:
    """
    Drop history older than *before* (Unix seconds), in transactions that hold nobody up.

    :raises ReplicaError: replica.db cannot be written.
    """
    replica = core.replica

    def lines(place: Place) -> Place | None:
        with replica.transaction():
            return replica.history.prune(before, place)

    def accounts(told: AccountPlace) -> AccountPlace | None:
        with replica.transaction():
            return replica.history.prune_accounts(before, told)

    place: Place | None = BEGINNING
    while place:
        place = await core.run(lines, place)
    told: AccountPlace | None = BEGINNING_OF_ACCOUNTS
    while told:
        told = await core.run(accounts, told)
