"""The forms of calls and their results, and the errors when no master took a call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from saltext_ha.api.connection import encoded
from saltext_ha.api.errors import (
    ApiPoolError,
    BadConfiguration,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    PartlyRun,
    TimedOut,
)
from saltext_ha.api.jobs import Job
from saltext_ha.api.master import MasterApi

T = TypeVar("T")

# Clients of salt-api that run one function on the master.
FUNCTIONS = ("runner", "wheel")
# Salt's outputter for a minion that did not return.
NONE = "no_return"


@dataclass(frozen=True)
class Came:
    """The result of a part of a call: returns by minion, and the minions that Salt gave up."""

    master: str
    jid: str
    returned: Mapping[str, Any]
    given_up: Sequence[str] = ()


def publication(
    client: str,
    tgt: str | Sequence[str],
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    tgt_type: str,
    timeout: int | None,
) -> dict[str, Any]:
    """The low data of a job, without its jid. :raises BadConfiguration: an argument is wrong."""
    if not isinstance(tgt_type, str):
        raise _wrong("tgt_type", tgt_type, "text")
    if isinstance(tgt, bytes) or not isinstance(tgt, Iterable):
        raise _wrong("tgt", tgt, "text or a list of minions")
    if tgt_type == "glob" and not isinstance(tgt, str):
        tgt_type = "list"  # as a glob, a list matches no minion
    low = function(client, fun, arg, kwarg)
    low |= {"tgt": tgt if isinstance(tgt, str) else list(tgt), "tgt_type": tgt_type}
    encoded(low["tgt"], "tgt")
    if client == "local":
        low["full_return"] = True  # tells a return from what Salt puts in its place
    if timeout is not None:
        low["timeout"] = timeout
        encoded(timeout, "timeout")
    return low


def function(
    client: str, fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The low data of a function. :raises BadConfiguration: an argument cannot be sent."""
    # A job may have several functions.
    if not isinstance(fun, str) and (client in FUNCTIONS or not isinstance(fun, (list, tuple))):
        raise _wrong("fun", fun, "the name of a function")
    # A text would become its letters; an empty one stands for no arguments.
    if (isinstance(arg, (str, bytes, Mapping)) and arg) or not isinstance(arg, Iterable):
        raise _wrong("arg", arg, "a list of arguments")
    named: dict[str, Any] | None = None
    with contextlib.suppress(TypeError, ValueError):
        named = dict(kwarg or {})
    if named is None:
        raise _wrong("kwarg", kwarg, "a mapping")
    low = {"client": client, "fun": fun, "arg": list(arg), "kwarg": named}
    for name in ("fun", "arg", "kwarg"):
        encoded(low[name], name)
    return low


def _wrong(name: str, value: Any, takes: str) -> BadConfiguration:
    return BadConfiguration(f"{name}: is {type(value).__name__}; takes {takes}")


def returns(answer: Mapping[str, Any]) -> dict[str, Any]:
    """
    Minion → return, of the full answer of ``local``. A minion that Salt gave up has ``False``: some
    releases say so, others put a sentence in the place of the return.
    """
    return {
        minion: found.get("ret") if isinstance(found, dict) and not _is_none(found) else False
        for minion, found in answer.items()
    }


def given_up(answer: Mapping[str, Any]) -> list[str]:
    """The minions that Salt gave up, of the full answer of ``local``."""
    return [m for m, found in answer.items() if not isinstance(found, dict) or _is_none(found)]


def begun(jid: str, master: str, answer: Mapping[str, Any]) -> Job:
    """The job *jid* of *master*, by its answer to ``local_async``: no jid, nothing run."""
    minions = tuple(sorted(answer.get("minions") or ()))
    return Job(jid, master, minions, counted=bool(minions) or "jid" not in answer)


def _is_none(found: Mapping[str, Any]) -> bool:
    return found.get("out") == NONE


def summary(masters: Iterable[MasterApi]) -> dict[str, Any]:
    """The presumed health of *masters*, in the form of ``SaltApiPool.status``."""
    listed = []
    for master in masters:
        health, endpoint = master.health, master.endpoint
        known = health.usable if health.known else None
        about = {"url": endpoint.url, "name": master.name, "healthy": known}
        listed.append({**about, "reason": health.reason})
    healthy = sum(about["healthy"] is True for about in listed)
    if healthy:
        word = "online" if healthy == len(listed) else "degraded"
    else:
        word = "unknown" if any(about["healthy"] is None for about in listed) else "offline"
    counts = {"master_count": len(listed), "healthy_count": healthy}
    return {"status": word, **counts, "masters": listed}


def none_left(reasons: Mapping[str, str], refused: Mapping[str, str]) -> NoReturn:
    """Raise the error for: master → why it could not be asked, master → what it refused."""
    # Outside of the handlers, whose exceptions would be chained otherwise.
    if refused and not reasons:
        raise NotAuthorised(refused)
    raise NoMasterAvailable({**reasons, **refused})


def at_once(work: Sequence[tuple[str, Callable[[], T]]]) -> tuple[list[T], dict[str, ApiPoolError]]:
    """Do all *work* (master, what to do) at once; the results, and the errors by master."""
    found, errors = list[T](), dict[str, ApiPoolError]()
    for name, future in [(name, beside(part)) for name, part in work]:
        try:
            found.append(future.result())
        except ApiPoolError as exc:
            errors[name] = exc
    return found, errors


def beside(part: Callable[[], T]) -> Future[T]:
    """
    Do *part* in a thread for which an interrupted program does not wait: before Python ends, it
    joins the threads of a ``ThreadPoolExecutor``, but no daemons.
    """
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(part())
        except BaseException as exc:  # result() raises it
            future.set_exception(exc)

    threading.Thread(target=run, name="salt-api-part", daemon=True).start()
    return future


def fail(
    errors: Mapping[str, ApiPoolError], jobs: Mapping[str, str], returned: Mapping[str, Any]
) -> NoReturn:
    """
    Raise the error for a call whose parts partly failed.

    :param errors: master → the error of the part for its minions.
    :param jobs: master → jid of the parts that did not fail.
    :param returned: minion → return, of those parts.
    """
    late = [each for each in errors.values() if isinstance(each, TimedOut)]
    lost = [each for each in errors.values() if isinstance(each, OutcomeUnknown)]
    came, missing = dict(returned), list[str]()
    cut: list[TimedOut | OutcomeUnknown] = [*late, *lost]
    for each in cut:
        came |= each.returned
        missing += each.missing
    text = "; ".join(map(str, late))
    running = {master: jid for each in late for master, jid in each.jids.items()}
    if lost:
        # Where the minions of one part cannot be named, those of another are not all.
        named = missing if all(each.missing for each in lost) else ()
        first, others = lost[0], [str(each) for each in lost[1:]]
        known = "; ".join(filter(None, (first.known, *others, text)))
        sent = {master: jid for each in lost for master, jid in each.jids.items()}
        raise OutcomeUnknown(
            first.master, known, first.jid, came, named, {**jobs, **running, **sent}
        )
    if len(late) == len(errors):
        raise TimedOut(text, late[0].master, late[0].jid, came, missing, running)
    if not jobs and not late:
        raise next(iter(errors.values()))
    raise PartlyRun(came, {**jobs, **running}, errors)
