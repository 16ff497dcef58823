"""Which parts answer operators and peers: all of them are made and registered here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from saltext_ha.peering.listener import Handler
from saltext_ha.service.balancing import ProxyConfig
from saltext_ha.service.bound import Bound
from saltext_ha.service.consistency_check import ConsistencyCheck, OwnFacts
from saltext_ha.service.decisions import Decisions
from saltext_ha.service.differences import Differences
from saltext_ha.service.drain import Drain
from saltext_ha.service.endpoints import Endpoints
from saltext_ha.service.failover_safe import FailoverSafe
from saltext_ha.service.group import Command
from saltext_ha.service.history_command import HistoryCommand
from saltext_ha.service.jobs import Jobs
from saltext_ha.service.linting import Linting
from saltext_ha.service.members import Members
from saltext_ha.service.minion_config import MinionConfig
from saltext_ha.service.reachability import Reachability
from saltext_ha.service.sync_server import SyncServer

if TYPE_CHECKING:
    from saltext_ha.service.service import Service

T = TypeVar("T")


class Parts(NamedTuple):
    """
    ``commands`` are what the control socket answers, ``peer_handlers`` what peers may ask; the
    others are used by more than those.
    """

    commands: dict[str, Command]
    peer_handlers: dict[str, Handler]
    jobs: Jobs
    bound: Bound
    checking: ConsistencyCheck


def make(service: Service) -> Parts:
    """Those of the master that *service* runs on; inside the event loop, once its core is there."""
    group = service.group
    jobs = Jobs(group)
    bound = Bound(group, jobs)
    own_facts = OwnFacts(group)
    checking = ConsistencyCheck(group, own_facts)
    drain = Drain(group, jobs, bound)
    linting, members = Linting(group), Members(group)
    endpoints, proxy = Endpoints(group), ProxyConfig(group)
    safe = FailoverSafe(group, endpoints, checking)
    commands = (
        service.views,
        checking,
        Differences(group),
        linting,
        Decisions(group),
        members,
        HistoryCommand(group),
        bound,
        Reachability(jobs, bound),
        drain,
        MinionConfig(group, endpoints),
        safe,
        proxy,
    )
    for_peers = (
        SyncServer(service),
        service.retention,
        service.shared_store,
        group,
        linting,
        members,
        own_facts,
        jobs,
        bound,
        drain,
        endpoints,
        safe,
        proxy,
    )
    return Parts(
        _together(part.commands() for part in commands),
        _together([service.membership.handlers(), *(part.for_peers() for part in for_peers)]),
        jobs,
        bound,
        checking,
    )


def _together(tables: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """All of them in one; no name may stand for two things."""
    found: dict[str, T] = {}
    for table in tables:
        if twice := found.keys() & table.keys():
            raise RuntimeError(f"registered twice: {', '.join(sorted(twice))}")
        found.update(table)
    return found
