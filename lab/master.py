"""One Salt master of the lab."""

from __future__ import annotations

import importlib
import importlib.util
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.cli import Result
from lab.fork_server import ForkServer
from lab.keys import KeyPairs, read_states, write_whole
from lab.network import Ports
from lab.node import LIMIT, START_TIMEOUT, Node
from lab.wait import wait_for


class Master(Node):
    """A master, with its own address and folders, and the lab's ports. See :class:`lab.Lab`."""

    program = "salt-master"

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any],
        python: Path,
        ports: Ports,
        pairs: KeyPairs,
        server: ForkServer | None = None,
    ) -> None:
        super().__init__(name, opts, python, server)
        self.address: str = opts["interface"]
        self.publish_port, self.ret_port = ports.publish, ports.ret
        self.peer_port, self.status_port, self.api_port = ports.peer, ports.status, ports.api
        self.control_socket = self.sock_dir / "ha_control.ipc"
        self.key_dir = Path(opts["cluster_pki_dir"] if opts.get("cluster_id") else opts["pki_dir"])
        self.engine = any("ha" in engine for engine in opts.get("engines") or [])
        self._pairs = pairs

    def start(self, wait_engine: bool | None = None) -> Master:
        """
        Start the master and wait until it serves minions and the command line, and until its ha
        engine, if it has one, listens.

        :param wait_engine: wait for the engine's control socket; by default if the engine is
            configured. False for a master whose engine is not expected to come up.
        :raises TimeoutError: says what did not come up, and what the logs say.
        """
        self.launch()
        self.wait_ready(wait_engine=wait_engine)
        return self

    def wait_ready(self, timeout: float = START_TIMEOUT, wait_engine: bool | None = None) -> None:
        """The waiting half of :meth:`start`."""
        wait_engine = self.engine if wait_engine is None else wait_engine

        closed = self._doors(wait_engine)

        def all_open() -> bool:
            # Whoever knocks is served: a door that has opened is left alone.
            while closed and listens(closed[0]):
                del closed[0]
            return not closed

        def missing() -> str:
            return f"does not listen on: {[_shown(door) for door in closed if not listens(door)]}"

        self._wait(all_open, timeout, missing)

    def _wait(self, condition: Any, timeout: float, state: Any) -> None:
        def done() -> bool:
            return not self.running or bool(condition())

        try:
            wait_for(done, timeout, "")
        except TimeoutError:
            raise TimeoutError(
                f"{self.name} is not ready after {timeout:g} s: {state()}\n{self.troubles()}"
            ) from None
        if not self.running:
            raise RuntimeError(f"{self.name} ended while starting\n{self.troubles()}")

    def _doors(self, wait_engine: bool) -> list[Path | tuple[str, int]]:
        """Where it listens when it is ready; what is opened last comes first."""
        ipc = ["master_event_pub.ipc", "master_event_pull.ipc"]
        if self.opts["transport"] == "tcp" and self.opts.get("worker_pools_enabled"):
            # If Salt 3008.3 is asked before its workers listen, it answers nobody any more
            # (PoolRouter in salt/channel/server.py).
            ipc.append("workers-default.ipc")
        if wait_engine:
            ipc.append(self.control_socket.name)
        tcp = [(self.address, port) for port in (self.publish_port, self.ret_port)]
        return [*tcp, *(self.sock_dir / name for name in ipc)]

    # -- talking to it

    def salt_run(self, function: str, *args: Any, timeout: float = LIMIT, **kwargs: Any) -> Result:
        """
        ``salt-run function …`` with its data.

        CLI example: ``m1.salt_run("ha.status", test=True).data``
        """
        return self.cli("salt-run", function, *args, timeout=timeout, **kwargs)

    def salt_run_text(self, function: str, *args: Any, **kwargs: Any) -> Result:
        """``salt-run function …`` as people see it: without ``--out``; ``data`` is None."""
        return self.cli("salt-run", function, *args, out=None, **kwargs)

    def salt_ha(self, function: str, *args: Any, timeout: float = LIMIT, **kwargs: Any) -> Result:
        """``salt-ha function …`` with its data; works also before the master's first start."""
        return self.cli("salt-ha", function, *args, timeout=timeout, **kwargs)

    def invite(self, **options: Any) -> str:
        """
        ``salt-ha invite``; return the token.

        :raises AssertionError: the command failed; has its output.
        """
        token: str = self.salt_ha("invite", **options).check().data["token"]
        return token

    def join(self, token: str, **options: Any) -> Result:
        """``salt-ha join``, with *token* on its standard input, where no other process sees it."""
        words = ("--token-file", "-")
        return self.salt_ha("join", *words, stdin=token, **options)

    def salt_key(self, *args: str, timeout: float = LIMIT) -> Result:
        """``salt-key …``, for example ``m1.salt_key("-a", "web1", "-y")``."""
        return self.cli("salt-key", *args, timeout=timeout)

    def salt(
        self, target: str, function: str, *args: Any, timeout: float = LIMIT, **kwargs: Any
    ) -> Result:
        """
        ``salt target function …``; no shell is in between, so write ``"*"`` without quotes.

        :return: ``data`` is one mapping: minion id → what the minion returned.
        """
        return self.cli("salt", "--static", target, function, *args, timeout=timeout, **kwargs)

    def control(self, path: str, payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """
        Ask the running engine through its control socket: this takes milliseconds, ``salt-run``
        more than a second.

        :raises saltext_ha.common.errors.EngineUnavailable: the engine does not answer.
        """
        request = importlib.import_module("saltext_ha.transport.control_client").request
        answer: dict[str, Any] = request(self.control_socket, path, dict(payload or {}))
        return answer

    # -- its keys

    def keys(self) -> dict[str, dict[str, str]]:
        """
        The minions' keys, read from the files.

        :return: ``{"minions": {id: text}, "minions_pre": …, "minions_rejected": …,
            "minions_denied": …}``
        """
        return read_states(self.key_dir)

    def plant(self, state: str, minion_id: str, public_pem: str) -> None:
        """Put a key file into a state folder, like Salt (but Salt is not told)."""
        write_whole(self.key_dir / state / minion_id, public_pem)

    def make_master_key(self) -> None:
        """Give this master its own key, unless it has one (its first start would do so, too)."""
        if not (self.pki_dir / "master.pem").exists():
            private, public = self._pairs.next()
            write_whole(self.pki_dir / "master.pem", private, 0o400)
            write_whole(self.pki_dir / "master.pub", public)

    def share_master_key(self, *others: Master) -> None:
        """Copy ``master.pem`` and ``master.pub`` to *others*, before their first start."""
        self.make_master_key()
        for other in others:
            for name, mode in (("master.pem", 0o400), ("master.pub", 0o644)):
                write_whole(other.pki_dir / name, (self.pki_dir / name).read_text(), mode)


def _shown(door: Path | tuple[str, int]) -> str:
    return door.name if isinstance(door, Path) else f"{door[0]}:{door[1]}"


def listens(where: Path | tuple[str, int]) -> bool:
    """Whether a process accepts connections at a unix socket, or at an address and a port."""
    family = socket.AF_UNIX
    if not isinstance(where, Path):
        family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(1)
        try:
            sock.connect(str(where) if isinstance(where, Path) else where)
        except OSError:
            return False
    return True
