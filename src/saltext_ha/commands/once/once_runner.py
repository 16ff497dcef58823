"""The runner's half of ``ha.once``: runs a function if the engine says that it is to run here."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from saltext_ha.commands.engine_client import Answer, Ask, patient
from saltext_ha.commands.runner_arguments import text
from saltext_ha.common.errors import (
    EngineBrokeOff,
    EngineUnavailable,
    HaError,
    NotPermitted,
    reason_of,
)
from saltext_ha.common.validators import is_number

log = logging.getLogger(__name__)

OPTIONS = ("name", "within", "wait")
"""Arguments of ``ha.once`` itself, not of the function."""
WITHIN = 60.0
WAIT = 15.0
LONGEST_WAIT = 300.0
POLL = 0.3
TELLING = 60.0  # seconds to try to tell the engine how a run ended: it may be restarting
FENCE = "SALT_HA_FENCE"
"""The environment variable that has the fencing number while a function or command runs."""
WHEEL, LOCAL = "wheel.", "local."
SCHEDULE = "__pub_schedule"
"""The argument in which Salt's schedule has its name (``salt/utils/schedule.py``, 3006 to 3008)."""
MISSING: Mapping[str, Any] = {"ret": "did not return in time", "retcode": 1}
"""In the place of the False that Salt 3006 and 3007 have for a minion without a return."""
LONGEST = 500  # characters of a reason in the log

_fences: list[int] = []
"""Of the runs in this process."""
_changing = threading.Lock()


def run(
    ask: Ask,
    functions: Functions,
    function: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    **options: Any,
) -> Answer:
    """
    What ``ha.once`` returns.

    :param options: some of :data:`OPTIONS`.
    :raises HaError: the engine cannot be asked, or there is no such function.
    """
    name, within = text(options.get("name")), text(options.get("within"))
    call = functions.call(str(function), args, kwargs)
    wait = _seconds(options.get("wait", WAIT))
    if within and not name:
        raise HaError("within: takes a name as well: name=nightly within=1h")
    payload = {
        "function": str(function),
        "name": name,
        "within": within or str(WITHIN),
        "pid": os.getpid(),
    }
    told = _told(patient(ask), payload, time.monotonic() + wait)
    answer: Answer = {
        "kind": "once",
        "function": str(function),
        "name": name or None,
        "leader": told["leader"],
        "fence": told["fence"],
        "skipped": told["do"] != "run",
        "waited": told["do"] == "wait",
        "why": told["why"],
        "return": None,
        # It runs on no master, as nobody leads or the last run hangs: a schedule or cron must not
        # take that for success.
        "retcode": int(told["do"] == "wait" and (not told["leader"] or bool(told.get("overdue")))),
    }
    if answer["skipped"]:
        return answer
    good = False
    try:
        answer |= functions.carry_out(call, told["fence"])
        good = not answer["retcode"]
    finally:
        if told["start"]:
            ended = {"name": name, "start": told["start"], "state": "done" if good else "failed"}
            answer["note"] = _tell_end(ask, ended)
    return answer


def usual_wait(arguments: Mapping[str, Any], opts: Mapping[str, Any]) -> float:
    """
    Seconds to wait if the caller does not say how many.

    salt-master looks at its schedule once in ``loop_interval`` seconds (60), also for jobs with
    ``cron`` (``Maintenance.run`` in ``salt/master.py``, 3006 to 3008): so far apart do masters with
    the same schedule begin.
    """
    apart = opts.get("loop_interval", 0.0) if SCHEDULE in arguments else 0.0
    return float(min(WAIT + apart, LONGEST_WAIT))


def _told(ask: Ask, payload: Answer, end: float) -> Answer:
    """
    What the engine says, when it no longer says ``wait``, or at last. It may be starting: a
    schedule with ``run_on_start`` is faster.

    :param end: until when to ask again (``time.monotonic``).
    :raises HaError: it refuses, may have begun the run, or is not there until *end*.
    """
    while True:
        last = time.monotonic() >= end
        try:
            told = ask("once", payload)
            if last or told["do"] != "wait":
                return told
        except (EngineBrokeOff, NotPermitted):
            raise
        except EngineUnavailable:
            if last:
                raise
        time.sleep(POLL)


def log_unseen(answer: Answer, arguments: Mapping[str, Any]) -> None:
    """
    Log what went wrong if a schedule of salt-master has called: it shows neither what comes back
    nor the exit code to anybody.
    """
    if not (schedule := arguments.get(SCHEDULE)):
        return
    why = answer.get("error") or answer.get("why") or f"exit code {answer['retcode']}"
    shown = ascii(schedule), ascii(str(why)[:LONGEST])
    if answer["retcode"]:
        log.error("ha once: schedule=%s has failed: %s", *shown)
    elif answer["waited"]:
        log.warning("ha once: schedule=%s was skipped here, and may run nowhere: %s", *shown)


