"""
Would every minion keep working without this master?

Pure: values in, reasons why not out. Only an empty list is a yes: a check that was not possible is
a reason, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saltext_ha.consistency.rules import DRIFT
from saltext_ha.consistency.values import ABSENT as LACKS
from saltext_ha.keystore import minion_key
from saltext_ha.replication.placement import ABSENT, Stored
from saltext_ha.replication.record import ACCEPTED

#: Salt itself warns from a quarter of the open files on (salt.utils.verify.check_max_open_files).
FILES_PER_MINION = 4
#: Sections of check_consistency that say whether another master can take over.
SECTIONS = ("master_key", "access", "roots")
LISTED = 1000
# Not ha.sync alone: if the revocation is as new as the acceptance, that would spread it.
APART = (
    "salt-run ha.history ID says who did it and why; salt-run ha.restore ID keeps the minion; "
    "salt-run ha.sync test=True shows what would become of the rest"
)
CONFLICT = "salt-run ha.resolve {minion} {keys}, of the key that the minion really has"

SAME_VERSION = "saltext-ha on the minion and on every master, the same version as here"

MASTERS, KEYS, MINIONS, CAPACITY = "masters", "keys", "minions", "capacity"
DIFFERENT = "accepted with different keys"


@dataclass(frozen=True)
class Capacity:
    """A master's worker threads, files it may have open, minions it accepts (0: any number)."""

    workers: int
    open_files: int
    max_minions: int = 0


class KnownMaster(NamedTuple):
    """
    A master that a minion knows, ``written`` as in its configuration. ``members``: the members of
    the group that it may be; empty: none of them, several: unclear which. ``connected``: whether
    the minion is connected to its publisher; ``answers`` and ``publishes``: whether the minion
    reaches its request port and its publisher. None: unknown.
    """

    members: tuple[str, ...]
    written: str
    connected: bool | None = None
    answers: bool | None = None
    publishes: bool | None = None


@dataclass(frozen=True)
class MinionReport:
    """
    A minion by its own report.

    ``masters`` are those that it knows. ``findings`` are those of ``ha.lint`` that count: code,
    text, fix. ``problem``: why it could not report.
    """

    masters: tuple[KnownMaster, ...] = ()
    type: str = ""
    verifies: bool = False
    findings: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class GroupFacts:
    """
    All facts for the decision.

    ``unreached`` and ``unasked``: master → why it, or its minions, could not be asked; ``room`` and
    ``keys`` have those that could. ``sections`` are those of ``check_consistency``. ``signed``: the
    masters have different keys, and sign them. ``number``: how many minions the group has, even if
    the rest is about some of them only. ``per_worker``: how many minions one worker thread can
    serve; a rule of thumb for mostly idle ones, because all authenticate again when a master is
    lost.
    """

    masters: Sequence[str]
    room: Mapping[str, Capacity]
    keys: Mapping[str, Mapping[str, Stored]]
    sections: Mapping[str, Mapping[str, Any]]
    minions: Mapping[str, MinionReport]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unreached: Mapping[str, str] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)
    signed: bool = False
    number: int = 0
    per_worker: int = 200


@dataclass(frozen=True)
class UnsafeReason:
    """
    One reason why minions would not keep working.

    ``unknown``: something could not be checked. ``minions`` are the affected ones, at most
    :data:`LISTED`; ``count`` is how many there are.
    """

    about: str
    text: str
    fix: str
    unknown: bool = False
    minions: tuple[str, ...] = ()
    count: int = 0

    def data(self) -> dict[str, Any]:
        names = ("about", "text", "fix", "unknown", "count")
        return {**{name: getattr(self, name) for name in names}, "minions": list(self.minions)}


def accepted(keys: Mapping[str, Mapping[str, Stored]]) -> set[str]:
    """The ids that are accepted on any master."""
    return {
        minion_id
        for table in keys.values()
        for minion_id, stored in table.items()
        if stored.state == ACCEPTED
    }


def judge(group: GroupFacts, lost: str) -> list[UnsafeReason]:
    """
    The reasons why not all minions would keep working without the master *lost*; none: they would.
    """
    left = [name for name in group.masters if name != lost]
    if not left:
        return [UnsafeReason(MASTERS, "there is no other master", "salt-ha invite; docs/tutorials")]
    everybody = accepted(group.keys)
    return [
        *_masters(group, left, lost),
        *_keys(group, left, everybody),
        *_sections(group, lost),
        *_minions(group, lost, everybody),
        # Room is for all minions, not only for the few that were asked about.
        *_capacity(group, left, max(group.number, len(everybody))),
    ]


