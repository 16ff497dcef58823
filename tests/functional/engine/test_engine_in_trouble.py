"""Real engine processes that are stopped, out of descriptors, or lose what they stand on."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, prlimit
from typing import Any

import psutil
import pytest

from lab.engines import EngineProcess, Place, befriend, free_port
from lab.key_folders import FOLDERS, public_keys
from lab.wait import wait_for
from saltext_ha.commands.engine_client import shaped
from saltext_ha.common.errors import HaError
from saltext_ha.runners import ha as runner
from saltext_ha.transport import identity
from saltext_ha.transport.trust import Trust
from tests.engines import QUICK, wrong
from tests.forked import ForkedEngine
from tests.pages import page
from tests.processes import Master

SOON = 120.0
WATCHED = 6.0  # seconds for which lines of a log are counted


class LoggingEngine(EngineProcess):
    """Logs as salt-master does, to this process: it may be forbidden to write files."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)

    def launch(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proving.hostile.target", json.dumps(self.place.data())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        self._reader.start()

    def _read(self) -> None:
        assert self._process
        assert self._process.stderr
        with self._process.stderr as log:
            self._lines.extend(log)

    def files(self) -> int:
        return psutil.Process(self.pid).num_fds()

    def lines(self) -> list[str]:
        """What was logged, without tracebacks."""
        return [line for line in self._lines if line.startswith("2")]


@pytest.fixture
def engine(root: Path) -> Iterator[LoggingEngine]:
    """One with a status page."""
    place = Place(root, "m1", {**QUICK, "status": {"port": free_port()}})
    with LoggingEngine(place) as engine:
        wait_for(lambda: page(place, "/ready")[0] == 200, SOON, "it is ready")
        yield engine


def status(place: Place) -> dict[str, Any]:
    """``salt-run ha.status``."""
    runner.__opts__, runner.__context__ = place.opts, {}
    answer: dict[str, Any] = runner.status()
    assert runner.__context__["retcode"] == answer["retcode"]
    return answer


def is_fine(place: Place) -> bool:
    """Whether ``ha.status`` answers, and nothing is wrong."""
    answer = status(place)
    return "reasons" in answer and not wrong(answer)


@contextlib.contextmanager
def limited(engine: LoggingEngine, resource: int, most: int) -> Iterator[None]:
    """The engine may use no more than *most* of *resource*."""
    before = prlimit(engine.pid, resource)
    prlimit(engine.pid, resource, (most, before[1]))
    try:
        yield
    finally:
        prlimit(engine.pid, resource, before)


@contextlib.contextmanager
def stopped(engine: EngineProcess) -> Iterator[None]:
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine.pid, signal.SIGCONT)


def knows_m2(place: Place) -> None:
    """Have it trust m2, which does not run."""
    befriend(place, Place(place.root, "m2"))
    wait_for(lambda: len(status(place)["masters"]) == 2, SOON, "it knows m2")


# -- stopped


def test_an_engine_that_is_stopped_does_not_respond(engine: LoggingEngine) -> None:
    with stopped(engine):
        begun = time.monotonic()
        answer = status(engine.place)
        took = time.monotonic() - begun
    assert answer["retcode"] == 2
    assert "does not respond" in answer["error"]
    assert took < 45
    wait_for(lambda: is_fine(engine.place), SOON, "it goes on")


def test_so_it_is_when_its_queue_is_full(engine: LoggingEngine) -> None:
    with stopped(engine), contextlib.ExitStack() as crowd:
        with contextlib.suppress(BlockingIOError):
            for _ in range(100):
                sock = crowd.enter_context(socket.socket(socket.AF_UNIX))
                sock.setblocking(False)
                sock.connect(str(engine.place.config.control_socket))
        begun = time.monotonic()
        answer = shaped(lambda: engine.control("status"), {})
        took = time.monotonic() - begun
    assert "does not respond" in answer["error"]
    assert took < 45


