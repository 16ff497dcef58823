"""
Which minion should go where? Pure: values in, values out.

Minions know masters by the entries of their own configuration (names or addresses), the group knows
them by their names. The mapping is learnt from the minions that are connected to each master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.minions.job_specs import is_host

MOVABLE = ("failover", "distributed")
HOT = "list"


@dataclass(frozen=True)
class BoundMinion:
    """
    A minion that answers the master ``on``. ``entries`` are its masters as written in its
    configuration, ``here`` the host of the one that it is connected to; ``stays``: why it cannot be
    moved, empty if it can; ``type``: its own statement (``list``: it is bound to all its masters at
    once), empty without one.
    """

    on: str
    entries: tuple[str, ...] = ()
    here: str = ""
    stays: str = ""
    type: str = ""


@dataclass(frozen=True)
class RebalanceStep:
    """
    Move ``minion`` from master ``source`` to ``target``, which it knows as ``entry``. ``others``:
    where it may go instead, the best first, each a master and its entry.
    """

    minion: str
    source: str
    target: str
    entry: str
    others: tuple[tuple[str, str], ...] = ()

    def avoiding(self, shut: Collection[str]) -> RebalanceStep | None:
        """The step to the best master that is none of *shut*; None if there is none."""
        ways = [way for way in ((self.target, self.entry), *self.others) if way[0] not in shut]
        return RebalanceStep(self.minion, self.source, *ways[0], tuple(ways[1:])) if ways else None

    def instead(self) -> RebalanceStep | None:
        """The step to the next of the others; None if there is none."""
        return self.avoiding({self.target})


def found(on: str, answer: Any) -> BoundMinion:
    """The minion by its answer to ``ha.current_master`` from the master *on*."""
    if not isinstance(answer, Mapping) or "error" in answer:
        said = str(answer["error"] if isinstance(answer, Mapping) else answer)
        missing = "is not available" in said
        return BoundMinion(
            on, stays="saltext-ha is not installed on it" if missing else f"it says: {said}"
        )
    kind, entries = answer.get("type"), answer.get("masters")
    here = host_of(str(answer.get("address") or ""))
    known = entries if isinstance(entries, list) else []
    written = tuple(str(each) for each in known)
    why = ""
    if kind == HOT:
        why = "hot-hot: it is bound to all its masters"
    elif kind not in MOVABLE:
        why = f"master_type {kind}: it knows no other master to go to"
    elif len(set(written)) < 2:
        why = "its configuration names no other master"
    return BoundMinion(on, written, here, why, str(kind or ""))


def host_of(entry: str) -> str:
    """The host of an entry: ``10.0.0.1:4506`` and ``[::1]:4506`` without their ports."""
    if entry.count(":") > 1 and not entry.startswith("["):
        return entry.lower()
    try:
        return urlsplit(f"//{entry}").hostname or entry
    except ValueError:
        return entry


def unmet(minions: Iterable[BoundMinion]) -> set[str]:
    """The hosts in the configurations of *minions* by which none of them reached its master."""
    told = [*minions]
    hosts = {host_of(entry) for each in told for entry in each.entries if is_host(entry)}
    return hosts - {each.here for each in told}


def names_of(minions: Iterable[BoundMinion], addresses: Mapping[str, set[str]]) -> dict[str, str]:
    """
    Host, as minions write it → the master that a minion reaches by this host, or that has this
    address. A host that would mean two masters means none, unless it is an address of one of them:
    so one minion with a wrong answer does not keep others from being moved.

    :param addresses: master → its known addresses.
    """
    told: dict[str, set[str]] = {}
    for each in minions:
        # A minion that is bound to several at once says which of them asked.
        if each.here:
            told.setdefault(each.here, set()).add(each.on)
    learnt = set(told)
    for name, known in addresses.items():
        for address in known - learnt:
            told.setdefault(address, set()).add(name)
    for host, names in told.items():
        own = {name for name in names if host in addresses.get(name, ())}
        told[host] = own or names
    return {host: next(iter(names)) for host, names in told.items() if len(names) == 1}


def ways(minion: BoundMinion, names: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """The *allowed* masters that *minion* may go to: master → its entry in the configuration."""
    there: dict[str, str] = {}
    for entry in minion.entries:
        name = names.get(host_of(entry))
        if name and name != minion.on and name in allowed and is_host(entry):
            there.setdefault(name, entry)
    return there


def drain(
    minions: Mapping[str, BoundMinion],
    names: Mapping[str, str],
    load: Mapping[str, int],
    closed: Mapping[str, str] | None = None,
) -> tuple[list[RebalanceStep], dict[str, str]]:
    """
    Where the *minions* of one master go: each to the one with the fewest minions at that point.

    :param load: possible target → how many minions it has.
    :param closed: other master, which gets no minions → why: ``drained``, ``not ready``.
    :return: the steps, and minion → why it stays.
    """
    have, steps, stay = Counter(load), [], {}
    for minion_id, minion in sorted(minions.items()):
        if minion.stays:
            stay[minion_id] = minion.stays
            continue
        there = ways(minion, names, load)
        if there:
            (target, entry), *others = sorted(there.items(), key=lambda way: (have[way[0]], way))
            steps.append(RebalanceStep(minion_id, minion.on, target, entry, tuple(others)))
            have[target] += 1
        elif shut := ways(minion, names, closed or {}):
            each = (f"{name}, {(closed or {})[name]}" for name in sorted(shut))
            stay[minion_id] = f"it could only go to {'; or to '.join(each)}"
        else:
            written = ", ".join(minion.entries)
            stay[minion_id] = f"none of its masters ({written}) is known as another of the group"
    return steps, stay


def goes_on(minion: BoundMinion, hears: Collection[str], all_asked: bool) -> bool | None:
    """
    Whether a minion that stays is also connected to another master; None: unknown.

    :param hears: the other masters that it has answered and that stay in service.
    :param all_asked: whether all other masters could ask it.
    """
    if minion.type in MOVABLE:
        # It may find another master by itself, unless it knows none.
        return None if len(set(minion.entries)) > 1 else False
    if hears:
        return True
    return False if minion.type and (all_asked or minion.type != HOT) else None


def level(
    minions: Mapping[str, BoundMinion], names: Mapping[str, str], masters: Collection[str]
) -> list[RebalanceStep]:
    """
    The fewest moves after which the movable *minions* are spread over *masters* as evenly as their
    configurations allow: each moves one minion from the fullest master to the emptiest possible
    one.
    """
    on = {i: each.on for i, each in minions.items() if not each.stays and each.on in masters}
    have = Counter(dict.fromkeys(masters, 0))
    have.update(on.values())
    may = {i: ways(minions[i], names, masters) for i in on}
    able: dict[tuple[str, str], list[str]] = {}
    for minion_id in sorted(on, reverse=True):
        for target in may[minion_id]:
            able.setdefault((on[minion_id], target), []).append(minion_id)
    steps: list[RebalanceStep] = []
    gone: set[str] = set()
    while True:
        apart = [
            (have[source] - have[target], source, target)
            for (source, target), ids in able.items()
            if ids and have[source] - have[target] > 1
        ]
        if not apart:
            return steps
        _, source, target = max(apart)
        minion_id = able[source, target].pop()
        if minion_id not in gone:
            gone.add(minion_id)
            steps.append(RebalanceStep(minion_id, source, target, may[minion_id][target]))
            have.update({source: -1, target: 1})
