"""Turns lines of the history into plain data, and accounts into words."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from saltext_ha.keystore import minion_key
from saltext_ha.replica.deployments import DeployedLine
from saltext_ha.replica.history import VIA, Line
from saltext_ha.replication.account import BEGAN, ENDED, HOLDS, Account, Decision
from saltext_ha.replication.record import ACCEPTED


def row(line: Line | DeployedLine, here: str) -> dict[str, Any]:
    """One line of the history as plain data; *here* is the master whose history it is."""
    return _deployed(line, here) if isinstance(line, DeployedLine) else _of_key(line, here)


def _deployed(line: DeployedLine, here: str) -> dict[str, Any]:
    return {
        "id": "",
        "tree": line.tree,
        "at": line.at,
        "time": iso(line.at),
        "on": line.on,
        "by": line.by,
        "what": f"deployed {line.number}",
        "state": None,
        "fingerprint": None,
        "why": ": ".join(filter(None, (line.source, line.message))),
        "decisions": [],
        "received": line.received,
        "received_time": iso(line.received),
        "from": line.sender or here,
    }


def _of_key(line: Line, here: str) -> dict[str, Any]:
    account = line.account
    by, _, command = line.by.partition(VIA)
    decisions = account.decisions if account else ()
    return {
        "id": line.minion_id,
        "tree": "",
        "at": line.at,
        "time": iso(line.at),
        "on": here if account else line.on,
        "by": by,
        "what": _what(account) if account else line.state,
        "state": (account.outcome or None) if account else line.state,
        "fingerprint": minion_key.show(line.key, short=False) if line.key else None,
        "why": sentence(account) if account else command,
        "decisions": [_decision(decided) for decided in decisions],
        "received": None if line.sender is None else line.received,
        "received_time": None if line.sender is None else iso(line.received),
        "from": here if line.sender == "" else line.sender,
    }


def iso(at: float) -> str:
    """A time in ISO 8601, local to this master; empty for a number that is no time."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""  # the writer's clock was far off


def _what(account: Account) -> str:
    return f"{account.outcome} holds" if account.kind == HOLDS else account.kind


def _decision(decided: Decision) -> dict[str, Any]:
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

    def told(decided: Decision) -> str:
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
    """How to show *keys*: in short form, unless two of them would look the same."""
    short = len({minion_key.show(key) for key in keys}) == len(set(keys))
    return lambda key: minion_key.show(key, short=short)