def _tell_end(ask: Ask, ended: Answer) -> str:
    """Tell the engine how a run ended; returns why that failed, or empty."""
    give_up = time.monotonic() + TELLING
    while True:
        try:
            ask("once_end", ended)
            return ""
        except HaError as exc:
            if time.monotonic() > give_up:
                return f"how it ended could not be written down: {exc}"
        time.sleep(1.0)


class Functions:
    """
    What may be run once: functions of runners, of wheel, and of minions.

    :param context: ``__context__``, where a runner function leaves its exit code.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        runners: Mapping[str, Callable[..., Any]],
        context: MutableMapping[str, Any],
    ) -> None:
        self._opts, self._runners, self._context = opts, runners, context

    def call(
        self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], Any]:
        """
        What to call. Looked up on every master, so that a mistake shows on all of them.

        :raises HaError: there is no such function.
        """
        if function.startswith(WHEEL):
            return self._wheel(function.removeprefix(WHEEL), args, kwargs)
        if function.startswith(LOCAL):
            return self._local(function.removeprefix(LOCAL), args, kwargs)
        if function.startswith("ha.once"):
            raise HaError("ha.once cannot run ha.once")
        if function not in self._runners:
            raise HaError(
                f"there is no runner function {function!r}; functions of wheel begin with  wheel.  "
                "and those of minions with  local."
            )
        return self._runner(function, args, kwargs)

    def _runner(
        self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], Any]:
        def call() -> Any:
            returned = self._runners[function](*args, **kwargs)
            self._context["retcode"] = self._context.get("retcode") or _told_code(returned)
            return returned

        return call

    def _wheel(
        self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], Any]:
        import salt.loader

        functions = salt.loader.wheels(dict(self._opts))
        if function not in functions:
            raise HaError(f"there is no wheel function {function!r}")
        return lambda: functions[function](*args, **kwargs)

    def _local(
        self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[], Any]:
        if not args or "." not in function:
            raise HaError(
                f"local.{function}: takes a function and a target: local.test.ping 'web*'"
            )
        given = dict(kwargs)
        options = {key: given.pop(key) for key in ("tgt_type", "timeout") if key in given}

        def call() -> Any:
            import salt.client

            target, *rest = args
            with salt.client.LocalClient(mopts=dict(self._opts)) as client:
                told = client.cmd(target, function, rest, kwarg=given, full_return=True, **options)
            if not told:
                raise HaError("no minion with an accepted key matches")
            returned = {minion: each or MISSING for minion, each in told.items()}
            self._context["retcode"] = int(any(each.get("retcode") for each in returned.values()))
            return {minion: each.get("ret") for minion, each in returned.items()}

        return call

    def carry_out(self, call: Callable[[], Any], fence: int | None) -> Answer:
        """The result of *call*: ``return`` or ``error``, and ``retcode``."""
        self._context.pop("retcode", None)
        try:
            with _fenced(fence):
                returned = call()
        except Exception as exc:  # a function may raise anything
            return {"error": reason_of(exc), "retcode": 1}
        code = self._context.get("retcode")
        return {
            "return": returned,
            "retcode": int(code) if isinstance(code, int) else int(bool(code)),
        }


@contextmanager
def _fenced(fence: int | None) -> Iterator[None]:
    """
    Show the fencing number in the environment. The threads of Salt's reactor share that: of several
    runs the smallest number is shown, so that none has a larger one than its own.
    """
    if fence is None:
        yield
        return
    _show(fence, _fences.append)
    try:
        yield
    finally:
        _show(fence, _fences.remove)


def _show(fence: int, change: Callable[[int], None]) -> None:
    with _changing:
        change(fence)
        if _fences:
            os.environ[FENCE] = str(min(_fences))
        else:
            os.environ.pop(FENCE, None)


def _told_code(returned: Any) -> Any:
    """
    The exit code in what a runner function returned, where ``salt-run`` looks for it (Salt 3006 to
    3008, ``salt/cli/run.py``); ``state.orchestrate`` tells it there only.
    """
    for place in (returned, returned.get("data")) if isinstance(returned, Mapping) else ():
        if isinstance(place, Mapping) and "retcode" in place:
            return place["retcode"]
    return 0


def _seconds(value: Any) -> float:
    if not is_number(value) or not 0 <= value <= LONGEST_WAIT:
        raise HaError(f"wait: takes seconds, at most {LONGEST_WAIT:g}")
    return float(value)
