"""
What ``ha.join`` would do, computed from what both sides say; nothing is written on either.

This master's side comes from its running engine; without one, from its key store and a copy of its
replica, which is what the engine would find when it starts.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltext_ha.commands.engine_client import not_configured
from saltext_ha.commands.keys import key_pages
from saltext_ha.common import cluster
from saltext_ha.common.errors import EngineUnavailable, PeerUnreachable, TrustError
from saltext_ha.common.master_key import ROLES
from saltext_ha.config.mapping import HaConfig
from saltext_ha.keystore import open_store
from saltext_ha.membership import handover
from saltext_ha.membership.join import Preview, one_way, other_group, preview
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.token import decode
from saltext_ha.reconciler.keeper import Keeper
from saltext_ha.reconciler.write_mode import WriteMode, pause_note
from saltext_ha.replica.replica import REPLICA_FILE, Replica
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.preview import NOTHING, SideKnowledge, joined, meeting
from saltext_ha.sync.key_rows import conflict_row, moved_row
from saltext_ha.transport import control_client, identity
from saltext_ha.transport.peer_files import PEERS_DIR
from saltext_ha.transport.trust import Trust


@dataclass
class _Side:
    """What one side knows, and what an operator should know about it."""

    known: dict[str, SideKnowledge] = field(default_factory=dict)
    one_denied: bool = True
    notes: list[str] = field(default_factory=list)


def plan(
    opts: Mapping[str, Any],
    config: HaConfig,
    token: str,
    wait: float = 0.0,
    force: bool = False,
    reach: Reach | None = None,
) -> dict[str, Any]:
    """
    The plan of ``ha.join``.

    :param wait: seconds to keep trying while the inviting master does not answer.
    :param reach: where the group would try to reach this master.
    :return: ``group``, ``inviter``, ``members``; ``problems``: why it would be refused;
        ``key_problems``: why a master key would not be put in place; ``changes`` and
        ``conflicts`` as ``ha.sync`` has them; ``notes``.
    :raises HaError: the token is not valid, or the inviter cannot be asked.
    """
    with tempfile.TemporaryDirectory(prefix="saltext-ha-") as scratch:
        ours = identity.existing_or_provisional(config.state_dir, config.name, Path(scratch))
        first, theirs = asyncio.run(_ask(ours, config, token, wait, reach))
    group = decode(token).group
    problems = []
    if group != config.group:
        problems.append(
            f"the token is of the group {group!r}, this master is configured for "
            f"{config.group!r}; set ha: group: {group}"
        )
    if first.refused:
        problems.append(f"{first.inviter} would refuse: {first.refused}")
    unpinnable, merging = _unpinnable(first, config, force)
    problems += unpinnable
    public, shares = first.told.get("public"), first.told.get("shares")
    key_notes, key_problems = handover.foretell(
        opts,
        public if isinstance(public, Mapping) else {},
        [role for role in ROLES if isinstance(shares, list) and role in shares],
        force,
    )
    mine = _own(opts, config)
    there = f"the group ({first.inviter})"
    sides = {config.name: mine.known, there: theirs.known}
    changes, conflicts = meeting(sides, {config.name: mine.one_denied, there: theirs.one_denied})
    return {
        "kind": "join_plan",
        "test": True,
        "group": group,
        "inviter": first.inviter,
        "members": [member.name for member in first.members],
        "problems": problems,
        "key_problems": key_problems,
        "changes": [moved_row(c.side, c.minion_id, c.before, c.after) for c in changes],
        "conflicts": [_conflict(minion_id, sides) for minion_id in conflicts],
        "unreachable": {},
        "notes": [
            *merging,
            *one_way(first.unreachable),
            *key_notes,
            *(f"{config.name}: {note}" for note in mine.notes),
            *(f"{there}: {note}" for note in theirs.notes),
        ],
        "retcode": 1 if problems or key_problems or conflicts else 0,
    }


async def _ask(
    ours: identity.Identity, config: HaConfig, token: str, wait: float, reach: Reach | None
) -> tuple[Preview, _Side]:
    """What the inviting master says, and all that it knows."""
    give_up = time.monotonic() + wait
    while True:
        try:
            first = await preview(ours, token, config.name, config.url, reach=reach)
            break
        except PeerUnreachable:
            if time.monotonic() >= give_up:
                raise
            await asyncio.sleep(1.0)
    side = _Side()
    _describe(side, first.told)
    after = key_pages.collect(side.known, first.told.get("page"))
    while after:
        more = await preview(ours, token, config.name, config.url, after)
        after = key_pages.collect(side.known, more.told.get("page"))
    return first, side


def _unpinnable(first: Preview, config: HaConfig, force: bool) -> tuple[list[str], list[str]]:
    """Why this master could not pin members, or would not without *force*; and notes."""
    problems = [
        f"the group has a master {member.name} already; set another ha: name here"
        for member in first.members
        if member.name == config.name
    ]
    with tempfile.TemporaryDirectory(prefix="saltext-ha-") as scratch:
        known = (config.state_dir / PEERS_DIR).is_dir()
        trust = Trust(config.state_dir if known else Path(scratch), most=config.max_members)
        try:
            trust.check(*first.members)
        except TrustError as exc:
            problems.append(f"{config.name} would not trust the group: {exc}")
        merging = other_group(trust, first.members)
    if merging and not force:
        problems.append(merging)
    return problems, [merging] if merging and force else []


def _own(opts: Mapping[str, Any], config: HaConfig) -> _Side:
    """What this master knows."""
    side = _Side()
    after = key_pages.FIRST
    try:
        while True:
            answer = control_client.request(
                config.control_socket, "knowledge", {"after": after.hex()}
            )
            _describe(side, answer)
            after = key_pages.collect(side.known, bytes.fromhex(str(answer.get("page"))))
            if not after:
                return side
    except EngineUnavailable:
        return _from_store(opts, config)


def _from_store(opts: Mapping[str, Any], config: HaConfig) -> _Side:
    """What the engine of this master would know if it were started now."""
    store = open_store(opts)
    with tempfile.TemporaryDirectory(prefix="saltext-ha-") as folder:
        replica = Replica(_copy(config.state_dir / REPLICA_FILE, Path(folder)))
        try:
            replica.take_node()
            with replica.transaction():
                replica.meta.mode = config.mode
            guard = RevocationGuard(config.hold_fraction, config.hold_minimum)
            keeper = Keeper(
                store,
                replica,
                name=config.name,
                guard=guard,
                revoke=lambda gone, rotate: None,
                mode=WriteMode(in_cluster="it is only looked at"),
            )
            keeper.observe(list(store.changed()), certain=True)
            side = _Side(key_pages.everything(replica), store.one_denied)
            held = len(replica.held.all())
            paused = replica.meta.paused
        finally:
            replica.close()
    side.notes.append("its ha engine does not run; this is what it would find in the key store")
    side.notes.extend(filter(None, [not_configured(config)]))
    member = cluster.of(opts)
    why = member.why_only_reported(config.repair) if member else ""
    if paused and not why:
        why = pause_note(config.mode, since="")
    if why:
        side.notes.append(f"will write nothing to its key store: {why}")
    if keeper.mode.doubt:
        side.notes.append(keeper.mode.doubt)
    if keeper.refused.reasons:
        side.notes.append(keeper.refused.note())
    if held:
        side.notes.append(f"{held} keys are gone from its store: they would be held")
    return side


def _copy(path: Path, folder: Path) -> Path | None:
    if not path.exists():
        return None
    for name in (path.name, f"{path.name}-wal"):
        source = path.with_name(name)
        if source.exists():
            shutil.copyfile(source, folder / name)
    return folder / path.name


def _describe(side: _Side, answer: Mapping[str, Any]) -> None:
    side.one_denied = answer.get("one_denied") is not False
    why = answer.get("writes_not")
    side.notes = [f"will write nothing to its key store: {why}"] if why else []
    if answer.get("lost") is True:
        side.notes.append("lost its replica.db, and does not know all keys yet: nor does this plan")


def _conflict(minion_id: str, sides: Mapping[str, Mapping[str, SideKnowledge]]) -> dict[str, Any]:
    known = {name: side.get(minion_id, NOTHING) for name, side in sides.items()}
    shown = {name: entry.shown for name, entry in known.items()}
    return conflict_row(minion_id, shown, joined(each.records for each in known.values()).values())
