"""One Salt minion of the lab."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from lab.cli import Result
from lab.fork_server import ForkServer
from lab.keys import write_whole
from lab.master import Master
from lab.node import LIMIT, START_TIMEOUT, Node
from lab.wait import wait_for


class Minion(Node):
    """A minion that knows one or more masters. See :class:`lab.Lab`."""

    program = "salt-minion"

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any],
        python: Path,
        masters: Sequence[Master],
        pair: tuple[str, str],
        server: ForkServer | None = None,
    ) -> None:
        super().__init__(name, opts, python, server)
        self.masters = list(masters)
        self.type = "failover" if opts["master_type"] == "failover" else "hot"
        write_whole(self.pki_dir / "minion.pem", pair[0], 0o400)
        write_whole(self.pki_dir / "minion.pub", pair[1])

    @property
    def pub(self) -> str:
        """The text of its public key."""
        return (self.pki_dir / "minion.pub").read_text(encoding="utf-8")

    def plant_key(self) -> None:
        """Accept it on all masters that it knows, by key files as somebody may copy them there."""
        for master in self.masters:
            master.plant("minions", self.name, self.pub)

    def start(self, wait_accepted: bool = False) -> Minion:
        """
        Start the minion.

        :param wait_accepted: wait until it listens to its masters; somebody must accept its key.
            False: return at once.
        """
        self.launch()
        if wait_accepted:
            self.wait_ready()
        return self

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """
        Wait until it can take jobs: from every running master if hot, from one if failover.

        :raises TimeoutError: has what the log says.
        """
        running = sum(master.running for master in self.masters)
        wanted = 1 if self.type == "failover" else max(1, running)
        try:
            wait_for(lambda: len(self.bound_to()) >= wanted, timeout, "", poll=0.1)
        except TimeoutError:
            raise TimeoutError(
                f"{self.name} is bound to {self.bound_to()} after {timeout:g} s, not to {wanted} "
                f"of {[master.name for master in self.masters]}\n{self.troubles()}"
            ) from None

    def bound_to(self) -> list[str]:
        """
        The names of the masters to whose publishers it is connected, according to the kernel; they
        send it jobs.
        """
        remote = set()
        for pid in self.pids():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                for connection in _connections(psutil.Process(pid)):
                    if connection.status == psutil.CONN_ESTABLISHED and connection.raddr:
                        remote.add(tuple(connection.raddr))
        return [
            master.name
            for master in self.masters
            if (master.address, master.publish_port) in remote
        ]

    def salt_call(self, function: str, *args: Any, timeout: float = LIMIT, **kwargs: Any) -> Result:
        """``salt-call function …``; ``data`` is what the function returned."""
        result = self.cli("salt-call", function, *args, timeout=timeout, **kwargs)
        data = result.data.get("local") if isinstance(result.data, dict) else result.data
        return Result(result.command, result.returncode, result.stdout, result.stderr, data)


def _connections(process: psutil.Process) -> Any:
    # psutil 6 renamed the method, and deprecates the old name.
    connections = getattr(process, "net_connections", None) or process.connections
    return connections(kind="tcp")
