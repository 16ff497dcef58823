"""
Which master is a minion connected to, by all evidence of the masters? Pure: values in, values out.

What is not known is shown as unknown: old evidence makes no minion bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from saltext_ha.minions.presence import Sight

# The states of a minion.
BOUND = "bound"  # its daemon was heard there
PARTLY = "partly"  # bound to several masters at once, and not heard by all of them
SEEN = "seen"  # it authenticated or sent something there; salt-call does so, too
SILENT = "silent"  # heard once, but not lately; or it does not answer
UNKNOWN = "unknown"  # no master has heard of it since its engine started

ASK = "live=True asks it"


def locate(sights: Mapping[str, Sight], asked: Collection[str]) -> dict[str, Any]:
    """
    The row of one minion in the answer of ``ha.minions``, without its id.

    :param sights: master → what it knows of the minion.
    :param asked: the masters that answered.
    :return: ``state``, ``masters`` (where it is bound, or was seen), ``seen`` (seconds) and ``by``
        (latest evidence), ``type``, ``note`` and ``on``: master → ``seen``, ``by``, for all.
    """
    kind, of = _self_description(sights)
    sure = {name: each.sure for name, each in sights.items() if each.sure is not None}
    fresh = [name for name, age in sure.items() if age <= sights[name].lasts]
    if kind not in ("list", "") and sure:
        # It has one master at a time: where its daemon was heard last.
        last = min(sure, key=lambda name: (sure[name], name))
        fresh = [last] if last in fresh else []
    masters, state, note = sorted(fresh), BOUND if fresh else "", ""
    if kind == "list" and fresh and len(fresh) < min(of or len(asked), len(asked)):
        state = PARTLY
        note = f"not heard lately on {', '.join(sorted(set(asked) - set(fresh)))}"
    if state == BOUND and reached_by(sights, asked) is None:
        note = _doubt(sights, masters)
    if not state:
        state, masters = _uncertain(sights)
    heard = {name: _latest(each) for name, each in sorted(sights.items()) if _latest(each)[1]}
    shown = {name: (sure[name], sights[name].sure_by) for name in fresh} or heard
    seen, by = min(shown.values(), default=(None, ""))
    return {
        "state": state,
        "masters": masters,
        "seen": None if seen is None else round(seen, 1),
        "by": by,
        "type": kind,
        "note": note,
        "on": {name: {"seen": round(age, 1), "by": by} for name, (age, by) in heard.items()},
    }


def reached_by(sights: Mapping[str, Sight], asked: Collection[str]) -> list[str] | None:
    """
    Masters such that a job published on any one of them reaches this minion.

    :return: None if that is not certain: no master has heard it lately; or it authenticated at one
        master after certain evidence of another one, as in a failover that is not reported; or
        there is certain evidence of several, and it is unknown whether it is bound to one at a
        time.
    """
    kind, of = _self_description(sights)
    if kind == "list" and of >= len(asked) and any(_is_fresh(each) for each in sights.values()):
        return sorted(asked)
    sure = {n: each.sure for n, each in sights.items() if each.sure is not None and _is_fresh(each)}
    if not sure:
        return None
    if kind == "list":
        return sorted(sure)
    if not kind and len(sure) > 1:
        return None
    if kind:
        sure = dict([min(sure.items(), key=lambda each: (each[1], each[0]))])
    latest = min(sure.values())
    elsewhere = (each.likely for name, each in sights.items() if name not in sure)
    return None if any(age is not None and age < latest for age in elsewhere) else sorted(sure)


def _doubt(sights: Mapping[str, Sight], masters: list[str]) -> str:
    """Why it is not certain that a minion is where its daemon was heard: it may have moved."""
    if len(masters) > 1:
        last = min(masters, key=lambda name: (sights[name].sure or 0.0, name))
        return f"unless it is hot-hot, it is with {last} only, which heard it last; {ASK}"
    latest = min(each.sure for n, each in sights.items() if n in masters and each.sure is not None)
    since = sorted(
        name
        for name, each in sights.items()
        if name not in masters and each.likely is not None and each.likely < latest
    )
    return f"has authenticated at or sent something to {', '.join(since)} since; {ASK}"


def _is_fresh(sight: Sight) -> bool:
    return sight.sure is not None and sight.sure <= sight.lasts


def gone(
    rows: Collection[Mapping[str, Any]], connections: Mapping[str, int | None], new: float
) -> dict[str, int]:
    """
    Master → how many of the minions that count as bound to it must have left, because it has fewer
    connections: neither Salt's own failover nor a stopping minion tells the master. Which minions
    have left is unknown.

    :param rows: of all minions, as :func:`locate` makes them.
    :param connections: how many are connected to each master's publisher; None: not known.
    :param new: seconds; *connections* may lack minions that were heard more recently.
    """
    heard = Counter(name for name, age in _bound_to(rows) if age > new)
    short = {name: heard[name] - count for name, count in connections.items() if count is not None}
    return {name: count for name, count in sorted(short.items()) if count > 0}


def accounted(rows: Collection[Mapping[str, Any]], connections: Mapping[str, int | None]) -> bool:
    """
    Whether every master has as many connections as minions count as bound to it, and all minions
    count as bound: then each is where it was heard, however long ago.
    """
    heard = Counter(name for name, _ in _bound_to(rows))
    everywhere = all(row["state"] in (BOUND, PARTLY) for row in rows)
    return everywhere and all(heard[name] == count for name, count in connections.items())


def _bound_to(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Each master that a minion counts as bound to, and how long ago it was heard there."""
    for row in rows:
        if row["state"] in (BOUND, PARTLY):
            for name in row["masters"]:
                yield name, row["on"][name]["seen"]


