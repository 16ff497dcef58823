"""The runner's half of ``ha.restart_masters``: one master after the other, this one last."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from saltext_ha.commands.arguments import left_out
from saltext_ha.commands.engine_client import Answer, engine, patient, say
from saltext_ha.common.errors import EngineUnavailable, HaError
from saltext_ha.common.validators import is_number
from saltext_ha.config.mapping import HaConfig
from saltext_ha.health.fitness import unfit

POLL = 0.5


def run(settings: HaConfig, test: bool, timeout: Any, without: Any = "") -> Answer:
    """
    Restart them one by one, as long as each comes back and catches up; progress goes to stderr.

    :param timeout: seconds that one may take, as the user gave them.
    :param without: masters to leave out, likewise.
    :raises HaError: nothing was restarted; says why.
    """
    if not is_number(timeout) or not timeout > 0:
        raise HaError(f"timeout={timeout!r:.80}: takes seconds, more than 0")
    rows = _rows(settings)
    out = left_out(without, settings.name, sorted(rows))
    order = [*sorted(rows.keys() - {settings.name, *out}), settings.name]
    states, problems = {}, {name: why for name in order if (why := _problem(rows[name]))}
    for name in order:
        try:
            states[name] = _ask(settings, name)
        except HaError as exc:
            problems.setdefault(name, str(exc))
    if problems and not test:
        listed = "; ".join(f"{name}: {why}" for name, why in sorted(problems.items()))
        others = problems.keys() - {settings.name}
        away = ",".join(sorted({*others, *out}))
        hint = f"; without={away} leaves out {away}" if others else ""
        raise HaError(f"nothing was restarted: {listed}{hint}")
    masters: list[dict[str, Any]] = [
        {
            "name": name,
            "command": str(states.get(name, {}).get("command", "")),
            "restarted": None,
            "seconds": None,
            "problem": problems.get(name, ""),
        }
        for name in order
    ]
    for row in () if test else masters:
        say(f"{row['name']}: {row['command']}")
        began = time.monotonic()
        row["problem"] = _restart(settings, row["name"], states[row["name"]], timeout)
        row["restarted"] = not row["problem"]
        row["seconds"] = round(time.monotonic() - began, 1)
        if row["problem"]:
            break
        say(f"{row['name']}: serves again after {row['seconds']:g} s")
    wrong = any(row["problem"] for row in masters)
    return {"kind": "restart_masters", "test": test, "masters": masters, "retcode": int(wrong)}


def _problem(row: Mapping[str, Any]) -> str:
    """Why the master of a *row* of ``ha.status`` could not take over, and why it is silent."""
    why, note = unfit(row), row.get("note")
    return f"{why}: {note}" if why and note and row.get("state") != "running" else why


def _restart(settings: HaConfig, name: str, before: Mapping[str, Any], timeout: float) -> str:
    """Restart one master, and wait until it could take over; returns why not, or empty."""
    try:
        unanswered = str(_ask(settings, name, begin=True).get("unanswered", ""))
    except HaError as exc:
        # The engine of this master may have been ended before it could answer.
        if not (name == settings.name and isinstance(exc, EngineUnavailable)):
            return str(exc)
        unanswered = str(exc)
    old = before.get("problem")  # of an earlier restart: shown until the new one begins
    end, why = time.monotonic() + timeout, ""
    while time.monotonic() < end:
        time.sleep(POLL)
        try:
            now = _ask(settings, name)
            if now.get("start") != before.get("start"):
                why = unfit(_rows(settings).get(name, {}))
                if not why:
                    return ""
            elif now.get("problem") and not (unanswered and now["problem"] == old):
                return f"{before.get('command')}: {now['problem']}"
            else:
                why = unanswered or "it was not restarted yet"
        except HaError as exc:
            why = str(exc)
    return f"not within {timeout:g} s: {why}"


def _ask(settings: HaConfig, name: str, *, begin: bool = False) -> Answer:
    ask = patient(functools.partial(engine, settings))
    return ask("restart", {"name": name, "begin": begin})


def _rows(settings: HaConfig) -> dict[str, Mapping[str, Any]]:
    return {str(row["name"]): row for row in engine(settings, "status", {})["masters"]}
