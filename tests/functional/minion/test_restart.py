"""Which processes a minion is, and how it is started anew."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.minion.restarting import processes, restart
from tests.functional.sleepers import Sleeper
from tests.tools import script

pytestmark = pytest.mark.core

SUPERVISOR = "import subprocess, sys; subprocess.run(sys.argv[2:])"


def numbers(way: restart.Way) -> list[int]:
    return [known.pid for known in way.ends]


def test_a_process_is_known_again() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        known = processes.know(psutil.Process(process.pid))
        ask = f"print(processes.know(psutil.Process({process.pid})))"
        command = f"import psutil; from saltext_ha.minion.restarting import processes; {ask}"
        told = subprocess.check_output([sys.executable, "-c", command], text=True)
        assert told.strip() == str(known), "by another process, too"
        again = processes.living(known)
        assert again is not None
        assert again.pid == process.pid
        assert processes.living(known._replace(started=known.started + 1)) is None
    finally:
        process.kill()
    # Nobody has waited for it: its number is still there, and the process is not.
    wait_for(lambda: processes.living(known) is None, 60, "it is over")
    process.wait()
    assert processes.living(known) is None


def test_the_job_is_the_child_of_the_minion() -> None:
    me = psutil.Process()
    parents = [me, *me.parents()]
    for child, parent in pairwise(parents):
        assert processes.job_of(me.pid, parent.pid) == child.pid
    assert processes.job_of(me.pid, 0) == me.pid


def test_it_is_started_anew_by_its_own_command_line(minion: Sleeper) -> None:
    way = restart.way(minion.process.pid, {})
    assert (list(way.command), numbers(way)) == (minion.command, [minion.process.pid] * 2)
    restart.restart(restart.Way(way.command, way.ends, 0.5, way.cwd), lambda: None)
    minion.has_started(times=2)
    assert not minion.lives


@pytest.mark.parametrize(
    ("unit", "main", "restarted"),
    [
        ("salt-minion.service", "0", "salt-minion.service"),
        ("salt-proxy@switch7.service", "it", "salt-proxy@switch7.service"),
        ("supervisor.service", "1", None),
        ("supervisor.service", "[not set]", None),
        ("", "it", None),
    ],
)
def test_systemd_restarts_the_service_that_the_minion_is(
    minion: Sleeper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: str,
    main: str,
    restarted: str | None,
) -> None:
    main = str(minion.process.pid) if main == "it" else main
    script(tmp_path / "systemctl", f"echo '{main}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(restart, "_unit", lambda pid: unit)
    way = restart.way(minion.process.pid, {})
    if restarted:
        assert way == restart.Way(("systemctl", "restart", restarted))
    else:
        assert list(way.command) == minion.command


def test_whoever_supervises_it_is_left_alone(sleeper: Sleeper) -> None:
    """Also one that is a Python program, too, and speaks of minions."""
    command = [sys.executable, "-c", SUPERVISOR, "minion.conf", *sleeper.command]
    with subprocess.Popen(command) as supervisor:
        sleeper.has_started()
        (minion,) = psutil.Process(supervisor.pid).children()
        way = restart.way(minion.pid, {})
        assert (numbers(way), list(way.command)) == ([minion.pid, minion.pid], sleeper.command)
        restart.restart(restart.Way(("true",), way.ends), lambda: None)
        assert supervisor.wait(60) == 0


def test_the_first_process_of_a_container_is_never_ended() -> None:
    """Nobody would be left to put the old file back, and no command would be left to run."""
    with pytest.raises(HaError, match="its container ends with the minion"):
        restart.way(1, {"minion_restart_command": "true"})


def test_nor_is_what_a_container_ends_with(
    tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docker run --init`` ends with the process that it started, and not with others."""
    init = tmp_path / "docker-init"
    shutil.copy("/bin/sh", init)
    command = f"{shlex.join(sleeper.command)} & sleep 600 & wait"
    with subprocess.Popen([init, "-c", command]) as process:
        children = psutil.Process(process.pid).children
        try:
            monkeypatch.setattr(restart, "FIRST", process.pid)
            wait_for(lambda: sleeper.starts and len(children()) == 2, 60, "both run")
            minion, beside = sorted(children(), key=lambda each: each.pid)
            with pytest.raises(HaError, match="its container ends with the minion"):
                restart.way(minion.pid, {"minion_restart_command": "true"})
            # One that is stuck is ended, and what runs the container starts it again.
            assert numbers(restart.way(minion.pid, {}, outlived=False)) == [minion.pid] * 2
            assert numbers(restart.way(beside.pid, {})) == [beside.pid, beside.pid]

            def hidden(process: psutil.Process) -> str:
                raise psutil.AccessDenied(process.pid)

            monkeypatch.setattr(psutil.Process, "name", hidden)
            assert numbers(restart.way(minion.pid, {})) == [minion.pid] * 2
        finally:
            for each in (*children(), process):
                each.kill()


def test_salts_own_parent_belongs_to_the_minion(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    forking = (
        "import os, time; os.fork(); open({!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(600)"
    )
    command = [sys.executable, "-c", forking.format(str(pids)), "salt-minion"]
    first = subprocess.Popen(command)
    try:
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2, 60, "both run")
        (second,) = {int(pid) for pid in pids.read_text().split()} - {first.pid}
        assert numbers(restart.way(second, {})) == [first.pid, second]
    finally:
        for each in (*psutil.Process(first.pid).children(), psutil.Process(first.pid)):
            each.kill()
        first.wait()


def test_who_is_started_by_somebody_else_is_not_started_twice(minion: Sleeper) -> None:
    restart.restart(restart.way(minion.process.pid, {}), lambda: 4711)
    assert minion.starts == 1


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("it's me", r"\"it's me\" cannot be split into words: no closing quotation"),
        (" ", "' ' takes a command as one text, or a list of its words"),
        (True, "True takes a command as one text, or a list of its words"),
        (5, "5 takes a command as one text, or a list of its words"),
    ],
)
def test_a_configured_command_that_is_none(command: object, why: str) -> None:
    with pytest.raises(HaError, match=f"minion_restart_command: {why}$"):
        restart.way(os.getpid(), {"minion_restart_command": command})


def test_the_configured_command_is_used(minion: Sleeper, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    way = restart.way(minion.process.pid, {"minion_restart_command": ["touch", str(ran)]})
    restart.restart(way, lambda: None)
    assert (ran.exists(), minion.starts, minion.lives) == (True, 1, False)
    failing = restart.way(os.getpid(), {"minion_restart_command": "false"})
    with pytest.raises(HaError, match="false ended with 1"):
        restart.restart(restart.Way(failing.command), lambda: None)
    with pytest.raises(HaError, match="No such file"):
        restart.restart(restart.Way(("/no/such/thing",)), lambda: None)


def test_a_minion_that_is_over_meanwhile(gone: int) -> None:
    with pytest.raises(HaError, match=f"the minion cannot be looked at.*{gone}"):
        restart.way(gone, {})
