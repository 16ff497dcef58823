"""How a runner asks the engine of this master, and gives the answer to Salt."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import salt.utils.user

from saltext_ha.common.errors import EngineBusy, EngineUnavailable, HaError, reason_of
from saltext_ha.config.mapping import HaConfig
from saltext_ha.health.fitness import counted
from saltext_ha.replica import state_owner
from saltext_ha.transport import control_client

Answer = dict[str, Any]
Ask = Callable[[str, Answer], Answer]
"""Has the engine carry out a command: name, payload."""

SOON = 60.0  # seconds for what the engine answers without asking peers or minions
MAX_WORK = 7200.0  # more than any command takes
UNKNOWN = 2  # exit code
BUSY = 0.5
"""Seconds until an engine that carries out too many commands is asked again."""
PATIENCE = 60.0
"""Seconds for which it is asked again."""


def engine(
    settings: HaConfig, command: str, payload: Answer, work: Any = 0, more: float = 0.0
) -> Answer:
    """
    The engine's answer. While it writes many keys, how many are left is told on standard error.

    :param work: seconds for its work, as the user gave them: the engine checks the value.
    :param more: seconds that it may take in addition.
    :raises HaError: the engine does not run, refused or failed; says why.
    """

    def progress() -> None:
        with contextlib.suppress(HaError):
            left = control_client.request(settings.control_socket, "left")["keys"]
            if left:
                say(f"still to be written here: {counted(left)} …")

    sensible = isinstance(work, (int, float)) and 0 < work <= MAX_WORK
    wait = SOON + 4 * settings.peer_timeout + more + (3 * work if sensible else 0)
    try:
        return control_client.request(settings.control_socket, command, payload, wait, progress)
    except EngineUnavailable as exc:
        kind = type(exc)
        why = state_owner.conflict(settings) or state_owner.restart_due(settings)
        if kind is EngineUnavailable:  # the other kinds say that it runs
            why = why or not_configured(settings)
        if why:
            raise kind(f"the ha engine of this master is not running: {why}") from None
        raise


def asking(settings: HaConfig, by: str, work: Any = 0, more: float = 0.0) -> Ask:
    """Asks the engine to carry out commands of the user *by*; see :func:`engine`."""
    return lambda command, payload: engine(settings, command, {**payload, "by": by}, work, more)


def patient(ask: Ask) -> Ask:
    """Asks an engine again that carries out too many commands: it has not begun what it refused."""

    def asked(command: str, payload: Answer) -> Answer:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return ask(command, payload)
            except EngineBusy:
                if time.monotonic() >= end:
                    raise
            time.sleep(BUSY)

    return asked


def not_configured(settings: HaConfig) -> str:
    """That the configuration does not start the engine; empty if it does."""
    if settings.has_engine:
        return ""
    return (
        f"{settings.source} has no '- ha: {{}}' in engines: (one in master.d replaces that of the "
        "main file); add it there, and restart salt-master"
    )


def say(text: str) -> None:
    """Tell the user something while a function runs; if nobody can be told, it goes on."""
    if not sys.stderr:  # print would write into the answer
        return
    raw = getattr(getattr(sys.stderr, "buffer", None), "raw", None)
    with contextlib.suppress(OSError, ValueError):  # a full disk, a closed file
        if raw:  # in a buffer it would stay: tried again at the end, it makes the exit code 120
            raw.write(f"{text}\n".encode(sys.stderr.encoding, "backslashreplace"))
        else:
            print(text, file=sys.stderr, flush=True)


def caller(user: Any) -> str:
    """
    The user that calls.

    :param user: ``__user__``, if Salt runs a runner for a user (salt-api, eauth, the reactor).
    """
    if isinstance(user, str) and user and user != "UNKNOWN":
        return user
    return str(salt.utils.user.get_specific_user())


def shaped(work: Callable[[], Answer], context: MutableMapping[str, Any]) -> Answer:
    """
    The answer of *work*, with its outputter and exit code; an error as text, without a traceback.

    :param context: ``__context__``, where Salt looks for the exit code.
    """
    try:
        answer = work()
    except HaError as exc:
        answer = _error(str(exc))
    except OSError as exc:  # a disk that is full, or a folder of another user
        answer = _error(f"{exc.filename or 'this master could not do that'}: {reason_of(exc)}")
    except SystemExit as exc:  # Ctrl-C or SIGTERM: Salt's handler raises it, and shows a traceback
        if exc.code:
            raise
        answer = _error("interrupted")
    context["retcode"] = answer["retcode"]
    return {"outputter": "ha", **answer}


def _error(text: str) -> Answer:
    return {"kind": "error", "error": text, "retcode": UNKNOWN}