def _masters(group: GroupFacts, left: Iterable[str], lost: str) -> Iterator[UnsafeReason]:
    for name in left:
        if name in group.unreached:
            yield UnsafeReason(
                MASTERS,
                f"{name} could not be asked: {group.unreached[name]}",
                f"is salt-master up on {name}, and its peer port open?",
                unknown=True,
            )
        for note in group.notes.get(name, ()):
            yield UnsafeReason(MASTERS, f"{name}: {note}", "salt-run ha.status")
    if lost in group.unreached:
        yield UnsafeReason(
            MASTERS,
            f"{lost} itself could not be asked ({group.unreached[lost]}): what only it has is not "
            "known",
            f"ask again when {lost} is there; or, when it is gone for good, salt-run "
            f"ha.remove_peer {lost}",
            unknown=True,
        )


def _keys(group: GroupFacts, left: Iterable[str], everybody: set[str]) -> Iterator[UnsafeReason]:
    """A minion whose key is not accepted on one of its masters may wait there for ever."""
    for name in left:
        table = group.keys.get(name)
        if table is None:
            continue  # already reported
        wrong: dict[str, list[str]] = defaultdict(list)
        resolve = ""
        for minion_id in sorted(everybody):
            here = table.get(minion_id, ABSENT)
            keys = {
                other[minion_id].key
                for other in group.keys.values()
                if minion_id in other and other[minion_id].state == ACCEPTED
            }
            if here.state != ACCEPTED:
                wrong[f"{here.state or 'absent'} on {name}"].append(minion_id)
            elif len(keys) > 1:
                wrong[DIFFERENT].append(minion_id)
                shown = sorted(minion_key.show(key) for key in keys if key)
                resolve = resolve or CONFLICT.format(minion=minion_id, keys=" or ".join(shown))
        for state, ids in wrong.items():
            fix = resolve if state == DIFFERENT else APART
            yield _reason(KEYS, ids, f"their keys are {state}", fix)


def unknown_to_minions(group: GroupFacts) -> list[str]:
    """
    The masters that no minion is configured with; empty if not all minions told their masters, or
    one has an address that belongs to no known master.
    """
    everybody = accepted(group.keys)
    told = [group.minions[minion_id] for minion_id in everybody & group.minions.keys()]
    if not told or len(told) < len(everybody) or any(each.problem for each in told):
        return []
    entries = [master for each in told for master in each.masters]
    if any(not each.members for each in entries):
        return []
    known = {name for each in entries for name in each.members}
    return sorted(set(group.masters) - known)


def _sections(group: GroupFacts, lost: str) -> Iterator[UnsafeReason]:
    for name in SECTIONS:
        section = group.sections.get(name)
        if section is None:
            yield UnsafeReason(name, "could not be compared", "salt-run ha.check_consistency", True)
            continue
        for who, why in section.get("unknown", {}).items():
            if who not in group.unreached:
                yield UnsafeReason(name, f"{who}: {why}", _log_of(who), unknown=True)
        for difference in section.get("differences", ()):
            if difference.get("severity", DRIFT) == DRIFT and not _only_lacks(difference, lost):
                fix = difference.get("fix") or "salt-run ha.check_consistency"
                yield UnsafeReason(name, f"masters differ in {difference['path']}", str(fix))
        if section.get("left_out"):
            yield UnsafeReason(
                name, f"and {section['left_out']} more", "salt-run ha.check_consistency"
            )


def _only_lacks(difference: Mapping[str, Any], lost: str) -> bool:
    """Whether all others have the same and *lost* has nothing: then its loss changes nothing."""
    values = difference.get("values") or {}
    others = [value for name, value in values.items() if name != lost]
    return values.get(lost) == LACKS and bool(others) and all(v == others[0] for v in others)


