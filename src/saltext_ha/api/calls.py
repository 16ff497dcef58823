"""The shapes of what goes to masters and comes back, and the errors when nobody took a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from saltext_ha.api.errors import CallFailed, NoMasterAvailable, NotAuthorised
from saltext_ha.api.master import MasterApi

# Salt's outputter for a minion that did not return.
NONE = "no_return"


def publication(
    client: str,
    tgt: str | Sequence[str],
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    tgt_type: str,
    timeout: int | None,
) -> dict[str, Any]:
    """The low data of a job; its jid is yet to come."""
    if tgt_type == "glob" and not isinstance(tgt, str):
        tgt_type = "list"  # as a glob, a list matches nobody
    low: dict[str, Any] = {"client": client, "tgt": tgt, "fun": fun, "tgt_type": tgt_type}
    if client == "local":
        low["full_return"] = True  # tells a return from what Salt puts in its place
    low["tgt"] = tgt if isinstance(tgt, str) else list(tgt)
    low["arg"], low["kwarg"] = list(arg), dict(kwarg or {})
    if timeout is not None:
        low["timeout"] = timeout
    return low


def returns(answer: Mapping[str, Any]) -> dict[str, Any]:
    """
    Minion → return, of the full answer of ``local``. A minion that Salt gave up has ``False``: some
    releases say so, others put a sentence in the place of the return.
    """
    return {
        minion: found.get("ret") if isinstance(found, dict) and found.get("out") != NONE else False
        for minion, found in answer.items()
    }


def summary(masters: Iterable[MasterApi]) -> dict[str, Any]:
    """What is believed of *masters*, in the form of ``SaltApiPool.status``."""
    listed = []
    for master in masters:
        health, endpoint = master.health, master.endpoint
        known = health.usable if health.known else None
        about = {"url": endpoint.url, "name": master.name, "healthy": known}
        listed.append({**about, "reason": health.reason})
    healthy = sum(about["healthy"] is True for about in listed)
    word = "online" if healthy == len(listed) else "degraded" if healthy else "offline"
    counts = {"master_count": len(listed), "healthy_count": healthy}
    return {"status": word, **counts, "masters": listed}


def none_left(reasons: Mapping[str, str], refused: Mapping[str, str]) -> NoReturn:
    """Raise what fits: master → why it could not be asked, master → what it refused."""
    # Outside of the handlers, whose exceptions would be chained otherwise.
    if refused and not reasons:
        raise NotAuthorised(refused)
    raise NoMasterAvailable({**reasons, **refused})


def odd(master: MasterApi, answer: Any) -> NoReturn:
    """Raise: Salt answered something that it is not known to answer."""
    raise CallFailed(master.name, f"an answer of another form: {type(answer).__name__}", answer)
