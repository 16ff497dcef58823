"""The program's half of ``salt-ha lock``: runs a command while this master holds a lock."""

from __future__ import annotations

import os
import signal
import subprocess  # nosec B404
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from saltext_ha.cli.descendants import Descendants, adopt
from saltext_ha.commands.once.once_runner import FENCE
from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import HaError, NotPermitted, reason_of
from saltext_ha.config.leader import GROUP

NOT_GIVEN = 75
"""Exit code: until the end of ``--wait``, another had the lock or no master could give it."""
LOST = 76
"""Exit code: the lease was lost, and this program ended the command."""
NOT_FOUND, NOT_RUN = 127, 126  # as shells have them
AGAIN = 1.0  # seconds between two questions while it waits
TURN = 0.1  # seconds between two looks at the lease while the command runs
PROLONGED = 0.85  # of a lease: when no more is left, it is prolonged
EARLIER = 0.25
"""The last part of a lease, in which a command that loses its lock must end; then it is killed."""
BEFORE = 0.5  # seconds before the end of a lease, in which what has not ended is killed
OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to the command, too
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, *OF_TERMINALS)
BEST_EFFORT = "store: group: best effort; in a partition each half of the group has one"

Ask = Callable[[str, Mapping[str, Any], float], dict[str, Any]]
"""Asks the engine: command, payload, seconds."""


class Lost(Exception):
    """The lease was lost; why."""


class Lock:
    """
    One lock.

    :param by: what its holder calls itself.
    """

    def __init__(self, ask: Ask, name: str, by: str, say: Callable[[str], None]) -> None:
        self._ask, self._name, self._by, self._say = ask, name, by, say
        self._token = ""  # nosec B105
        self._seconds = 0.0
        self._until = float("-inf")
        self.fence: int | None = None

    def take(self, wait: float | None) -> bool:
        """
        Take it; returns whether that succeeded.

        :param wait: seconds; None: for as long as it takes.
        :raises NotPermitted: this user may not ask the engine.
        :raises HaError: at the end of *wait* the engine does not answer, or refuses.
        """
        end = float("inf") if wait is None else boot_clock() + wait
        said = ""
        while True:
            try:
                why = self._hold(5.0)
            except NotPermitted:
                raise  # no time changes that
            except HaError as exc:
                if boot_clock() >= end:
                    raise
                why = str(exc)
            if not why:
                return True
            holder = why.partition(", for ")[0]
            if holder != said or boot_clock() >= end:
                self._say(f"lock {self._name}: {why}")
                said = holder
            if boot_clock() >= end:
                return False
            time.sleep(min(AGAIN, max(0.0, end - boot_clock())))

    def keep(self) -> None:
        """
        Prolong its lease, when it is time.

        :raises Lost: that failed, and too little of the lease is left.
        """
        left = self._until - boot_clock()
        if left > PROLONGED * self._seconds:
            return
        why = "its lease could not be prolonged"
        if left > EARLIER * self._seconds:
            try:
                # Short enough that a command can still be ended in time.
                why = self._hold(min(AGAIN, left - EARLIER * self._seconds))
            except HaError as exc:
                if self._until - boot_clock() > EARLIER * self._seconds:
                    return
                why = f"{why}: {exc}"
        if why:
            raise Lost(why)

    @property
    def left(self) -> float:
        """Seconds until its lease ends."""
        return self._until - boot_clock()

    def give_back(self) -> None:
        """Let others have it at once; if that fails, its lease ends by itself."""
        with suppress(HaError):
            self._ask("unlock", self._payload(), 5.0)

    def _hold(self, timeout: float) -> str:
        """Ask for the lock; returns why this program does not have it, empty if it has."""
        asked = boot_clock()
        answer = self._ask("lock", self._payload(), timeout)
        if not answer.get("held"):
            return str(answer.get("why") or "it is not given")
        if not self._token and answer.get("store") == GROUP:
            self._say(f"lock {self._name}: {BEST_EFFORT}")
        self._token, self.fence = str(answer["token"]), answer.get("fence")
        self._seconds = float(answer["seconds"])
        self._until = asked + self._seconds
        return ""

    def _payload(self) -> dict[str, Any]:
        return {"name": self._name, "by": self._by, "token": self._token}


def run(lock: Lock, name: str, command: Sequence[str], wait: float | None, say: Any) -> int:
    """
    Run *command* while *lock* is held. Returns its exit code, 128 plus the signal that ended it, or
    a code of this module.

    :raises HaError: as :meth:`Lock.take`.
    """
    if not lock.take(wait):
        return NOT_GIVEN
    fence = {} if lock.fence is None else {FENCE: str(lock.fence)}
    others = adopt()
    with _passed_on() as passed_on_to:
        try:
            process = subprocess.Popen(  # nosec B603
                list(command), env={**os.environ, **fence, "SALT_HA_LOCK": name}
            )
        except OSError as exc:
            lock.give_back()
            say(f"{command[0]}: {exc.strerror or exc}")
            return NOT_FOUND if isinstance(exc, FileNotFoundError) else NOT_RUN
        started = Descendants(process, others)
        try:
            passed_on_to(process)
            while process.poll() is None:
                lock.keep()
                started.reap()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(TURN)
        except BaseException as exc:  # whatever it is, the command must not go on without the lock
            say(f"lock {name}: lost: {reason_of(exc)}; {command[0]} is ended")
            if alive := started.end(lambda: lock.left - BEFORE):
                say(f"lock {name}: lost, and these processes cannot be killed: {alive}")
            if not isinstance(exc, Lost):
                raise
            return LOST
    lock.give_back()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


@contextmanager
def _passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """
    Keep signals from ending this program, and pass them on to the command; what is yielded takes
    that. It gets those, too, that came while it was started.
    """
    commands: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def handle(number: int, frame: object) -> None:
        if not commands:
            early.append(number)
        elif number not in OF_TERMINALS:
            commands[0].send_signal(number)

    def begun(command: subprocess.Popen[bytes]) -> None:
        commands.append(command)
        for number in early:
            command.send_signal(number)
        for number in ignored:
            signal.signal(number, handle)

    before = {number: signal.getsignal(number) for number in PASSED_ON}
    # The command is to ignore these as well (nohup), so they wait until it is there.
    ignored = [number for number in PASSED_ON if before[number] == signal.SIG_IGN]
    for number in before.keys() - ignored:
        signal.signal(number, handle)
    try:
        yield begun
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