def test_a_peer_that_is_stopped_in_the_middle_of_an_answer_is_not_up(root: Path) -> None:
    """A link that waits for a large answer waits for a minute."""
    m1, m2 = (Master(root, name, {"peer_timeout": 2}) for name in ("m1", "m2"))
    befriend(m1.place, m2.place)
    with m1.engine, m2.engine:
        wait_for(m1.is_fine, SOON, "they have met")
        with contextlib.ExitStack() as stop:
            with m2.failing("WAIT store.sync"):
                m1.knock({"web1": next(public_keys(4))})
                wait_for(lambda: "busy" in m2.note(), SOON, "m2 does not answer about keys")
                stop.enter_context(stopped(m2.engine))
            answer = m1.ask("peers")
        assert (answer["peers"][0]["state"], answer["retcode"]) == ("unknown", 2)
        assert "timed out" in answer["peers"][0]["note"]
        wait_for(lambda: m1.ask("peers")["retcode"] == 0, SOON, "it goes on")


# -- the state folder


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied", "replica"])
def test_a_state_folder_that_goes_is_said_everywhere(engine: LoggingEngine, how: str) -> None:
    place, folder = engine.place, engine.place.config.state_dir
    knows_m2(place)
    if how == "replica":
        place.replica_file.unlink()
    else:
        shutil.rmtree(folder)
        if how == "replaced":
            folder.mkdir(mode=0o700)
        elif how == "emptied":
            folder.mkdir(mode=0o700)
            (folder / "peers").mkdir(mode=0o700)
    answer = status(place)
    assert (answer["state"], answer["retcode"] != 0) == ("degraded", True)
    assert f"{folder}" in answer["masters"][0]["note"]
    assert "under the running engine" in answer["masters"][0]["note"]
    code, reason = page(place, "/ready")
    assert (code, "under the running engine" in reason) == (503, True)

    def shown() -> bool:
        return "under the running engine" in page(place, "/status.json")[1]

    wait_for(shown, SOON, "the page shows it")
    metrics = page(place, "/metrics")[1]
    ready = [line for line in metrics.splitlines() if "_ready{" in line and '"m1"' in line]
    assert ready
    assert ready[0].endswith(" 0.0")
    wait_for(lambda: any("ha state:" in line for line in engine.lines()), SOON, "it is logged")
    time_of_lines = len(engine.lines())
    wait_for(lambda: not is_fine(place), SOON, "asked again")
    assert len(engine.lines()) - time_of_lines < 20


@pytest.mark.parametrize("file", ["identity.key", "identity.crt"])
def test_an_identity_that_was_exchanged_is_said(engine: LoggingEngine, file: str) -> None:
    """All would seem to work until the next pin, or the next start."""
    place = engine.place
    ours, other = place.config.state_dir / file, Place(place.root, "other").config
    identity.load_or_create(other.state_dir, other.name)
    ours.write_bytes((other.state_dir / file).read_bytes())

    def said() -> bool:
        return f"{ours} was replaced by another one" in status(place)["masters"][0]["note"]

    wait_for(said, SOON, "the status says it")
    assert page(place, "/ready")[0] == 503


def test_a_peer_whose_file_is_damaged_is_unknown_to_every_command(engine: LoggingEngine) -> None:
    place = engine.place
    knows_m2(place)
    file = place.config.state_dir / "peers" / "m2.json"
    file.write_text("{")
    assert str(file) in str(wrong(status(place)))
    peers = engine.control("peers")
    assert (peers["peers"], peers["retcode"]) == ([], 2)
    assert str(file) in peers["notes"][0]
    check = engine.control("check", {"only": "options"})
    assert (list(check["unknown"]), check["retcode"]) == (["m2"], 2)
    for command in ("where", "minions", "reachability"):
        answer = engine.control(command)
        assert (str(file) in answer["unknown"]["m2"], answer["retcode"]) == (True, 2), command
    sync = engine.control("sync", {"test": True})
    assert (list(sync["unreachable"]), sync["retcode"]) == (["m2"], 2)
    assert "m2 could not be asked" in str(engine.control("failover_safe", {"master": "m1"}))
    befriend(place, Place(place.root, "m3"))
    removal = engine.control("remove_peer", {"name": "m3", "test": True})
    assert str(file) in removal["unknown"]["m2"]


def test_a_folder_of_peers_that_cannot_be_read_is_no_master(engine: LoggingEngine) -> None:
    """Those that were pinned before are asked. What is wrong with the folder, the status says."""
    place = engine.place
    folder = place.config.state_dir / "peers"
    folder.rename(place.root / "aside")
    folder.touch()
    wait_for(lambda: "Not a directory" in str(status(place)), SOON, "its status says that")
    keys = engine.control("keys")
    assert (keys["masters"], keys["unknown"], keys["retcode"]) == (["m1"], {}, 0)
    assert engine.control("peers")["retcode"] == 2


