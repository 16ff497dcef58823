"""Which masters get no minions by a drain or a rebalance, by the health of each; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

LAST = "no other master than {0} is ready: without it the group serves nobody"
DRAINED = "drained until salt-run ha.rebalance, or a restart of salt-master there"


def no_other_ready(source: str, healths: Mapping[str, Mapping[str, Any]]) -> str:
    """That no master but *source* is ready; empty when another one is."""
    ready = {name for name, each in healths.items() if each.get("ready") is True}
    return "" if ready - {source} else LAST.format(source)


def closed(
    masters: Collection[str], healths: Mapping[str, Mapping[str, Any]], insisting: bool = False
) -> dict[str, str]:
    """
    Those of *masters* that get no minions → why, to be read after "it is".

    :param insisting: a master that is not ready gets some all the same, unless it is drained: there
        is no better one.
    """
    found = {}
    for name in masters:
        health = healths.get(name, {})
        if health.get("draining") is True:
            found[name] = DRAINED
        elif insisting and not health:
            found[name] = "possibly drained: it does not say"
        elif health.get("ready") is not True and not insisting:
            found[name] = f"not ready: {health.get('reason') or 'it does not say that it is'}"
    return found


def released(health: Mapping[str, Any]) -> Mapping[str, Any]:
    """The *health* of a master as it is once the master is not drained any more."""
    if health.get("draining") is not True:
        return health
    serves = health.get("healthy") is not False
    return {**health, "draining": False, "ready": serves, "reason": health.get("problem")}
