"""``ha.status``: the group, every master, and what is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.commands.masters.known_apis import KnownApis
from saltext_ha.commands.masters.own_summary import OwnSummary
from saltext_ha.common import cluster
from saltext_ha.common.errors import HaError
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.refusals import Refusals
from saltext_ha.config.mapping import HaConfig
from saltext_ha.health import fitness, group_state
from saltext_ha.once.leader import Leader
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.digest import bucket_of
from saltext_ha.sync import antientropy
from saltext_ha.sync.answers import PLACEMENTS, RECORDS
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import Group
from saltext_ha.sync.hello import TOO_OLD
from saltext_ha.sync.key_rows import conflict_row
from saltext_ha.sync.link import Link
from saltext_ha.sync.summary import MasterSummary
from saltext_ha.transport import fingerprints

UNUSED = (
    "no minion is configured with {}, so it is not counted among the masters that may be lost: "
    "salt-run ha.minion_config; then salt-run ha.failover_safe looks again"
)
RENAMED = (
    "set  ha: name: {0}  {1} again, or run ha.leave {1} and join anew under the new name; but if "
    "its machine was copied from that of {0}, which runs, ha.leave would take that one out: stop "
    "salt-master {1}, remove its state folder, and join anew"
)
# Seconds after which an unreachable peer may have moved.
LONG = 120.0
AS_TOLD = (
    *("salt", "version", "accepted", "pending", "rejected", "denied", "held", "doubt", "busy"),
    *("bound", "mines", "master_key"),
)
"""What the row of a master has of its summary as it is."""


class Status:
    """
    The command; the status page and metrics show the same.

    :param watch: keeps the result of the last comparison of masters.
    :param refusals: callers that were turned away: counts by reason, and recent ones with time and
        place.
    """

    def __init__(
        self,
        group: Group,
        config: HaConfig,
        opts: Mapping[str, Any],
        core: Core,
        *,
        summary: OwnSummary,
        watch: ConsistencyWatch,
        refusals: Refusals,
        leader: Leader,
        looks: Looks,
    ) -> None:
        self._group, self._config, self._opts = group, config, opts
        self._core = core
        self._summary, self._watch = summary, watch
        self._refusals, self._leader = refusals, leader
        self._apis = KnownApis(config.state_dir, looks)

    async def status(self, payload: dict[str, Any]) -> dict[str, Any]:
        """
        The table of ``ha.status``; with ``whole`` for the page, which also shows differences.
        """
        masters, conflicts, troubles, unused = await self._facts()
        # Nothing is awaited from here on: all values are of one moment.
        level = group_state.level(masters, len(conflicts))
        comparison = self._watch.compared(level)
        fit = sum(not fitness.unfit(row) and row["name"] not in unused for row in masters)
        verdict = group_state.judge(masters, comparison, len(conflicts), troubles, fit)
        reason = self._core.mode.never
        return {
            "kind": "status",
            "group": self._config.group,
            "state": verdict.state,
            "reasons": [reason.data() for reason in verdict.reasons],
            "mode": self._core.mode.name,
            "tolerates": verdict.tolerates,
            "leader": self._leader.standing.told(),
            "masters": masters,
            "conflicts": conflicts,
            "held": [
                {"master": row["name"], "keys": row["held"]} for row in masters if row["held"]
            ],
            "refused": dict(self._refusals.counts),
            "refusals": self._refusals.lately(),
            "consistency": comparison if payload.get("whole") else self._watch.shown(level),
            "notes": [
                *troubles,
                *([f"{self._group.name} only observes: {reason}"] if reason else []),
                *(UNUSED.format(row["name"]) for row in masters if row["name"] in unused),
            ],
            "retcode": verdict.retcode,
        }

    async def _facts(
        self,
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str], Sequence[str]]:
        """
        The rows of all masters and of all conflicts, what is wrong with the group, and which
        masters no minion is configured with.
        """
        own, (answers, errors) = await asyncio.gather(self._summary.get(), self._group.summaries())
        everyone = {self._group.name: own, **answers}
        links = dict(self._group.links)
        asked = sorted(answers.keys() & links.keys())
        # All at once: a slow one must not hold up the others.
        found = await asyncio.gather(
            *(self._behind(links[name].contact, own, answers[name]) for name in asked)
        )
        behind = dict(zip(asked, found, strict=True))
        level = None if own.unseen else 0
        masters = [self._row(self._group.name, own, None, level, own=True)]
        damaged = self._group.damaged()
        for name in self._group.others:
            link, answer = links.get(name), answers.get(name)
            if link is None or name in damaged:
                why = damaged.get(name) or errors.get(name, "not asked yet")
                masters.append(self._row(name, None, None, None, why))
                continue
            at = link.contact.seen
            seen = None if at is None else round(time.monotonic() - at, 1)
            unreached = [] if answer is None else _unreached(answer, set(everyone))
            remarks = (errors.get(name), self._remark(link, answer), *unreached)
            problem = "; ".join(filter(None, remarks))
            masters.append(self._row(name, answer, seen, behind.get(name), problem))
        self._apis.recall(masters)
        ids = sorted({each for told in everyone.values() for each in told.conflicts})
        if own.busy:  # this master cannot look up their keys now
            conflicts = [conflict_row(minion_id, {}, ()) for minion_id in ids]
        else:
            # To ask a master that hangs would hold up the answer once more, and for longer.
            slow = {name: "busy" for name, told in answers.items() if told.busy}
            conflicts = await self._group.conflicts(ids, errors | slow)
        apart = _master_keys(everyone, one_master_key(self._config, self._opts))
        # Why a file cannot be read is in the row of its master.
        unread = [why for why in self._group.unread if why not in damaged.values()]
        troubles = [*apart, *unread, *self._group.undeleted]
        looked_last = max((told.unused for told in everyone.values()), key=lambda each: each.at)
        return masters, conflicts, troubles, looked_last.masters

    def _remark(self, link: Link, answer: MasterSummary | None) -> str:
        """
        What is odd about a peer (moved, too old, renamed, of another group, refuses writes), and
        what to do.
        """
        config, known = self._config, link.contact.peer.name
        if answer is None:
            if time.monotonic() - (link.contact.seen or link.contact.since) < LONG:
                return ""
            return (
                "not reached for long: if it has another address now, salt-ha invite there "
                f"and salt-ha join --token-file - here; or here  ha: peers: [{{name: {known}, "
                "url: https://ADDRESS:PORT}]  and restart salt-master"
            )
        if link.contact.why_down == TOO_OLD:
            return TOO_OLD  # it answers, and no keys are exchanged with it from here
        caller = link.contact.greeting.caller or config.name
        if answer.name != known:
            return f"it calls itself {answer.name}: {RENAMED.format(known, 'there')}"
        if caller != config.name:
            return f"it knows this master as {caller}: {RENAMED.format(caller, 'here')}"
        if answer.group != config.group:
            return (
                f"its configuration says  ha: group: {answer.group}, this master's {config.group}"
            )
        if link.trouble:
            return f"refuses some of what it is sent: {link.trouble}"
        return ""

    @staticmethod
    def _row(
        name: str,
        summary: MasterSummary | None,
        seen: float | None,
        behind: int | None,
        error: str = "",
        own: bool = False,
    ) -> dict[str, Any]:
        told = summary or MasterSummary()
        if behind is not None and told.held:
            behind += told.held  # for held ids, the store differs from the stores of other masters
        notes = [error, *told.notes]
        if told.health.get("healthy") is False:
            notes.append(f"does not serve: {told.health.get('problem')}")
        if told.dirty:
            notes.append(f"{fitness.counted(told.dirty)} not yet written to its key store")
        return {
            "name": name,
            "self": own,
            "state": "running" if summary else "unknown",
            **{name: getattr(told, name) for name in AS_TOLD},
            "digest": told.root.hex()[:6] if told.root else None,
            "behind": behind,
            "seen": seen,
            "health": dict(told.health),
            "note": "; ".join(note for note in notes if note),
        }

    async def _behind(
        self, contact: Contact, own: MasterSummary, answer: MasterSummary
    ) -> int | None:
        """In how many buckets the peer differs from this master: mostly one key each."""
        replica = self._core.replica
        if own.unseen or answer.unseen:
            return None
        if (answer.root, answer.placements) == (own.root, own.placements):
            return 0
        try:
            records = await antientropy.differing_buckets(replica.records, RECORDS, contact)
            placed = await antientropy.differing_buckets(replica.placements, PLACEMENTS, contact)
        except HaError:
            return None
        # In a conflict every master keeps what it has; the status shows conflicts by themselves.
        apart = {bucket_of(minion_id) for minion_id in own.conflicts}
        return len({*records, *placed} - apart)


def _unreached(answer: MasterSummary, up: set[str]) -> list[str]:
    """Which of the masters that are *up* another does not reach, as it says in its *answer*."""
    told = answer.unreached
    return [f"does not reach {name}: {told[name]}" for name in sorted(up & told.keys())]


def _master_keys(answers: Mapping[str, MasterSummary], fix: str) -> list[str]:
    """What to do about masters that minions know by different keys; empty when all have one."""
    keys = {name: answer.master_key for name, answer in answers.items()}
    shown = {name: fingerprints.short(key, 4) for name, key in sorted(keys.items()) if key}
    if len(set(shown.values())) < 2:
        return []
    listed = ", ".join(f"{name} {key}" for name, key in shown.items())
    return [f"different master keys ({listed}); hot-hot minions take one only: {fix}"]


def one_master_key(config: HaConfig, opts: Mapping[str, Any]) -> str:
    """What to do so that all masters have one key."""
    if cluster.of(opts):
        by_hand = cluster.ONE_KEY.format(masters="the others")
        return f"{by_hand}; outside the cluster they are master.pem and master.pub in pki_dir"
    command = (
        "with  ha: share_master_key: true  on the master whose key is to stay, on each other one "
        "salt-run ha.join force=True"
        if config.secret
        else "salt-ha invite share_master_key=True on the master whose key is to stay, on each "
        "other one salt-ha join --token-file - force=True"
    )
    return f"{command}, then restart salt-master there"