def test_a_renewed_certificate_is_no_trouble(engine: LoggingEngine) -> None:
    assert engine.control("renew")["retcode"] == 0
    answer = status(engine.place)
    assert (wrong(answer), answer["masters"][0]["note"]) == ([], "")
    (engine.place.config.state_dir / "identity.pem").unlink()
    assert "identity.key was removed" in status(engine.place)["masters"][0]["note"]


# -- descriptors


def test_without_descriptors_its_log_stays_small(engine: LoggingEngine) -> None:
    place = engine.place
    assert place.config.status
    ways: list[tuple[int, Any]] = [
        (socket.AF_INET, ("127.0.0.1", place.port)),
        (socket.AF_INET, ("127.0.0.1", place.config.status.port)),
        (socket.AF_UNIX, str(place.config.control_socket)),
    ]
    begun, lines = time.monotonic(), len(engine.lines())
    with limited(engine, RLIMIT_NOFILE, engine.files()), contextlib.ExitStack() as crowd:
        for family, where in ways:
            for _ in range(30):
                sock = crowd.enter_context(socket.socket(family))
                sock.setblocking(False)
                sock.connect_ex(where)

        def said() -> bool:
            return any("descriptor" in line or "accept" in line for line in engine.lines()[lines:])

        wait_for(said, SOON, "it is logged")
        wait_for(lambda: time.monotonic() - begun > WATCHED, SOON, "time passes")
    new = engine.lines()[lines:]
    assert len(new) < 40, new[:40]
    wait_for(lambda: page(place, "/live")[0] == 200, SOON, "the page is there again")
    assert status(place)["refused"]["no file descriptor is left"] >= 1


# -- a disk that cannot be written


def test_what_cannot_be_written_is_said_once(root: Path, engine: LoggingEngine) -> None:
    """What a peer pushes cannot be taken in, and passes over the store find nothing wrong."""
    place, other = engine.place, Place(root, "m2", QUICK)
    befriend(place, other)
    for each in (place, other):
        for folder in FOLDERS:
            (each.pki_dir / folder).mkdir(mode=0o700, exist_ok=True)
    keys = public_keys(3)
    with ForkedEngine(other):
        wait_for(lambda: is_fine(place), SOON, "they have met")
        lines, begun = len(engine.lines()), time.monotonic()
        with limited(engine, RLIMIT_FSIZE, 0):
            numbers = itertools.count()

            def goes_on() -> bool:
                (other.pki_dir / FOLDERS[0] / f"web{next(numbers)}").write_text(next(keys))
                # A folder whose time changed is looked at.
                os.utime(place.pki_dir / FOLDERS[1])
                return time.monotonic() - begun > WATCHED

            wait_for(goes_on, SOON, "time passes", poll=0.2)
        new = engine.lines()[lines:]
        said = [line for line in new if "cannot be written" in line]
        assert 1 <= len(said) <= 3, said
        assert len(new) < 20, new
        wait_for(lambda: is_fine(place), SOON, "it is written down after all")


def test_a_command_says_that_the_disk_is_full(engine: LoggingEngine) -> None:
    knows_m2(engine.place)
    with limited(engine, RLIMIT_FSIZE, 0):
        for command in ("renew", "leave", "remove_peer"):
            with pytest.raises(HaError, match="File too large"):
                engine.control(command, {"name": "m2"})
    assert [row["name"] for row in status(engine.place)["masters"]] == ["m1", "m2"]
    assert engine.control("renew")["retcode"] == 0


def test_a_member_that_cannot_be_written_down_is_said(root: Path, engine: LoggingEngine) -> None:
    """Another member let it in, and this one is full: it would go on without that master."""
    place, other, new = engine.place, Place(root, "m2", QUICK), Place(root, "m3", QUICK)
    befriend(place, other)
    with limited(engine, RLIMIT_FSIZE, 0):
        Trust(other.config.state_dir).pin(new.peer)
        with ForkedEngine(other):

            def said() -> bool:
                return "peers: cannot be written: File too large" in str(wrong(status(place)))

            def logged() -> list[str]:
                return [line for line in engine.lines() if "cannot be written" in line]

            wait_for(said, SOON, "its status says that")
            wait_for(logged, SOON, "its log says that")
            assert len(logged()) == 1, logged()
    assert not [line for line in engine.lines() if "failed method=" in line]
