"""The low data of calls, and the errors when nobody took one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def none_left(reasons: Mapping[str, str], refused: Mapping[str, str]) -> NoReturn:
    """Raise what fits: master → why it could not be asked, master → what it refused."""
    # Outside of the handlers, whose exceptions would be chained otherwise.
    if refused and not reasons:
        raise NotAuthorised(refused)
    raise NoMasterAvailable({**reasons, **refused})


def odd(master: MasterApi, answer: Any) -> NoReturn:
    """Raise: Salt answered something that it is not known to answer."""
    raise CallFailed(master.name, f"an answer of another form: {type(answer).__name__}", answer)
