"""A process that outlives who starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.minion import options
from saltext_ha.minion.restarting import after_job, detached, processes, restart
from saltext_ha.minion.watchdog import rescue
from saltext_ha.minion.watchdog.journal import Journal
from tests.tools import script

pytestmark = pytest.mark.core

MODULE = """
import time
from pathlib import Path
from saltext_ha.minion.restarting import detached

order = detached.take()
Path(order["file"]).write_text(order["text"])
time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sleeper.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return "sleeper"


def test_it_is_no_child_of_who_starts_it(tmp_path: Path, module: str) -> None:
    file = tmp_path / "file"
    known = detached.start(module, {"file": str(file), "text": "done"})
    wait_for(lambda: file.exists() and file.read_text() == "done", 60, "it does what it is told")
    process = processes.living(known)
    assert process is not None
    assert processes.know(process) == known
    try:
        # So Salt's engines and jobs find those whom they end before themselves.
        assert process not in psutil.Process().children(recursive=True)
    finally:
        process.kill()


def test_it_may_be_started_in_a_unit_of_its_own(tmp_path: Path, module: str) -> None:
    file, run = tmp_path / "file", tmp_path / "systemd-run"
    script(run, f'echo "$1" > {tmp_path}/said; shift; exec "$@"')
    known = detached.start(module, {"file": str(file), "text": "done"}, (str(run), "--scope"))
    wait_for(lambda: file.exists() and file.read_text() == "done", 60, "it does what it is told")
    process = processes.living(known)
    assert process is not None
    process.kill()
    assert (tmp_path / "said").read_text() == "--scope\n"


def test_one_that_is_over_at_once_was_started(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts it may be slower, on a busy machine, than what it does."""
    (tmp_path / "quick.py").write_text(
        "import os; from pathlib import Path; from saltext_ha.minion.restarting import detached; "
        "Path(detached.take()['file']).write_text(str(os.getpid()))"
    )
    file, run = tmp_path / "file", subprocess.run

    def slow(*args: Any, **more: Any) -> Any:
        done = run(*args, **more)
        wait_for(lambda: not psutil.pid_exists(int(file.read_text())), 60, "it is over")
        return done

    monkeypatch.setattr(detached.subprocess, "run", slow)
    known = detached.start("quick", {"file": str(file)})
    assert known.pid == int(file.read_text())
    assert processes.living(known) is None


def test_a_minion_that_could_not_be_started_anew_is_in_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = restart.Way(("/no/such/salt-minion",))
    monkeypatch.setattr(restart, "way", lambda minion, opts, outlived: gone)
    journal = Journal(tmp_path)
    rescue.begin(os.getpid(), {"pidfile": str(tmp_path / "pid")}, journal, "m1")
    wait_for(lambda: len(journal.read()) == 2, 60, "it is noted")
    assert [each.why for each in journal.read()] == [
        rescue.STUCK,
        "could not be started anew: /no/such/salt-minion: No such file or directory",
    ]


def test_who_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        HaError, match=r"ended with 1 at its start: .*No module named no_such_module"
    ):
        detached.start("no_such_module", {})
    denied = ("sh", "-c", "echo 'Failed to start transient scope unit: Access denied' >&2; exit 1")
    with pytest.raises(HaError, match=r"ended with 1 at its start: .* scope unit: Access denied$"):
        detached.start("module", {}, denied)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(HaError, match=r"module cannot be started: .*No such file"):
        detached.start("module", {})


def test_who_hangs_at_its_start_is_not_waited_for(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(detached, "BEGINS", 0.5)
    before = {*psutil.Process().children()}  # of other tests in this process; they may end
    with pytest.raises(HaError, match=r"hanging cannot be started: .*timed out"):
        detached.start("hanging", {})
    assert {*psutil.Process().children()} <= before


@pytest.mark.parametrize("ends", [True, False])
def test_it_is_outside_of_the_unit_where_it_ends_the_minion_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Otherwise systemd restarts the minion, also when it has ended who asked for it."""
    known = processes.know(psutil.Process())
    way = restart.Way(("restart", "it"), (known,) if ends else ())
    before: list[tuple[str, ...]] = []

    def start(module: str, order: Any, words: Any = ()) -> processes.KnownProcess:
        before.append(tuple(words))
        return known

    monkeypatch.setattr(detached, "start", start)
    monkeypatch.setattr(restart, "way", lambda *args, **more: way)
    monkeypatch.setattr(restart, "outside", lambda minion: restart.SCOPE)
    monkeypatch.setattr(options, "pid", lambda opts: known.pid)
    (tmp_path / "minion").write_text("id: web1\n")
    rescue.begin(known.pid, {}, Journal(tmp_path), "m1")
    after_job.ask({"conf_file": str(tmp_path / "minion")})
    assert before == [restart.SCOPE if ends else ()] * 2
