"""
A lab of real Salt masters and minions on the loopback interface.

The demo, the tests and the benchmarks all run in one::

    from lab import Lab, wait_for

    with Lab() as lab:
        m1, m2 = lab.add_master("m1"), lab.add_master("m2")
        m1.share_master_key(m2)
        web1 = lab.add_minion("web1", masters=[m1, m2])
        lab.start_all([m1, m2])
        web1.start()
        wait_for(lambda: "web1" in m1.keys()["minions_pre"], 30, "web1 knocks at m1")
        m1.salt_key("-a", "web1", "-y").check()

Every master has its own loopback address, and all share their ports, as in production.
pytest-salt-factories writes the configuration files, with the lab's settings on top. The lab starts
the processes itself: tests want to kill, freeze and restart whole masters, and nothing (no log
handler, no engine, no automatic acceptance) may be added to what is tested. The end of the block
ends all processes and removes the lab's folder.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.cli import Result
from lab.fork_server import ForkServer, server_of
from lab.keys import KeyPairs
from lab.master import Master
from lab.minion import Minion
from lab.network import Network
from lab.node import interpreter
from lab.settings import master_settings, minion_settings
from lab.wait import wait_for

__all__ = ["Lab", "Master", "Minion", "Result", "wait_for"]

# The longest path of a unix socket is 107 bytes; Salt's own names below sock_dir take up to 45.
LONGEST_ROOT = 45


class Lab:
    """
    A set of masters and minions that live and end together.

    :param root: the folder for everything; kept at the end. By default it is a new temporary
        folder, which is removed. (If its path is too long, ``lab.root`` is a short symbolic link.)
    :param python: the interpreter whose Salt is run; by default the current one. Each master and
        minion may choose another.
    :param forked: fork daemons and programs from a process that has imported Salt
        (:mod:`lab.fork_server`), instead of starting an interpreter for each.
    """

    def __init__(
        self,
        root: Path | None = None,
        python: str | Path | None = None,
        forked: bool = False,
    ) -> None:
        self.python = interpreter(python)
        self._forked = forked
        self.temporary: list[Path] = []
        self.folder = self._short_folder() if root is None else Path(root).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.root = self.folder
        if len(str(self.folder)) > LONGEST_ROOT:
            # Unix sockets need a short path, and Salt keeps all its folders below one root.
            self.root = self._short_folder() / "lab"
            self.root.symlink_to(self.folder, target_is_directory=True)
        self._network = Network()
        self.ports = self._network.ports
        self.masters: dict[str, Master] = {}
        self.minions: dict[str, Minion] = {}
        self._pairs = KeyPairs()
        self._closed = False
        self.postmortem = ""
        _live.add(self)
        atexit.register(self.close)
        _end_in_order()

    # -- building

    def add_master(
        self,
        name: str,
        ha: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        engine: bool = True,
        python: str | Path | None = None,
        address: str | None = None,
    ) -> Master:
        """
        Configure another master; do not start it.

        :param ha: more keys for its ``ha:`` mapping.
        :param config: more keys for its configuration; they replace the lab's.
        :param engine: run the ha engine in it.
        :param python: the interpreter whose Salt this master runs.
        :param address: from :meth:`new_address`, if it must be known before.
        """
        from saltfactories.daemons.master import SaltMaster

        address = address or self.new_address()
        # One tree for all, as masters of a group should have it.
        trees = {
            "file_roots": {"base": [str(self.root / "srv" / "salt")]},
            "pillar_roots": {"base": [str(self.root / "srv" / "pillar")]},
        }
        config = {**trees, **(config or {})}
        settings = master_settings(name, address, self.ports, engine, ha or {}, config)
        opts = self._write(SaltMaster, name, settings)
        own = self._python(python)
        master = Master(name, opts, own, self.ports, self._pairs, self._server(own))
        self.masters[name] = master
        return master

    def add_minion(
        self,
        name: str,
        masters: Sequence[Master],
        type: str = "hot",
        config: Mapping[str, Any] | None = None,
        python: str | Path | None = None,
        forked: bool | None = None,
    ) -> Minion:
        """
        Configure another minion, with a key pair; do not start it.

        :param masters: in the order of its ``master:`` list.
        :param type: ``hot`` (bound to all) or ``failover`` (to one at a time).
        :param config: more keys for its configuration; they replace the lab's.
        :param python: the interpreter whose Salt this minion runs.
        :param forked: as for :class:`Lab`; by default as the lab's.
        """
        from saltfactories.daemons.minion import SaltMinion

        addresses = [master.address for master in masters]
        settings = minion_settings(addresses, self.ports, type, config or {})
        opts = self._write(SaltMinion, name, settings)
        own = self._python(python)
        server = server_of(own) if (self._forked if forked is None else forked) else None
        minion = Minion(name, opts, own, masters, self._pairs.next(), server)
        self.minions[name] = minion
        return minion

    def new_address(self) -> str:
        """A loopback address for one more master."""
        return self._network.address()

    @property
    def nodes(self) -> list[Master | Minion]:
        """All masters, then all minions."""
        return [*self.masters.values(), *self.minions.values()]

    def key_pair(self) -> tuple[str, str]:
        """``(private PEM, public PEM)``: RSA 2048, another pair on every call."""
        return self._pairs.next()

    def start_all(self, nodes: Iterable[Master | Minion] | None = None) -> None:
        """
        Start *nodes* (default: all): the masters at the same time and, when they are ready, the
        minions. Do not wait for the minions: nobody may have accepted them yet.
        """
        chosen = self.nodes if nodes is None else [*nodes]
        masters = [node for node in chosen if isinstance(node, Master)]
        for master in masters:
            master.launch()
        for master in masters:
            master.wait_ready()
        for node in chosen:
            node.launch()  # does nothing to the masters, which run already

    def form_group(self, masters: Sequence[Master] | None = None) -> None:
        """
        Join running masters (default: all) into one group, as an operator does: the first invites,
        the others join with the token.

        :raises AssertionError: a command failed; has its output.
        """
        first, *others = masters or list(self.masters.values())
        for other in others:
            other.join(first.invite()).check()

    def troubles(self) -> str:
        """The troubles of all nodes that were ever started; see ``Node.troubles``."""
        return "\n".join(node.troubles() for node in self.nodes if node.daemon.output.exists())

    # -- ending

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if value is not None:
            self.postmortem = self.troubles()
        self.close()

    def close(self) -> None:
        """Kill every process of the lab and remove its temporary folders; may be called twice."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        with contextlib.ExitStack() as stack:  # takes each step, even if another one fails
            for path in self.temporary:
                stack.callback(shutil.rmtree, path, ignore_errors=True)
            stack.callback(self._network.close)
            for node in self.nodes:
                stack.callback(node.kill)

    def detach(self) -> None:
        """Leave all processes and folders as they are; then :meth:`close` does nothing any more."""
        self._closed = True
        atexit.unregister(self.close)
        self._network.close()
        for node in self.nodes:
            node.daemon.release()

    # -- helpers

    def _short_folder(self) -> Path:
        base = Path(tempfile.gettempdir())
        base = base if len(str(base)) <= 24 else Path("/tmp")  # nosec B108
        path = Path(tempfile.mkdtemp(prefix="saltlab-", dir=base))
        self.temporary.append(path)
        return path

    def _python(self, python: str | Path | None) -> Path:
        return self.python if python is None else interpreter(python)

    def _server(self, python: Path) -> ForkServer | None:
        return server_of(python) if self._forked else None

    def _write(self, factory: Any, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Write the configuration file, make its folders; return the options as Salt reads them."""
        if name in self.masters or name in self.minions:
            raise ValueError(f"the lab has a {name!r} already")
        logging.getLogger("saltfactories").setLevel(logging.ERROR)
        root = self.root / name
        root.mkdir()
        config = factory.default_config(root, name)
        # The parts that would let the daemon report to a pytest session, or widen its access.
        for key in ("pytest-master", "pytest-minion", "peer"):
            config.pop(key, None)
        loaded: dict[str, Any] = factory.write_config({**config, **settings})
        return loaded


def open_labs() -> list[Lab]:
    """The labs of this process that are open, or were closed by an exception."""
    return [lab for lab in _live if not lab._closed or lab.postmortem]


_live: weakref.WeakSet[Lab] = weakref.WeakSet()


def _end_in_order() -> None:
    # Without a handler Python dies at once, and leaves the daemons behind. The handler stays in
    # place: any open lab is then closed by its block or at exit.
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
