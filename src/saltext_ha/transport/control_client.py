"""The runner's way to the engine of the same master: JSON over HTTP on a unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import (
    EngineBrokeOff,
    EngineBusy,
    EngineUnavailable,
    HaError,
    NotPermitted,
)
from saltext_ha.common.files import open_itself

# Most answers come within so many seconds; then the engine is asked whether it responds at all.
FIRST = 2.0
# While the engine works on a command, it is asked again at this interval.
AGAIN = 10.0
# Seconds that an engine may take to accept a caller, or to answer a small question.
ANSWER_WITHIN = 5.0
BUSY = 503  # the status of an answer

NEAR = 20  # characters on each side that show where something is in a request
MAX_REASON = 10_000
NOT_STARTED = (
    "is salt-master started (its engine takes some seconds), and does its configuration have  "
    "engines: [ha: {}]  ?  Its log says why when it refused to start"
)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.why")


def tell_why(path: Path, reason: str) -> None:
    """
    Write down the *reason* why the engine of this process does not listen on *path*. It counts as
    long as this process lives; an empty reason removes it. Errors are ignored: the log has it, too.
    """
    told = {"pid": os.getpid(), "at": time.time(), "reason": reason}
    with contextlib.suppress(OSError):
        _beside(path).unlink(missing_ok=True)
        if reason:
            fd = os.open(_beside(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(told, file)


def _why_not(path: Path) -> str:
    """Why no engine listens on *path*, written by one that could not start; empty if none did."""
    try:
        with open_itself(_beside(path)) as file:
            told = json.loads(file.read(MAX_REASON))
        pid, at, reason = int(told["pid"]), float(told["at"]), str(told["reason"])
        if not _lives(pid):
            return ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        return f"it could not start at {when}: {reason}"
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True


class _Silent(Exception):
    """The engine does not respond at all."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With Python's own timeout, connecting fails at once if other callers wait.
        seconds, rest = divmod(min(self.timeout or 0.0, ANSWER_WITHIN), 1)
        patience = struct.pack("ll", int(seconds), int(rest * 1e6))
        with contextlib.suppress(OSError):  # this system has another struct timeval
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self.sock.connect(str(self._path))
        self.sock.settimeout(min(self.timeout or 0.0, ANSWER_WITHIN))


def request(
    path: Path,
    command: str,
    payload: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """
    Have the engine that listens on *path* carry out *command*.

    :param timeout: seconds to wait for the answer; for an unresponsive engine, for instance a
        stopped process, only about :data:`FIRST` plus :data:`ANSWER_WITHIN`.
    :param meanwhile: called every :data:`AGAIN` seconds while the engine works on it.
    :return: the engine's answer, plain data.
    :raises EngineUnavailable: no engine answers there. It is :exc:`EngineBrokeOff` if one may have
        got the command, :exc:`NotPermitted` if this user may not ask it.
    :raises HaError: the engine refused or failed; the message is its reason. It is
        :exc:`EngineBusy` if it carries out too many commands. Or *payload* has a text that is not
        in UTF-8.
    """
    body = _body(payload or {})
    connection = _UnixConnection(path, timeout)
    try:
        _send(connection, command, body)
        _wait(connection, path, timeout, meanwhile)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (FileNotFoundError, ConnectionRefusedError):
        raise EngineUnavailable(
            f"the ha engine of this master is not running: {_why_not(path) or NOT_STARTED}"
        ) from None
    except PermissionError:
        raise NotPermitted(f"{path}: not permitted; run as the user of salt-master") from None
    except _Silent:
        raise EngineBrokeOff(
            "the ha engine of this master does not respond: nothing came within "
            f"{ANSWER_WITHIN:.0f} s; is its process stopped (state T in ps), or this machine "
            "overloaded? See salt-master's log"
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as exc:
        raise EngineBrokeOff(
            f"the ha engine of this master does not answer ({exc or type(exc).__name__}); "
            "see salt-master's log"
        ) from None
    finally:
        connection.close()
    if response.status != 200:
        kind = EngineBusy if response.status == BUSY else HaError
        raise kind(str(answer.get("error", f"the engine answered HTTP {response.status}")))
    return dict(answer)


def _body(payload: Mapping[str, Any]) -> bytes:
    """:raises HaError: a text is not in UTF-8, as it was typed in a terminal that uses Latin-1."""
    text = json.dumps(payload, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        near = text[max(0, exc.start - NEAR) : exc.end + NEAR]
        raise HaError(
            f"an argument is not in UTF-8, near {near!r}; does the terminal use it?"
        ) from None


def _send(connection: _UnixConnection, command: str, body: bytes) -> None:
    """
    :raises _Silent: the engine does not accept the connection, or does not read.
    """
    try:
        connection.request("POST", f"/{command}", body)
    except (TimeoutError, BlockingIOError):
        raise _Silent from None


def _wait(
    connection: _UnixConnection, path: Path, timeout: float, meanwhile: Callable[[], None]
) -> None:
    """
    Wait until the answer begins to come.

    :raises _Silent: the engine answers no other question, either.
    :raises TimeoutError: it does not come in time.
    """
    poll, end, pause = select.poll(), time.monotonic() + timeout, FIRST
    poll.register(connection.sock, select.POLLIN)
    while True:
        left = end - time.monotonic()
        if poll.poll(1000 * max(0.0, min(pause, left))):
            break
        if left <= pause:
            raise TimeoutError("timed out")
        if not _responds(path):
            raise _Silent
        if pause == AGAIN:
            meanwhile()
        pause = AGAIN
    connection.sock.settimeout(timeout)


def _responds(path: Path) -> bool:
    """Whether the engine answers at all; an error is an answer, too."""
    connection = _UnixConnection(path, ANSWER_WITHIN)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (TimeoutError, BlockingIOError):
        return False
    except (OSError, http.client.HTTPException):
        return True  # it closed the connection
    finally:
        connection.close()
    return True
