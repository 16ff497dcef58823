"""Makes and registers the parts that answer operators, peers and callers of the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from saltext_ha.commands.cmd import Commands
from saltext_ha.commands.consistency_check import ConsistencyCheck, OwnFacts
from saltext_ha.commands.decisions import Decisions
from saltext_ha.commands.deploy import Deploy
from saltext_ha.commands.differences import Differences
from saltext_ha.commands.drain import Drain
from saltext_ha.commands.endpoints import Endpoints
from saltext_ha.commands.failover_safe import FailoverSafe
from saltext_ha.commands.history import HistoryCommand
from saltext_ha.commands.key_section import KeySection
from saltext_ha.commands.keys import Keys
from saltext_ha.commands.leader import LeaderCommand
from saltext_ha.commands.lint import Lint
from saltext_ha.commands.lock import LockCommand
from saltext_ha.commands.members import Members
from saltext_ha.commands.minion_config import MinionConfig
from saltext_ha.commands.minions import Bound
from saltext_ha.commands.once import Once
from saltext_ha.commands.past_jobs import PastJobs
from saltext_ha.commands.proxy_config import ProxyConfig
from saltext_ha.commands.reachability import Reachability
from saltext_ha.commands.remove_peer import RemovePeer
from saltext_ha.commands.restart_masters import RestartMasters
from saltext_ha.commands.rewrite import Rewrite
from saltext_ha.commands.status import Status
from saltext_ha.commands.summary import Summary
from saltext_ha.commands.tree_states import TreeStates
from saltext_ha.commands.where import Where
from saltext_ha.engine.parts import Parts
from saltext_ha.minions.arrivals import Arrivals, grains_cache, mine_cache
from saltext_ha.minions.job_cache import JobCache
from saltext_ha.minions.job_specs import MINE, REFRESH, JobSpec
from saltext_ha.minions.jobs import Jobs
from saltext_ha.minions.mines import Mines
from saltext_ha.minions.own_jobs import OwnJobs
from saltext_ha.sync.server import SyncServer
from saltext_ha.transport.control_server import Command
from saltext_ha.transport.listener import Handler
from saltext_ha.web.own import Own
from saltext_ha.web.pages import Pages
from saltext_ha.web.snapshot import Snapshots

T = TypeVar("T")


class Answering(NamedTuple):
    """
    ``commands`` answer on the control socket, ``peer_handlers`` answer peers, ``pages`` answer
    callers of the status page; the others are parts of these.
    """

    commands: dict[str, Command]
    peer_handlers: dict[str, Handler]
    pages: Pages
    jobs: Jobs
    arrivals: Arrivals | None
    mines: Mines
    bound: Bound
    checking: ConsistencyCheck
    summary: Summary
    status: Status


def make(parts: Parts) -> Answering:
    """Make the parts that answer for the engine of *parts*; in the event loop."""
    opts, config = parts.opts, parts.config
    core, trust, group = parts.core, parts.trust, parts.group
    health, membership = parts.health, parts.membership
    own_jobs = OwnJobs(group.name, opts, parts.returns, config.commands)
    jobs = Jobs(group, own_jobs, parts.presence.hot)
    arrivals = _arrivals(parts, own_jobs) if opts.get("minion_data_cache", True) else None
    mines = _mines(parts, own_jobs, arrivals)
    bound = Bound(group, jobs, core, opts, presence=parts.presence, room=parts.room)
    summary = Summary(
        opts,
        core,
        parts.hello,
        health,
        bound=bound.count,
        mines=mines.told if arrivals else lambda: None,
        notes=parts.all_notes,
        timeout=config.peer_timeout,
    )
    keys = KeySection(group, core)
    own_facts = OwnFacts(opts, config, keys)
    tree_states = TreeStates(group, parts.stager, opts)
    checking = ConsistencyCheck(
        group, config, core, own_facts, keys, tree_states.explain, parts.watch.note
    )
    deploy = Deploy(
        group,
        parts.trees,
        parts.stager,
        tree_states,
        config.state_dir / "trees",
        parts.ending.check,
    )
    drain = Drain(group, jobs, bound, health, config.address)
    where = Where(core, jobs, bound)
    lint = Lint(group, opts)
    members = Members(
        group,
        config,
        core,
        membership=membership,
        renewal=parts.renewal,
        vouching=parts.vouching,
        hello=parts.hello,
    )
    remove_peer = RemovePeer(
        group,
        core,
        trust,
        membership,
        by_secret=config.secret is not None,
        notes=parts.notes,
    )
    endpoints = Endpoints(group, core, opts, config.address)
    proxy = ProxyConfig(group, opts, config)
    safe = FailoverSafe(group, jobs, endpoints, checking, summary, config.minions_per_worker)
    status = Status(
        group,
        config,
        opts,
        core,
        summary=summary,
        watch=parts.watch,
        refusals=parts.refusals,
        leader=parts.leader,
    )
    restart_masters = RestartMasters(group, config.restart, config.state_dir / "restart")
    past_jobs = PastJobs(group, jobs, JobCache(opts))
    leader = LeaderCommand(group, parts.leader, parts.runs, parts.reactions)
    server = SyncServer(
        core, parts.links, parts.hello, parts.vouching, parts.leases, membership.moved
    )
    commands = (
        status,
        Keys(group, core),
        checking,
        Differences(group, core, keys),
        lint,
        Decisions(group, core),
        members,
        remove_peer,
        Rewrite(group, core, parts.vouching),
        HistoryCommand(core, config.name),
        bound,
        Reachability(jobs, bound),
        where,
        Commands(jobs, where),
        drain,
        MinionConfig(core, endpoints),
        safe,
        proxy,
        deploy,
        restart_masters,
        leader,
        Once(parts.leader, parts.runs),
        LockCommand(config.name, parts.leader, parts.locks),
        past_jobs,
    )
    reactions = (parts.reactions,) if parts.reactions else ()
    for_peers = (
        server,
        parts.trees,
        parts.stager,
        parts.retention,
        parts.shared_store,
        group,
        summary,
        lint,
        members,
        remove_peer,
        own_facts,
        own_jobs,
        mines,
        bound,
        drain,
        endpoints,
        safe,
        proxy,
        restart_masters,
        parts.leader,
        parts.runs,
        parts.locks,
        leader,
        past_jobs,
        *reactions,
    )
    own = Own(
        config.name,
        config.group,
        core.mode,
        health,
        lambda: parts.identity,
        parts.counters,
        parts.failovers,
        lambda: parts.refusals.counts,
    )
    snapshots = Snapshots(config.name, status, core, parts.failovers, config.peer_timeout)
    return Answering(
        _together(each.commands() for each in commands),
        _together([membership.handlers(), *(each.for_peers() for each in for_peers)]),
        Pages(snapshots, health, bound.minions, own),
        jobs,
        arrivals,
        mines,
        bound,
        checking,
        summary,
        status,
    )


def _arrivals(parts: Parts, jobs: OwnJobs) -> Arrivals:
    """For a master that caches grains, pillar and mine of minions."""
    arrivals = Arrivals(_refresh(jobs), grains_cache(parts.opts))
    parts.bus.add(arrivals)
    parts.noted.append(arrivals.notes)
    return arrivals


def _refresh(jobs: OwnJobs) -> Callable[[tuple[str, ...]], Awaitable[None]]:
    """Has minions refresh their mine, grains and pillar."""

    async def refresh(ids: tuple[str, ...]) -> None:
        for what in (REFRESH, MINE):
            await jobs.tell(JobSpec(what, ids=ids))

    return refresh


def _mines(parts: Parts, jobs: OwnJobs, arrivals: Arrivals | None) -> Mines:
    """Answers peers in any case; compares mines only if this master caches them."""
    mines = Mines(
        parts.links,
        mine_cache(parts.opts),
        busy=arrivals.asks if arrivals else lambda _: False,
        publish=_refresh(jobs),
    )
    if arrivals:
        parts.bus.add(mines)
        parts.noted.append(mines.notes)
    return mines


def _together(tables: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge *tables*; no name may be in two of them."""
    found: dict[str, T] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
        found.update(table)
    return found
