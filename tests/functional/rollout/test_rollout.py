"""What the state ``ha.multi_master`` refuses and notices, and how a minion is started anew."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from salt.state import STATE_INTERNAL_KEYWORDS

from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.lint import check
from saltext_ha.minion import options, tcp_links
from saltext_ha.minion.restarting import processes, restart
from saltext_ha.rollout import drop_in, plan, record, trial
from saltext_ha.rollout.record import FAILED, KEPT, PUT_BACK, TRYING, RolloutRecord
from saltext_ha.states import ha as state

pytestmark = pytest.mark.core

FINGER = ":".join(["3a"] * 32)
WISH = drop_in.wanted(["10.0.0.1", "10.0.0.2"], finger=FINGER)
TEXT = drop_in.text(drop_in.options(WISH))


@pytest.fixture
def opts(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A minion's configuration."""
    conf_file = tmp_path / "minion"
    conf_file.write_text(f"id: web1\nmaster: 10.0.0.1\npki_dir: {tmp_path}/pki\n")
    (tmp_path / "minion.d").mkdir()
    names = {"cachedir": "cache", "pki_dir": "pki", "pidfile": "minion.pid"}
    folders = {name: str(tmp_path / path) for name, path in names.items()}
    opts = {"conf_file": str(conf_file), "id": "web1", "caller": True, **folders}
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as sock_dir:
        yield {**opts, "sock_dir": sock_dir}


def test_the_file_and_its_name_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "minion.d.conf"
    record.replace(path, "one")
    record.replace(path, "two", 0o600)
    assert synced == [False, True] * 2
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def target(opts: dict[str, Any]) -> Path:
    return Path(opts["conf_file"]).parent / "minion.d" / drop_in.NAME


def make(opts: dict[str, Any], minion: int | None = None, again: bool = False) -> plan.RolloutPlan:
    return plan.make(opts, WISH, minion, again)


def run(opts: dict[str, Any], **wish: Any) -> dict[str, Any]:
    state.__opts__ = opts
    return state.multi_master("x", **{"masters": "10.0.0.1,10.0.0.2", "finger": FINGER, **wish})


# -- the file


def test_without_a_running_minion_the_file_is_written(opts: dict[str, Any]) -> None:
    planned = run({**opts, "test": True})
    assert (planned["result"], target(opts).exists()) == (None, False)
    assert '+  - "10.0.0.2"' in planned["changes"]["diff"]
    done = run(opts)
    assert (done["result"], done["changes"]) == (True, planned["changes"])
    assert target(opts).read_text() == TEXT
    again = run(opts)
    assert (again["result"], again["changes"]) == (True, {})
    tested = run({**opts, "test": True})
    assert (tested["result"], tested["changes"]) == (True, {})
    changed = run(opts, alive=15)
    assert "-master_alive_interval: 30\n+master_alive_interval: 15" in changed["changes"]["diff"]


def test_a_minion_without_a_configuration_file(opts: dict[str, Any]) -> None:
    """As where Salt came by pip."""
    Path(opts["conf_file"]).unlink()
    done = run(opts)
    assert done["result"] is True, done["comment"]
    assert target(opts).read_text() == TEXT
    assert run({**opts, "test": True})["changes"] == {}


def test_by_salt_ssh_no_minion_would_have_it(opts: dict[str, Any]) -> None:
    """It has a folder of its own on the host, with a configuration in it."""
    opts["root_dir"] = str(Path(opts["conf_file"]).parent / "running_data")
    ret = run(opts)
    assert ret["result"] is False
    assert "salt-ssh has a configuration of its own" in ret["comment"]
    assert not target(opts).exists()


def test_switches_that_are_texts(opts: dict[str, Any]) -> None:
    for name in ("again", "watchdog", "failback", "signed"):
        refused = run(opts, **{name: "false"})
        assert refused["result"] is False
        assert f"{name}: 'false': takes True or False" in refused["comment"]
    assert not target(opts).exists()


def test_no_argument_is_a_word_of_salt() -> None:
    """``names`` and ``retry`` never reach a state, or as something else, when a file sets them."""
    arguments = set(inspect.signature(state.multi_master).parameters) - {"name"}
    assert not arguments & {*STATE_INTERNAL_KEYWORDS, "names"}


def test_masters_that_tell_their_publish_ports_themselves(opts: dict[str, Any]) -> None:
    done = run(opts, type="hot", publish_port=None)
    assert done["result"] is True, done
    assert "publish_port" not in target(opts).read_text()
    assert run(opts, publish_port=None)["result"] is False, "Salt's check looks at one port"


