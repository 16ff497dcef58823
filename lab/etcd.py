"""Real etcd: one member, or several that form a cluster."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import requests

from lab.engines import free_port
from lab.wait import wait_for

READY = 60.0


class Member:
    """One etcd process."""

    def __init__(self, folder: Path, name: str, *more: str, disk: bool = False) -> None:
        self.name, self._folder, self._more = name, folder / name, more
        self.client, self.peer = free_port(), free_port()
        self.scheme = "http"
        self.disk = disk
        self._process: subprocess.Popen[bytes] | None = None
        self._slowed: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.client}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer}"

    def start(self, members: Sequence[Member]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        cluster = ",".join(f"{each.name}={each.peer_url}" for each in members)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    *("--name", self.name, "--data-dir", str(self._folder / "data")),
                    *("--listen-client-urls", self.endpoint),
                    *("--advertise-client-urls", self.endpoint),
                    *("--listen-peer-urls", self.peer_url),
                    *("--initial-advertise-peer-urls", self.peer_url),
                    *("--initial-cluster", cluster),
                    *(() if self.disk else ("--unsafe-no-fsync",)),
                    *self._more,
                ],
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def slow_down(self, seconds: float) -> None:
        """Make each write to its disk (fsync) take so many seconds longer."""
        assert self._process is not None
        delay = f"fdatasync,fsync:delay_enter={round(seconds * 1e6)}"
        self._slowed = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", str(self._folder / "strace")),
                *("-e", "trace=fdatasync,fsync", "-e", f"inject={delay}"),
                *("-p", str(self._process.pid)),
            ]
        )
        wait_for(self._is_traced, READY, "strace has it")

    def _is_traced(self) -> bool:
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/status")
        return all("TracerPid:\t0\n" not in each.read_text() for each in threads)

    def speed_up(self) -> None:
        """End :meth:`slow_down`."""
        if self._slowed is not None:
            self._slowed.terminate()
            self._slowed.wait()
            self._slowed = None

    def kill(self) -> None:
        self.speed_up()
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def healthy(self) -> bool:
        """Whether this member answers, and its cluster has a leader."""
        try:
            answer = requests.get(f"{self.endpoint}/health", timeout=1)
            return bool(answer.json()["health"] == "true")
        except (requests.RequestException, KeyError):
            return False

    @property
    def leads(self) -> bool:
        """Whether this member is the leader of its cluster."""
        url = f"{self.endpoint}/v3/maintenance/status"
        said = requests.post(url, data=b"{}", timeout=5).json()
        return bool(said["leader"] == said["header"]["member_id"])


@contextlib.contextmanager
def cluster(folder: Path, count: int, *more: str, disk: bool = False) -> Iterator[list[Member]]:
    """Members that have found each other; with *disk*, writes wait for it (fsync)."""
    members = [Member(folder, f"etcd{number}", *more, disk=disk) for number in range(count)]
    try:
        for member in members:
            member.start(members)
        wait_for(lambda: all(each.healthy for each in members), READY, "etcd is well")
        yield members
    finally:
        for member in members:
            member.kill()