def online(counts: Mapping[str, int], all_asked: bool, lost: int) -> dict[str, int]:
    """
    How many minions are ``online``, ``offline`` and ``unknown``.

    :param counts: how many are in each state.
    :param all_asked: whether every master has answered; if not, a silent minion may be on another.
    :param lost: how many minions are :func:`gone`: it is unknown whether they are online.
    """
    here = max(0, counts.get(BOUND, 0) + counts.get(PARTLY, 0) - lost)
    offline = counts.get(SILENT, 0) if all_asked else 0
    return {"online": here, "offline": offline, "unknown": sum(counts.values()) - here - offline}


def _uncertain(sights: Mapping[str, Sight]) -> tuple[str, list[str]]:
    """State and masters of a minion without fresh and certain evidence."""
    likely = {
        name: each.likely
        for name, each in sights.items()
        if each.likely is not None and each.likely <= each.lasts
    }
    if likely:
        return SEEN, sorted(likely)
    known = any(each.sure_by or each.likely_by for each in sights.values())
    return SILENT if known else UNKNOWN, []


def _latest(sight: Sight) -> tuple[float, str]:
    """Age and kind of the best evidence: certain evidence, unless it is old."""
    if sight.sure is not None and sight.sure <= sight.lasts:
        return sight.sure, sight.sure_by
    ages = [
        (age, by)
        for age, by in ((sight.sure, sight.sure_by), (sight.likely, sight.likely_by))
        if age is not None
    ]
    return min(ages, key=lambda each: each[0]) if ages else (0.0, "")


def _self_description(sights: Mapping[str, Sight]) -> tuple[str, int]:
    """``type`` and ``of`` as known to the master that heard the minion last."""
    told = [each for each in sights.values() if each.type]
    if not told:
        return "", 0
    latest = min(told, key=lambda each: _latest(each)[0])
    started = [each.sure for each in sights.values() if not each.type and each.sure_by == "start"]
    if any(age is not None and age < _latest(latest)[0] for age in started):
        return "", 0  # it has started since, perhaps with another configuration
    return latest.type, latest.of