def _minions(group: GroupFacts, lost: str, everybody: set[str]) -> Iterator[UnsafeReason]:
    for name, why in sorted(group.unasked.items()):
        if name not in group.unreached:
            text = f"{name} could not ask its minions: {why}"
            yield UnsafeReason(MINIONS, text, _log_of(name), unknown=True)
    silent = sorted(everybody - group.minions.keys())
    if silent:
        yield _reason(
            MINIONS,
            silent,
            "they did not answer: whether they would go on is not known",
            "start them; delete the keys of those that are gone for good; or minions=GLOB",
            unknown=True,
        )
    found: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for minion_id in sorted(everybody & group.minions.keys()):
        for trouble in _troubles(group.minions[minion_id], lost, group.signed):
            found[trouble].append(minion_id)
    for (text, fix, unknown), ids in found.items():
        yield _reason(MINIONS, ids, text, fix, unknown)


def _troubles(minion: MinionReport, lost: str, signed: bool) -> Iterator[tuple[str, str, bool]]:
    tell = "salt-run ha.minion_config; the state ha.multi_master"
    if minion.problem:
        yield minion.problem, SAME_VERSION, True
        return
    for code, text, fix in minion.findings:
        yield f"{code} {text}", fix, False
    others = [each for each in minion.masters if each.members != (lost,)]
    if not any(each.members for each in others):
        yield f"they know no other master of the group than {lost}", tell, False
    for each in others:
        if not each.members:
            yield f"they know {each.written}, which is no master of the group", tell, False
        elif len(each.members) > 1:
            which = " or ".join(each.members)
            fix = "a name or an address of its own for each master"
            yield f"they know {each.written}, which may be {which}", fix, True
        else:
            yield from _way(each, each.members[0], minion.type == "list")
    if minion.type not in ("failover", "list", "str"):
        text = f"master_type {minion.type or 'unknown'}: where they go is not known"
        yield text, tell, True
    if signed and not minion.verifies:
        yield (
            "the masters have different keys and sign them, and they do not verify that",
            "verify_master_pubkey_sign: True and master_sign.pub; or one master key for all",
            False,
        )


def _way(known: KnownMaster, member: str, hot: bool) -> Iterator[tuple[str, str, bool]]:
    """What is wrong with a minion's way to *member*; *hot*: it is bound to all masters at once."""
    look = (
        "salt MINION ha.masters ping=True shows what it sees; /var/log/salt/minion there says why"
    )
    if known.answers is False:
        yield f"they do not reach {member}", look, False
    elif known.publishes is False:
        yield f"they do not reach the publisher of {member}: no job of it would come", look, False
    elif known.answers is None or known.publishes is None:
        yield f"whether they reach {member} is not known", f"{look}; {SAME_VERSION}", True
    # A failover minion connects when it moves; a hot-hot minion does not move.
    if hot and known.connected is False:
        yield f"they are not connected to {member}: they hear no job of it", look, False
    elif hot and known.connected is None:
        yield f"whether they are connected to {member} is not known", look, True


def _capacity(group: GroupFacts, left: Iterable[str], number: int) -> Iterator[UnsafeReason]:
    """Each master that is left must be able to take all minions: they may all go to the first."""
    for name in left:
        room = group.room.get(name)
        if room is None:
            continue  # already reported
        if number * FILES_PER_MINION > room.open_files:
            yield UnsafeReason(
                CAPACITY,
                f"{name} may have {room.open_files} files open; {number} minions need "
                f"{number * FILES_PER_MINION}",
                "max_open_files, and the limit of the service (LimitNOFILE)",
            )
        if 0 < room.max_minions < number:
            yield UnsafeReason(
                CAPACITY,
                f"{name} lets in {room.max_minions} minions of {number}",
                f"max_minions: 0, or at least {number}, on {name}",
            )
        if number > group.per_worker * room.workers:
            needed = -(-number // group.per_worker)
            yield UnsafeReason(
                CAPACITY,
                f"{name} has {room.workers} worker threads; {number} minions need {needed}",
                f"worker_threads: {needed} on {name}; or, where they are known to do, "
                "ha: minions_per_worker",
            )


def _log_of(master: str) -> str:
    return f"/var/log/salt/master on {master} (or its log_file) says more"


def _reason(
    about: str, ids: Sequence[str], text: str, fix: str, unknown: bool = False
) -> UnsafeReason:
    return UnsafeReason(about, text, fix, unknown, tuple(ids[:LISTED]), len(ids))
