"""``ha.leader``: which master leads, according to each master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.once.leader import Leader
from saltext_ha.once.reactions import COUNTED, Reactions
from saltext_ha.once.runs import Runs
from saltext_ha.replication.runs import FAILED, UNFINISHED
from saltext_ha.sync.group import Group
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class LeaderCommand:
    def __init__(
        self, group: Group, leader: Leader, runs: Runs, reactions: Reactions | None
    ) -> None:
        self._group, self._leader, self._runs = group, leader, runs
        self._reactions = reactions

    def for_peers(self) -> dict[str, Handler]:
        async def leading(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return self._told()

        return {"leading": leading}

    def _told(self) -> dict[str, Any]:
        reactor = self._reactions.told() if self._reactions else None
        return {**self._leader.standing.told(), "reactor": reactor}

    async def leader(self, payload: dict[str, Any]) -> dict[str, Any]:
        answers, errors = await self._group.ask("leading")
        own = self._leader.standing
        apart = own.apart
        rows = [_row(self._group.name, self._told())]
        for name in self._group.others:
            if name in answers:
                rows.append(_row(name, answers[name]))
            else:
                why = apart[name].why if name in apart else errors.get(name, "not asked yet")
                rows.append(_row(name, {"why": why}) | {"leads": None, "store": ""})
        unknown = {n: why for n, why in errors.items() if not (n in apart and apart[n].out)}
        leading = [row["name"] for row in rows if row["leads"]]
        followed = {row["follows"] for row in rows if row["name"] not in errors and row["store"]}
        # One that takes no part goes by what the others say.
        leader = own.leader or ("" if own.store else min(leading, default=""))
        table = self._runs.table()
        wrong = (
            not leader
            or len(leading) > 1
            or len(followed) > 1
            or any(row["state"] in (FAILED, UNFINISHED) for row in table)
        )
        return {
            "kind": "leader",
            **own.told(),
            "leader": leader or None,
            "why": "" if leader else own.why,
            "masters": rows,
            "leading": leading,
            "runs": table,
            "unknown": unknown,
            "retcode": 2 if unknown else int(wrong),
        }


def _row(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    leader = told.get("leader")
    return {
        "name": name,
        "leads": told.get("leads") is True,
        "follows": leader if isinstance(leader, str) else None,
        "store": str(told.get("store") or ""),
        "note": str(told.get("why") or ""),
        "reactor": _reactor(told.get("reactor")),
    }


def _reactor(told: Any) -> dict[str, Any] | None:
    """As :meth:`.Reactions.told`; None where each master's reactor reacts."""
    if not isinstance(told, Mapping):
        return None
    counts = ("waiting", *COUNTED)
    return {
        "reacts": told.get("reacts") if isinstance(told.get("reacts"), bool) else None,
        "configured": told.get("configured") is True,
        **{name: n if type(n := told.get(name)) is int else None for name in counts},
    }
