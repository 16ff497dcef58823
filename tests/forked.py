"""
Engine processes in milliseconds: forked from one that has imported Salt and the product.

Starting an interpreter and importing them takes more than a second of a processor, and the tests
that kill engines start hundreds. The forked process has served nothing yet: engines share nothing
but modules.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from typing import Any

from lab import hosts
from lab.engines import START, EngineProcess, Place
from lab.master import listens
from lab.wait import wait_for
from saltext_ha.common.fail_points import VARIABLE

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preloaded"])


class ForkedEngine(EngineProcess):
    """
    As :class:`EngineProcess`; a test sets its clock (``tests/shifted.py``) and its faults.

    :param host: where it runs, see :meth:`.Switch.host`; empty: where this process runs.
    """

    def __init__(
        self, place: Place, environment: Mapping[str, str] | None = None, host: str = ""
    ) -> None:
        super().__init__(place, environment)
        self._host = host
        self._child: BaseProcess | None = None

    @property
    def pid(self) -> int:
        pid = self._running().pid
        assert pid is not None
        return pid

    def launch(self) -> None:
        """Start and return at once; :meth:`wait_ready` waits."""
        with contextlib.suppress(FileNotFoundError):
            self.place.config.control_socket.unlink()  # a killed engine leaves it behind
        # It ends with this process at the latest.
        self._child = FORKS.Process(
            target=serve, args=(self.place.data(), self.environment, self._host), daemon=True
        )
        self._child.start()

    def wait_ready(self, timeout: float = START) -> None:
        """
        Return when it listens.

        :raises RuntimeError: it ended instead; stderr has the reason.
        """
        child, control = self._running(), self.place.config.control_socket
        what = f"{self.place.name} listens"
        wait_for(lambda: child.exitcode is not None or listens(control), timeout, what)
        if child.exitcode is not None:
            raise RuntimeError(f"{self.place.name} ended with {child.exitcode} while starting")

    def leader(self) -> str | None:
        """The name of the master that leads, as far as this one knows."""
        found: str | None = self.control("leader")["leader"]
        return found

    def wait_ended(self, timeout: float = START) -> int:
        """
        Wait until it has ended by itself; returns its exit status, or the negated signal number.

        :raises TimeoutError: it still runs.
        """
        child = self._running()
        child.join(timeout)
        if child.exitcode is None:
            raise TimeoutError(f"{self.place.name} still runs after {timeout:g} s")
        self._child = None
        return child.exitcode

    def __enter__(self) -> ForkedEngine:
        if self._child is None:
            self.start()
        return self

    def _running(self) -> BaseProcess:
        if self._child is None:
            raise RuntimeError(f"{self.place.name} is not running")
        return self._child

    def _end(self, number: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None or child.exitcode is not None:
            return
        assert child.pid is not None
        os.kill(child.pid, number)
        child.join(60)
        if child.exitcode is None:
            child.kill()
            child.join()


def serve(place: Mapping[str, Any], environment: Mapping[str, str], host: str) -> None:
    """Be the engine of *place*, in a process that was forked."""
    os.environ.update(environment)
    if host:
        hosts.enter(host)
    from tests import preloaded

    # The import, which was earlier, has read the variable of another process.
    preloaded.fail_points._orders = environment.get(VARIABLE)
    preloaded.engines.quiet()
    own = preloaded.engines.Place.of(place)
    preloaded.service.run(own.opts, own.config)