def test_the_transport_and_what_is_the_watchdogs(opts: dict[str, Any]) -> None:
    done = run(opts, transport="tcp", watchdog=True, jitter=30)
    assert done["result"] is True, done
    assert "HA203" in done["comment"], "and it says what that transport does to failover"
    found = yaml.safe_load(target(opts).read_text())
    assert (found["transport"], found["ha"]) == ("tcp", {"watchdog": {"jitter": 30}})


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("minion.d/other.conf", "master: [old]\n", "other.conf:1 master"),
        ("minion.d/ha-masters.conf", "master: mine\n", "written by somebody else"),
        ("pki/minion_master.pub", "", "HA304"),
    ],
)
def test_what_is_refused(
    opts: dict[str, Any], file: str, text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".pub":
        text = f"-----BEGIN PUBLIC KEY-----\n{'QUJD' * 16}\n-----END PUBLIC KEY-----\n"
    path.write_text(text)
    answer = run(opts)
    assert (answer["result"], answer["changes"]) == (False, {})
    assert words in answer["comment"]
    assert path.read_text() == text


def test_a_file_with_a_tab_in_it_is_read_as_salt_reads_it(opts: dict[str, Any]) -> None:
    other = Path(opts["conf_file"]).parent / "minion.d/zz-site.conf"
    other.write_text("master: old.example.com\t# the old one\n")
    with pytest.raises(HaError, match=r"other files set the same options.*zz-site\.conf:1 master"):
        plan.make(opts, WISH, None, False)


def test_a_file_that_cannot_be_read_may_set_anything(opts: dict[str, Any]) -> None:
    other = Path(opts["conf_file"]).parent / "minion.d/zz-site.conf"
    other.write_text("timeout: 5\nmaster: [old.example.com\n")
    with pytest.raises(HaError, match=r"cannot be read.*mend them first.*zz-site\.conf:3"):
        plan.make(opts, WISH, None, False)
    folder = other.with_name("folder.conf")
    folder.mkdir()
    with pytest.raises(HaError, match=r"mend them first: \S*folder\.conf Is a directory; \S*:3 "):
        plan.make(opts, WISH, None, False)
    folder.rmdir()
    other.write_text("timeout: 5\n")
    # What stands in our own file does not matter: it is written anew.
    other.with_name(drop_in.NAME).write_text(f"{drop_in.MARK}\nmaster: [\n")
    assert plan.make(opts, WISH, None, False).changes


def test_a_rule_that_fails_is_a_remark(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(facts: object) -> Any:
        raise TypeError("hunter2")

    rules = [dataclasses.replace(r, check=fails) if r.code == "HA301" else r for r in check.RULES]
    monkeypatch.setattr(check, "RULES", rules)
    (remark,) = plan.make(opts, WISH, None, False).remarks
    assert remark.startswith("HA301 could not be looked at: this rule failed (TypeError")


def test_options_that_it_would_replace_as_a_whole(opts: dict[str, Any]) -> None:
    with open(opts["conf_file"], "a") as file:
        file.write("engines: [logstash: {}]\n")
    assert run(opts)["result"] is True, "without the watchdog it has no engines"
    answer = run(opts, watchdog=True)
    assert (answer["result"], "minion:4 engines" in answer["comment"]) == (False, True)


def test_a_folder_that_would_not_be_read(opts: dict[str, Any]) -> None:
    answer = run({**opts, "default_include": "other.d/*.conf"})
    assert (answer["result"], "would not be read" in answer["comment"]) == (False, True)


def test_the_signing_key_must_be_there(opts: dict[str, Any]) -> None:
    answer = run(opts, finger="", signed=True)
    assert (answer["result"], "HA301" in answer["comment"]) == (False, True)


@pytest.mark.parametrize("wish", [{"masters": []}, {"timeout": 0}, {"finger": "3a"}])
def test_what_makes_no_sense(opts: dict[str, Any], wish: dict[str, Any]) -> None:
    assert run(opts, **wish)["result"] is False
    assert not target(opts).exists()


def test_a_full_disk_is_an_answer(opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(record, "replace", full)
    done = run(opts)
    assert done["result"] is False
    assert done["comment"] == f"{target(opts)}: cannot be written: No space left on device"
    assert done["changes"] == {}


NOBODY = processes.KnownProcess(0, 0.0)


def noted(
    opts: dict[str, Any],
    state: str,
    at: float,
    helper: processes.KnownProcess = NOBODY,
    text: str = TEXT,
) -> None:
    record.write(opts["cachedir"], RolloutRecord(state, record.digest(text), at, "why", *helper))


@pytest.mark.parametrize("state", [PUT_BACK, FAILED])
def test_a_file_that_was_put_back_is_not_tried_again_at_once(
    opts: dict[str, Any], state: str
) -> None:
    """Also where the minion could not be restarted: each run promised it, and none did it."""
    noted(opts, state, time.time() - 600)
    with pytest.raises(HaError, match=rf"10 minutes ago, and {state}: why\..*again: True"):
        make(opts)
    assert make(opts, again=True).changes
    noted(opts, state, time.time() - 3700)
    assert make(opts).changes
    noted(opts, PUT_BACK, time.time(), text="another")
    assert make(opts).changes
    noted(opts, KEPT, time.time())
    assert make(opts).changes


def test_one_file_at_a_time(opts: dict[str, Any]) -> None:
    me = processes.know(psutil.Process())
    noted(opts, TRYING, time.time(), helper=me, text="another")
    for planned in (run(opts), run({**opts, "test": True})):
        assert (planned["result"], "run this again later" in planned["comment"]) == (False, True)
    assert not target(opts).exists()


def test_while_it_is_tried_it_is_not_written_again(opts: dict[str, Any]) -> None:
    """Least of all when the old one was just put back, and the minion is on its way there."""
    noted(opts, TRYING, time.time(), helper=processes.know(psutil.Process()))
    answer = run(opts)
    assert (answer["result"], "run this again later" in answer["comment"]) == (False, True)
    assert (answer["changes"], target(opts).exists()) == ({}, False)
    target(opts).write_text(TEXT)
    answer = run(opts)
    assert (answer["result"], "just being tried" in answer["comment"]) == (True, True)


def test_who_has_the_number_of_a_dead_helper_tries_nothing(opts: dict[str, Any]) -> None:
    me = processes.know(psutil.Process())
    for helper in (me._replace(started=me.started - 100), processes.KnownProcess(me.pid, 0.0)):
        noted(opts, TRYING, time.time(), helper=helper, text="another")
        assert not make(opts).trying
    assert run(opts)["result"] is True
    assert target(opts).read_text() == TEXT


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


def test_a_minion_that_runs_with_what_was_there_before(opts: dict[str, Any]) -> None:
    target(opts).write_text(TEXT)
    me, started = os.getpid(), psutil.Process().create_time()
    os.utime(target(opts), (time.time(), time.time()))
    assert make(opts, me).stale
    noted(opts, FAILED, time.time() - 600)
    with pytest.raises(HaError, match=r"was not restarted 10 minutes ago: why\..*again: True"):
        make(opts, me)
    assert make(opts, me, again=True).stale
    # The clock was set back since: a restart would not mend that.
    os.utime(target(opts), (time.time() + 3600, time.time() + 3600))
    assert not make(opts, me).stale
    os.utime(target(opts), (started - 5, started - 5))
    assert not make(opts, me).stale
    assert not make(opts, None).stale


def test_a_torn_record_is_none(opts: dict[str, Any]) -> None:
    assert record.read(opts["cachedir"]) is None
    noted(opts, KEPT, 1.5)
    assert record.read(opts["cachedir"]) == RolloutRecord(KEPT, record.digest(TEXT), 1.5, "why")
    record.path(opts["cachedir"]).write_text('{"state": "ke')
    assert record.read(opts["cachedir"]) is None


# -- the minion


def ordered(opts: dict[str, Any], **order: Any) -> trial.Order:
    """What the state would have tried, as it arrives."""
    names = ("conf_file", "id", "pidfile", "cachedir")
    same = {**{name: opts[name] for name in names}, "bus": options.bus(opts)}
    sent = trial.Order(path=str(target(opts)), new=TEXT, **same, **order)
    return trial.Order(**json.loads(json.dumps(asdict(sent))))


SLEEPER = """
import contextlib, os, socket, sys, time
bus = socket.socket(socket.AF_UNIX)
with contextlib.suppress(FileNotFoundError):
    os.unlink(sys.argv[3])
bus.bind(sys.argv[3])
bus.listen()
open(sys.argv[2], 'a').write('started\\n')
time.sleep(600)
"""


def sleeper(starts: Path, bus: Any) -> list[str]:
    """A command that looks like a minion, serves its *bus* and adds a line to *starts*."""
    return [sys.executable, "-c", SLEEPER, "salt-minion", str(starts), str(bus)]


def has_started(starts: Path) -> None:
    wait_for(lambda: starts.exists() and starts.read_text(), 60, "it has started")


@pytest.fixture
def minion(tmp_path: Path, opts: dict[str, Any]) -> Iterator[tuple[psutil.Process, Path]]:
    """A process like a minion; and the file that has a line for each start."""
    starts = tmp_path / "starts"
    command = sleeper(starts, options.bus(opts))
    process = subprocess.Popen(command, start_new_session=True)
    has_started(starts)
    yield psutil.Process(process.pid), starts
    for each in psutil.process_iter(["cmdline"]):
        if each.info["cmdline"] == command:
            each.kill()
    process.wait()


def numbers(way: restart.Way) -> list[int]:
    return [known.pid for known in way.ends]


def test_it_is_started_anew_by_its_own_command_line(
    minion: tuple[psutil.Process, Path],
) -> None:
    process, starts = minion
    way = restart.way(process.pid, {})
    assert (list(way.command), numbers(way)) == (process.cmdline(), [process.pid, process.pid])
    restart.restart(restart.Way(way.command, way.ends, 0.5, way.cwd), lambda: None)
    wait_for(lambda: starts.read_text() == "started\nstarted\n", 60, "it has started again")
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("old", [TEXT.replace("10.0.0.2", "10.0.0.3"), None], ids=["old", "none"])
def test_where_nobody_can_try_it_the_old_file_stays(
    opts: dict[str, Any],
    minion: tuple[psutil.Process, Path],
    monkeypatch: pytest.MonkeyPatch,
    old: str | None,
) -> None:
    """It would be in force at the next restart, and nobody would take it back."""
    process, starts = minion
    Path(opts["pidfile"]).write_text(str(process.pid))
    if old:
        target(opts).write_text(old)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    ret = run(opts)
    assert (ret["result"], ret["changes"]) == (False, {})
    assert "the minion not restarted: saltext_ha.rollout.trial cannot be started" in ret["comment"]
    assert (target(opts).read_text() if target(opts).exists() else None) == old
    assert starts.read_text() == "started\n"


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
    minion: tuple[psutil.Process, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: str,
    main: str,
    restarted: str | None,
) -> None:
    process, _ = minion
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho '{process.pid if main == 'it' else main}'\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(restart, "_unit", lambda pid: unit)
    way = restart.way(process.pid, {})
    if restarted:
        assert way == restart.Way(("systemctl", "restart", restarted))
    else:
        assert list(way.command) == process.cmdline()


@pytest.mark.parametrize("mode", ["control-group", "mixed", "process", "none", ""])
def test_a_service_that_ends_as_a_whole_puts_nothing_back(
    minion: tuple[psutil.Process, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    opts: dict[str, Any],
) -> None:
    process, _ = minion
    Path(opts["pidfile"]).write_text(str(process.pid))
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\n[ $2 = --property=KillMode ] && echo '{mode}'\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(restart, "_unit", lambda pid: "salt-minion.service")
    ret = run({**opts, "test": True})
    if mode in ("control-group", "mixed"):
        assert (ret["result"], ret["changes"]) == (False, {})
        assert f"salt-minion.service has KillMode={mode}: systemd would also" in ret["comment"]
    else:
        assert ret["result"] is None, ret["comment"]
    assert not target(opts).exists()


SUPERVISOR = "import subprocess, sys; subprocess.run(sys.argv[2:])"


def test_whoever_supervises_it_is_left_alone(tmp_path: Path, opts: dict[str, Any]) -> None:
    """Also one that is a Python program, too, and speaks of minions."""
    starts = tmp_path / "starts"
    command = sleeper(starts, options.bus(opts))
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, "minion.conf", *command])
    try:
        has_started(starts)
        (minion,) = psutil.Process(supervisor.pid).children()
        way = restart.way(minion.pid, {})
        assert (numbers(way), list(way.command)) == ([minion.pid, minion.pid], command)
        restart.restart(restart.Way(("true",), way.ends), lambda: None)
        assert supervisor.wait(60) == 0
    finally:
        supervisor.kill()
        supervisor.wait()


def test_the_first_process_of_a_container_is_never_ended() -> None:
    """Nobody would be left to put the old file back, and no command would be left to run."""
    with pytest.raises(HaError, match="its container ends with the minion"):
        restart.way(1, {"minion_restart_command": "true"})


def test_nor_is_what_a_container_ends_with(
    tmp_path: Path, opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docker run --init`` ends with the process that it started, and not with others."""
    init, starts = tmp_path / "docker-init", tmp_path / "starts"
    shutil.copy("/bin/sh", init)
    command = shlex.join(sleeper(starts, options.bus(opts)))
    with subprocess.Popen([init, "-c", f"{command} & sleep 600 & wait"]) as process:
        children = psutil.Process(process.pid).children
        try:
            monkeypatch.setattr(restart, "FIRST", process.pid)
            wait_for(lambda: starts.exists() and len(children()) == 2, 60, "both run")
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


def test_who_is_started_by_somebody_else_is_not_started_twice(
    minion: tuple[psutil.Process, Path],
) -> None:
    process, starts = minion
    way = restart.way(process.pid, {})
    restart.restart(way, lambda: 4711)
    assert starts.read_text() == "started\n"


def test_the_configured_command_is_used(
    minion: tuple[psutil.Process, Path], tmp_path: Path
) -> None:
    process, starts = minion
    ran = tmp_path / "ran"
    for wrong, why in (
        ("it's me", r"\"it's me\" cannot be split into words: no closing quotation"),
        (" ", "' ' takes a command as one text, or a list of its words"),
        (True, "True takes a command as one text, or a list of its words"),
        (5, "5 takes a command as one text, or a list of its words"),
    ):
        with pytest.raises(HaError, match=f"minion_restart_command: {why}$"):
            restart.way(process.pid, {"minion_restart_command": wrong})
    way = restart.way(process.pid, {"minion_restart_command": ["touch", str(ran)]})
    restart.restart(way, lambda: None)
    assert (ran.exists(), starts.read_text()) == (True, "started\n")
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    failing = restart.way(os.getpid(), {"minion_restart_command": "false"})
    with pytest.raises(HaError, match="false ended with 1"):
        restart.restart(restart.Way(failing.command), lambda: None)
    with pytest.raises(HaError, match="No such file"):
        restart.restart(restart.Way(("/no/such/thing",)), lambda: None)


@pytest.fixture
def gone() -> int:
    """The number of a process that is over."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_minion_that_is_over_meanwhile(gone: int) -> None:
    with pytest.raises(HaError, match=f"the minion cannot be looked at.*{gone}"):
        restart.way(gone, {})


@pytest.mark.parametrize("dies", [False, True])
def test_what_has_the_number_of_the_minion_by_now_is_left_alone(
    opts: dict[str, Any],
    tmp_path: Path,
    minion: tuple[psutil.Process, Path],
    gone: int,
    dies: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the minion is started with the old file, though the new one is not there to be asked."""
    if dies:
        # It is seen, and is over when somebody looks closer.
        monkeypatch.setattr(tcp_links, "minion_pid", lambda *_, **__: gone)
    stranger, _ = minion
    ran = tmp_path / "ran"
    known = processes.know(stranger)
    way = restart.Way(
        ("sh", "-c", 'cat "$0" >> "$1"', str(target(opts)), str(ran)),
        (known._replace(started=known.started - 100),) * 2,
    )
    target(opts).write_text(TEXT)
    old = "# before\n"
    order = ordered(opts, old=old, minion=stranger.pid, job=gone, timeout=0.1, way=asdict(way))
    assert trial.carry_out(order) == (
        PUT_BACK,
        "no master was reached within 0.1 s; nor with the old",
    )
    assert ran.read_text() == TEXT + old
    assert stranger.is_running()
    assert stranger.status() != psutil.STATUS_ZOMBIE


def test_the_job_is_the_child_of_the_minion() -> None:
    me = psutil.Process()
    parents = [me, *me.parents()]
    for child, parent in pairwise(parents):
        assert processes.job_of(me.pid, parent.pid) == child.pid
    assert processes.job_of(me.pid, 0) == me.pid


def test_when_the_job_does_not_end_the_old_file_is_back(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, minion: tuple[psutil.Process, Path]
) -> None:
    monkeypatch.setattr(trial, "JOB", 0.2)
    process, starts = minion
    for old in ("before\n", None):
        target(opts).write_text(TEXT)
        order = ordered(opts, old=old, minion=process.pid, job=process.pid, timeout=1, way={})
        assert trial.carry_out(order)[0] == PUT_BACK
        assert (target(opts).read_text() if old else target(opts).exists()) == (old or False)
    assert starts.read_text() == "started\n", "nobody was restarted"
    assert process.is_running()


def test_a_minion_that_salt_starts_late_is_waited_for(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt sleeps for up to ``random_startup_delay`` before it looks for a master."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(trial, "time", clock)
    conf = {**opts, "master": "10.0.0.1", "random_startup_delay": 600}
    assert trial.watch(conf, lambda: None, 180) == ""
    assert clock.now == 780
