"""Rules on what deletes keys by the view of one master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.lint.cited import CitedLine
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook
from saltext_ha.lint.rules.master import in_group

BOOK = RuleBook(MASTER)


@BOOK.warning(
    "HA509",
    "keys pruned by one master's view of who is there",
    CitedLine("salt/runners/manage.py:192 down", "if removekeys:"),
    CitedLine(
        "salt/engines/stalekey.py:119 start", "present = ck.connected_ids()", release="3007.15"
    ),
    CitedLine(
        "salt/engines/stalekey.py:119 start", "present = ck.connected_ids()", release="3006.28"
    ),
    why="A failover minion answers on one master only: to the others it is down. Its key, healthy "
    "and accepted, is deleted, and with it on all masters of the group.",
    fix="take removekeys, or the engine stalekey, out; ask all masters "
    "(salt-run ha.minions live=True) before deleting keys",
)
def prunes(facts: HostFacts) -> Hits:
    if "stalekey" in facts.engines:
        yield Hit("engines", "stalekey")
    for name, (function, job) in facts.jobs.items():
        if "manage.down" in function and _removes_keys(job):
            yield Hit("schedule", f"{name}: manage.down with removekeys")


def _removes_keys(job: Mapping[str, Any]) -> bool:
    for where in ("kwargs", "kwarg"):
        given = job.get(where)
        if isinstance(given, dict) and given.get("removekeys"):
            return True
    args = job.get("args", job.get("arg"))
    texts = [str(arg).replace(" ", "").lower() for arg in args] if isinstance(args, list) else []
    # Its first positional argument.
    return "removekeys=true" in texts or texts[:1] == ["true"]


@BOOK.info(
    "HA515",
    "a reactor on who is present",
    CitedLine("salt/master.py:657 Maintenance.handle_presence", '"lost": list(lost)'),
    why="A failover minion that moves is lost on one master and new on the other. A reactor that "
    "deletes the keys of those that are lost deletes healthy ones, on all masters of the group.",
    fix="do not delete keys there; ask all masters (salt-run ha.minions live=True) before",
)
def presence(facts: HostFacts) -> Hits:
    reactors = facts.get("reactor", [])
    for number, entry in enumerate(reactors if isinstance(reactors, list) else []):
        for event in entry if isinstance(entry, dict) and in_group(facts) else ():
            if str(event).startswith("salt/presence"):
                yield Hit("reactor", str(event), number)


@BOOK.info(
    "HA516",
    "thorium on a master whose keys are replicated",
    CitedLine(
        "salt/thorium/key.py:70 timeout",
        "# No report from minion recorded, mark for change if thorium has",
    ),
    why="key.timeout in a thorium state deletes or rejects the keys of minions that this master "
    "has not heard of lately. A failover minion is heard by one master only: its key goes, healthy "
    "as it is, on all masters of the group.",
    fix="leave key.timeout out of the thorium states; ask all masters "
    "(salt-run ha.minions live=True) before deleting keys",
)
def thorium(facts: HostFacts) -> Hits:
    if "thorium" in facts.engines and in_group(facts):
        yield Hit("engines", "thorium")
