"""
Checks the invariants from outside: what the key folders show, what the ledger allows, which AES
keys rotated. :func:`verdict` is pure; the other functions ask a world that has settled.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from lab.wait import wait_for
from proving.torture.keys import ACCEPTED, FOLDERS, KEYS, PENDING, REJECTED, UNKNOWN, Slot
from proving.torture.ledger import KNOCK, REVOCATIONS, Ledger
from proving.torture.member import Member
from proving.torture.watch import Change, by_engines, revoked
from proving.torture.world import World
from saltext_ha.common.errors import HaError

ROTATED = 30.0
TRACEBACK = re.compile(r"^.*Traceback \(most recent.*(?:\n[ \t].*)*(?:\n.*)?", re.MULTILINE)
# An error that came of another has two tracebacks.
SHOWN = 3
ABOUT_KEYS = ("key/", "conflict", "held")
IDLE = 1.5
"""Seconds within which an engine does any remaining work, however busy the machine is: it looks
every 0.1 s."""


def verdict(
    ledger: Ledger, shown: Mapping[str, Mapping[str, Slot]], conflicts: Iterable[str]
) -> list[str]:
    """
    What is wrong in what the masters show in the end; empty if nothing is.

    :param shown: master → id → slot, of masters that have settled.
    :param conflicts: ids that the masters say are in conflict.
    """
    flaws: list[str] = []
    in_conflict = set(conflicts)
    ids = {act.pair[0] for act in ledger.acts} | {i for slots in shown.values() for i in slots}
    for minion_id in sorted(ids):
        may = {key for key in KEYS if ledger.may_be_accepted((minion_id, key))}
        must = {key for key in KEYS if ledger.must_be_accepted((minion_id, key))}
        slots = {name: table.get(minion_id) for name, table in shown.items()}
        if len(set(slots.values())) > 1 and (minion_id not in in_conflict or len(may) < 2):
            flaws.append(f"I1 {minion_id} differs: {slots}")
        for name, slot in slots.items():
            flaws += _slot_flaws(ledger, minion_id, name, slot, may, must)
    return flaws


def _slot_flaws(
    ledger: Ledger, minion_id: str, name: str, slot: Slot | None, may: set[str], must: set[str]
) -> list[str]:
    where = f"{minion_id} on {name} is {'/'.join(slot) if slot else 'absent'}"
    state, key = slot or ("", "")
    if state == ACCEPTED and key not in may:
        standing = "; ".join(map(str, ledger.standing((minion_id, key)))) or "nobody accepted it"
        return [f"I2/I3 {where}, against: {standing}"]
    if len(may) == 1 and may == must and slot != (ACCEPTED, *must):
        return [f"I6 {where}, but {', '.join(must)} was accepted knowing all revocations"]
    if may:
        return []
    rejected = [k for k in KEYS if ledger.must_be_rejected((minion_id, k))]
    if rejected and state != REJECTED:
        return [f"I2 {where}, but {', '.join(rejected)} was rejected, and nobody decided otherwise"]
    if state == PENDING and not ledger.may_be_pending((minion_id, key)):
        return [f"I2 {where}, but was deleted and has not knocked since"]
    return []


def replaced(ledger: Ledger, changes: Iterable[Change]) -> list[str]:
    """I4: accepted keys that another key replaced, though nobody ever revoked them."""
    flaws = []
    for change in changes:
        old, new = change.before.get(ACCEPTED), change.after.get(ACCEPTED)
        if not old or not new or old == new or UNKNOWN in (old, new):
            continue
        pair = (change.minion_id, old)
        # Taken in as a knock, because it may have been deleted and forgotten.
        demoted = any(act.on == change.on and not act.certain for act in ledger.about(pair, KNOCK))
        if not demoted and not ledger.about(pair, *REVOCATIONS):
            where = f"{change.minion_id} on {change.on}"
            flaws.append(f"I4 {where}: {old} became {new}, and nobody revoked it")
    return flaws


def check(world: World, seed: int) -> list[str]:
    """
    All that is wrong with a world that was healed and has settled.

    :param seed: chooses the masters to restart.
    """
    reports = world.settle(world.group())
    shown = {
        name: {
            minion_id: slot
            for minion_id, entry in world.members[name].folders.look().items()
            if (slot := world.slot(name, entry))
        }
        for name in world.group()
    }
    conflicts = {minion_id for report in reports.values() for minion_id in report.conflicts}
    flaws = verdict(world.ledger, shown, conflicts)
    # A restored backup may show a key that another key had replaced since.
    flaws += replaced(world.ledger, by_engines(world.watcher.changes, (), world.hands))
    # Caches are cleared after the rotation: after waiting for that in vain, do not wait again.
    flaws += _revoked_really(world) or _caches_kept(world)
    flaws += _failed_parts(world)
    return flaws or _idle(world, seed)


def _failed_parts(world: World) -> list[str]:
    """Whatever happens, no part of an engine ends with an unexpected exception."""
    flaws = []
    for name, member in world.members.items():
        text = member.log.read_text(errors="replace") if member.log.exists() else ""
        if found := tracebacks(text):
            shown = "\n".join(found[:SHOWN])
            flaws.append(f"{name}: its log has a traceback ({len(found)} in all):\n{shown}")
    return flaws


def tracebacks(log: str) -> list[str]:
    """The tracebacks in *log*, each up to and with the line that names the error."""
    return TRACEBACK.findall(log)


def _revoked_really(world: World) -> list[str]:
    """I9: when an engine took an accepted key away, the AES key rotates."""
    flaws = []
    changes = by_engines(world.watcher.changes, world.operations, world.hands)
    for name, member in world.members.items():
        taken = [c for c in changes if c.on == name and revoked(c, member.legacy)]
        world.counts["keys revoked by an engine"] += len(taken)
        if not taken or member.gone:
            continue
        last = max(change.since for change in taken)
        try:
            wait_for(partial(_rotated, world, name, last), ROTATED, "rotated")
        except TimeoutError:
            ids = ", ".join(change.minion_id for change in taken)
            flaws.append(f"I9 {name} revoked {ids} and rotated no AES key after it")
    return flaws


def _caches_kept(world: World) -> list[str]:
    """I9: when an engine took the last key of an id away, nothing is kept of that minion."""
    # The last time that each accepted key went away.
    went = {
        (change.on, change.minion_id): change
        for change in world.watcher.changes
        if revoked(change, world.members[change.on].legacy)
    }
    flaws = []
    taken = by_engines(went.values(), world.operations, world.hands)
    for name in world.group():
        member = world.members[name]
        without = {c.minion_id for c in taken if c.on == name and not c.after}
        without -= member.folders.look().keys()
        world.counts["caches to be cleared"] += len(without)
        try:
            wait_for(partial(_cleared, member, without), ROTATED, "cleared")
        except TimeoutError:
            kept = ", ".join(sorted(filter(member.caches.has, without)))
            flaws.append(f"I9 {name} took the last keys of {kept} away and kept their caches")
    return flaws


def _cleared(member: Member, ids: Iterable[str]) -> bool:
    return not any(map(member.caches.has, ids))


def _rotated(world: World, name: str, since: float) -> bool:
    return any(at >= since for at in world.watcher.rotations[name])


def _idle(world: World, seed: int) -> list[str]:
    """I7: a restart, a sync and repeated messages do nothing a second time."""
    rng = random.Random(seed)
    group = world.group()
    time.sleep(IDLE)
    before = {name: _marks(world, name) for name in group}
    ids = sorted({act.pair[0] for act in world.ledger.acts})
    records = world.auditor.record(world.members[rng.choice(group)], ids)
    victim = world.members[rng.choice(group)]
    victim.kill()
    victim.start()
    world.settle(group)
    for name in group:
        world.auditor.replay(world.members[name], records[:20], seed)
        try:
            world.members[name].control("sync")
        except HaError as exc:
            return [f"I7 sync fails on {name}: {exc}"]
    world.settle(group)
    time.sleep(IDLE)
    flaws = []
    for name in group:
        for what, old, new in zip(
            ("a key file", "the AES key", "an event"),
            before[name],
            _marks(world, name),
            strict=True,
        ):
            if old != new:
                flaws.append(f"I7 {name}: {what} changed though nothing happened: {old} → {new}")
    return flaws


def _marks(world: World, name: str) -> tuple[object, object, object]:
    member = world.members[name]
    files = {}
    for folder in FOLDERS.values():
        path = Path(member.place.pki_dir, folder)
        with os.scandir(path) as entries:
            for entry in entries:
                # Dot files are no keys: the engine signs the folder whenever it starts.
                if not entry.name.startswith("."):
                    info = entry.stat()
                    files[f"{folder}/{entry.name}"] = (info.st_ino, info.st_mtime_ns)
    # Events about peers and configurations may come at any time.
    events = [e for e in member.announced() if e["tag"].startswith(ABOUT_KEYS)]
    return files, len(world.watcher.rotations[name]), len(events)
