"""The answers of ``ha.jobs`` and ``ha.lookup_jid`` as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    Data,
    Screen,
    clean,
    count,
    id_list,
    inline,
    not_asked,
    shorten,
    table,
)

LISTED = 10


def jobs(data: Data, screen: Screen) -> list[str]:
    rows = [
        [
            job.get("jid"),
            _call(job),
            job.get("target"),
            job.get("user"),
            f"{job.get('returned')} of {'?' if job.get('targeted') is None else job['targeted']}",
            job.get("state"),
            ", ".join(job.get("masters") or []),
        ]
        for job in data.get("jobs") or []
    ]
    columns = ["Job", "Function", "Target", "User", "Returned", "State", "On"]
    whole = ["Job", "Returned", "State"]
    names = [name for job in data.get("jobs") or [] for name in job.get("masters") or []]
    named = Masters(["On"], names)
    nothing = "no jobs on the masters that could be asked" if data.get("unknown") else "no jobs"
    lines = table(screen, columns, rows, whole=whole, masters=named) if rows else [nothing]
    return [*lines, *not_asked(data, screen), *notes(data, screen)]


def notes(data: Data, screen: Screen) -> list[str]:
    """Which minions were not asked what they run."""
    return [screen.paint(clean(note), "unknown") for note in data.get("notes") or []]


def _call(job: Data) -> str:
    words = [word for each in job.get("arguments") or [] for word in _words(each)]
    return " ".join([str(job.get("function")), *words])


def _words(argument: Any) -> list[str]:
    """One argument as it is typed; Salt keeps all name=value in one dict, with a mark."""
    if isinstance(argument, Mapping) and argument.get("__kwarg__") is True:
        pairs = {name: value for name, value in argument.items() if name != "__kwarg__"}
        return [f"{clean(name)}={inline(value)}" for name, value in pairs.items()]
    return [inline(argument)]


def head(data: Data, screen: Screen) -> list[str]:
    """The line that describes the job."""
    job, masters = data.get("job"), ", ".join(map(clean, data.get("published") or []))
    if not job:
        asked = "no master that could be asked" if data.get("unknown") else "no master"
        found = "not known how it was published" if data.get("returned") else f"{asked} knows it"
        return [f"job {clean(data.get('jid'))}: {screen.paint(found, 'unknown')}"]
    what = shorten(clean(_call(job)), 200)
    by = f"{clean(job.get('user'))} on {masters}"
    return [f"job {clean(data.get('jid'))}: {what} for {clean(job.get('target'))}, by {by}"]


def rest(data: Data, screen: Screen) -> list[str]:
    """The minions that have not returned, or failed."""
    lines = []
    for key, words, colour in (
        ("running", "still at work on it", "pending"),
        ("missing", "did not return", "unknown"),
        ("failed", "failed", "error"),
    ):
        ids = data.get(key) or []
        if ids:
            who = id_list(ids, LISTED, screen)
            lines.append(f"{count(len(ids), 'minion')} {screen.paint(words, colour)}: {who}")
    if data.get("job") and data.get("targeted", 0) is None:
        words = f"who has not returned is {screen.paint('unknown')}"
        why = "the job cache does not keep which minions it was for"
        if data["job"].get("listening"):
            why = "every master asked the minions that listened to it"
        lines.append(f"{words}: {why}")
    return [*lines, *not_asked(data, screen), *notes(data, screen)]
