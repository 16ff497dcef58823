"""``salt-ha lock``, as a program, against real engines: one holder at a time."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lab import etcd
from lab.engines import Place, befriend
from lab.wait import wait_for
from saltext_ha.cli.lock_program import LOST, NOT_FOUND, NOT_GIVEN
from saltext_ha.once.locks import TTL
from tests.engines import QUICK
from tests.forked import ForkedEngine

SOON = 120.0


@contextmanager
def masters(root: Path, **ha: Any) -> Iterator[dict[str, ForkedEngine]]:
    """Two engines that know who leads, with configuration files for ``salt-ha``."""
    found = [Place(root, name, {**QUICK, **ha}) for name in ("m1", "m2")]
    befriend(*found)
    with ExitStack() as stack:
        engines = {place.name: stack.enter_context(ForkedEngine(place)) for place in found}
        for place in found:
            keys = ("root_dir", "pki_dir", "sock_dir", "cachedir", "id", "user", "interface", "ha")
            given = {key: place.opts[key] for key in keys}
            (place.folder / "master").write_text(yaml.safe_dump(given))
        wait_for(lambda: len({e.leader() for e in engines.values()} - {None}) == 1, SOON, "one")
        yield engines


def words(engine: ForkedEngine, *arguments: str) -> list[str]:
    folder = str(engine.place.folder)
    return [sys.executable, "-m", "saltext_ha.cli", "-c", folder, "lock", *arguments]


def lock(engine: ForkedEngine, *arguments: str) -> subprocess.Popen[str]:
    return started(*words(engine, *arguments))


def started(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SOON)
    return process.returncode, out, err


def below(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Command → a child of *process*."""
    found = {}
    for each in psutil.Process(process.pid).children():
        with suppress(psutil.Error):
            found[" ".join(each.cmdline())] = each
    return found


def held(engine: ForkedEngine, root: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    """A program that has the lock, until the file that is returned is there."""
    begun, over = root / f"{name}.begun", root / f"{name}.over"
    script = f"touch {begun}; while [ ! -e {over} ]; do sleep 0.05; done"
    process = lock(engine, name, "--", "sh", "-c", script)
    wait_for(begun.exists, SOON, "it has the lock")
    return process, over


def test_one_has_it_and_the_others_wait_and_say_for_whom(tmp_path: Path) -> None:
    with masters(tmp_path) as engines:
        first, over = held(engines["m2"], tmp_path, "x")
        code, _, err = ended(lock(engines["m1"], "--wait", "0", "x", "--", "true"))
        assert code == NOT_GIVEN
        assert f"process {first.pid} on m2 has it" in err
        # Another name is another lock; what the command says and returns is passed on.
        code, out, err = ended(
            lock(engines["m1"], "y", "--", "sh", "-c", "echo $SALT_HA_LOCK; exit 7")
        )
        assert (code, out) == (7, "y\n")
        assert "best effort" in err
        waits = lock(engines["m1"], "x", "--", "echo", "ran")
        with pytest.raises(subprocess.TimeoutExpired):
            waits.wait(2)
        over.touch()
        assert ended(first)[0] == 0
        assert ended(waits)[:2] == (0, "ran\n")


def test_it_is_held_by_a_new_leader_as_well(tmp_path: Path) -> None:
    with masters(tmp_path) as engines:
        # Usually the first by name leads; not when it was the slower one to start.
        leads, follows = sorted(engines, key=lambda name: engines["m1"].leader() != name)
        here = engines[follows]
        first, over = held(here, tmp_path, "x")
        engines[leads].kill()
        wait_for(lambda: here.leader() == follows, SOON, f"{follows} leads")
        other = lock(here, "--wait", str(TTL + 3), "x", "--", "true")
        assert ended(other)[0] == NOT_GIVEN
        assert first.poll() is None, "its holder still has it"
        over.touch()
        assert ended(first)[0] == 0
        assert ended(lock(here, "--wait", "30", "x", "--", "true"))[0] == 0


def test_the_command_is_ended_when_its_lease_is_lost(tmp_path: Path) -> None:
    with masters(tmp_path) as engines:
        process, _ = held(engines["m2"], tmp_path, "x")
        command = psutil.Process(process.pid).children()[0]
        own = shlex.join(words(engines["m2"], "y", "--", "sleep", "300"))
        wrapped = started("bash", "-c", f"sleep 301 >/dev/null 2>&1 & exec {own}")
        both = {"sleep 300", "sleep 301"}  # while it starts, it has other children for a moment
        wait_for(lambda: both <= below(wrapped).keys(), SOON, "its command, and that of the shell")
        of_shell = below(wrapped)["sleep 301"]
        engine = psutil.Process(engines["m2"].pid)
        engine.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            command.wait(SOON)
            assert time.monotonic() - began < TTL
            code, _, err = ended(process)
            assert code == LOST
            assert "lock x: lost" in err
            assert ended(wrapped)[0] == LOST
            assert of_shell.is_running(), "its command did not start that"
            of_shell.kill()
            # Another one has it after that, not before.
            assert ended(lock(engines["m1"], "x", "--", "true"))[0] == 0
        finally:
            engine.send_signal(signal.SIGCONT)


def test_the_command_is_ended_also_where_nobody_reads_why(tmp_path: Path) -> None:
    """As after the end of an ssh session, or where the log of it is on a full disk."""
    with masters(tmp_path) as engines:
        process, _ = held(engines["m2"], tmp_path, "x")
        full = open("/dev/full", "w")  # noqa: SIM115
        over, begun = tmp_path / "y.over", tmp_path / "y.begun"
        script = f"touch {begun}; while [ ! -e {over} ]; do sleep 0.05; done"
        command = words(engines["m2"], "y", "--", "sh", "-c", script)
        with full, subprocess.Popen(command, stderr=full) as other:
            wait_for(begun.exists, SOON, "it has begun, though it cannot say anything")
            assert process.stderr
            process.stderr.close()
            commands = [each for one in (process, other) for each in below(one).values()]
            assert len(commands) == 2
            engines["m2"].kill()
            assert [one.wait(SOON) for one in (process, other)] == [LOST, LOST]
        assert not any(each.is_running() for each in commands)


TOOL = """
trap 'sleep 1; touch {cleaned}; exit' TERM
touch {begun}
while :; do sleep 0.05; done
"""

SLEEPING = """
import glob, sys
for file in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(file, encoding="utf-8").read().split("\\0")
    except (OSError, ValueError):
        continue
    if words[0] == "sleep" and words[1] in sys.argv:
        print(words)
"""


def test_nothing_that_it_has_started_outlives_the_lease(tmp_path: Path) -> None:
    """Whoever its parent is, and whenever it was started; and what cleans up has time for it."""
    (tmp_path / "tool").write_text(
        TOOL.format(cleaned=tmp_path / "cleaned", begun=tmp_path / "4.begun")
    )
    own = os.getpid()  # beside a number: seconds that nothing else here sleeps
    scripts = {
        "orphan": f"(sleep 300.{own} & ); touch {tmp_path}/1.begun; sleep 301.{own}",
        "cleanup": f"trap 'sleep 302.{own}' TERM; touch {tmp_path}/2.begun; sleep 303.{own}",
        "next": f"trap : TERM; touch {tmp_path}/3.begun; sleep 304.{own}; sleep 305.{own}",
        "tool": f"bash {tmp_path}/tool; true",
    }
    sleeps = {"orphan": (300, 301), "cleanup": (302, 303), "next": (304, 305), "tool": ()}
    with masters(tmp_path) as engines:
        programs = {
            name: lock(engines["m2"], name, "--", "bash", "-c", script)
            for name, script in scripts.items()
        }
        wait_for(lambda: len([*tmp_path.glob("*.begun")]) == len(scripts), SOON, "all begun")
        engines["m2"].kill()
        # Whoever has one of the locks next looks for what is left of its last holder.
        after = {
            name: lock(
                engines["m1"],
                *(name, "--", sys.executable, "-I", "-S", "-c", SLEEPING),
                *(f"{each}.{own}" for each in sleeps[name]),
            )
            for name in scripts
        }
        for name, program in programs.items():
            code, _, err = ended(program)
            assert code == LOST, (name, err)
        assert (tmp_path / "cleaned").exists(), "it had time to clean up"
        for name, program in after.items():
            assert ended(program)[:2] == (0, ""), f"something of {name} is left"


def test_what_the_command_leaves_behind_is_reaped_and_its_code_is_kept(tmp_path: Path) -> None:
    begun, over = tmp_path / "begun", tmp_path / "over"
    script = (
        "for each in 1 2 3 4 5; do (true & ); done; (sleep 300 & echo $! > {begun}.0); "
        "mv {begun}.0 {begun}; while [ ! -e {over} ]; do sleep 0.05; done; (true & ); exit 7"
    )
    with masters(tmp_path) as engines:
        process = lock(
            engines["m1"], "x", "--", "bash", "-c", script.format(begun=begun, over=over)
        )
        wait_for(begun.exists, SOON, "it has begun")
        program = psutil.Process(process.pid)

        def below() -> int:
            return len(program.children())

        wait_for(lambda: below() == 2, SOON, "the command, and what goes on in the background")
        over.touch()
        process.wait(SOON)
        assert process.returncode == 7
        left = psutil.Process(int(begun.read_text()))
        assert left.is_running(), "a command that ended by itself may leave something behind"
        left.kill()


def test_mistakes_and_signals(tmp_path: Path) -> None:
    with masters(tmp_path) as engines:
        code, _, err = ended(lock(engines["m1"], "x", "--", "/no/such"))
        assert code == NOT_FOUND
        assert "/no/such" in err
        for wrong in (["x"], ["--", "true"], ["--wait", "-1", "x", "--", "true"]):
            assert ended(lock(engines["m1"], *wrong))[0] == 2
        code, _, err = ended(lock(engines["m1"], "x" * 65, "--", "true"))
        assert (code, "at most 64" in err) == (2, True)
        process, _ = held(engines["m1"], tmp_path, "x")
        process.terminate()
        assert ended(process)[0] == 128 + signal.SIGTERM
        assert ended(lock(engines["m2"], "--wait", "30", "x", "--", "true"))[0] == 0


HEEDING = ("env", "--default-signal=HUP,INT")
"""As what is started by hand: what a script starts in its background, or nohup, ignores these."""
TRAPS = """
for each in INT QUIT USR1 USR2; do trap "touch {folder}/$each" $each; done
touch {folder}/begun
while [ ! -e {folder}/over ]; do sleep 0.05; done
"""


def test_a_signal_that_the_command_takes_leaves_it_the_lock(tmp_path: Path) -> None:
    """Ctrl-\\ shows the threads of a Java program; other signals have others read files anew."""
    with masters(tmp_path) as engines:
        begun, script = tmp_path / "begun", TRAPS.format(folder=tmp_path)
        command = words(engines["m1"], "x", "--", "bash", "-c", script)
        process = subprocess.Popen([*HEEDING, *command], start_new_session=True)
        wait_for(begun.exists, SOON, "it has the lock")
        for name in ("INT", "QUIT"):  # as a terminal sends them
            os.killpg(process.pid, signal.Signals[f"SIG{name}"])
            wait_for((tmp_path / name).exists, SOON, name)
        for name in ("USR1", "USR2"):
            process.send_signal(signal.Signals[f"SIG{name}"])
            wait_for((tmp_path / name).exists, SOON, name)
        assert ended(lock(engines["m2"], "--wait", "0", "x", "--", "true"))[0] == NOT_GIVEN
        (tmp_path / "over").touch()
        assert process.wait(SOON) == 0


def test_with_etcd_it_is_never_held_twice(tmp_path: Path) -> None:
    with etcd.cluster(tmp_path, 1) as (member,):
        settings: Mapping[str, Any] = {"store": "etcd", "endpoints": [member.endpoint], "ttl": 8}
        with masters(tmp_path, leader=settings) as engines:
            first, over = held(engines["m2"], tmp_path, "x")
            code, _, err = ended(lock(engines["m1"], "--wait", "10", "x", "--", "true"))
            assert code == NOT_GIVEN, "it is prolonged"
            assert f"process {first.pid} on m2 has it" in err
            over.touch()
            assert ended(first)[0] == 0
            code, out, err = ended(
                lock(engines["m1"], "x", "--", "sh", "-c", "echo $SALT_HA_FENCE")
            )
            assert code == 0
            assert int(out) > 0
            assert "best effort" not in err
            last, _ = held(engines["m1"], tmp_path, "z")
            member.kill()
            assert ended(last)[0] == LOST


TAKE = """
import os, sys
from pathlib import Path
from saltext_ha.cli.lock_program import Lock
from saltext_ha.transport import control_client
if os.geteuid() == 0:
    os.setuid(65534)
Lock(lambda *asked: control_client.request(Path(sys.argv[1]), *asked), "x", "me", print).take(None)
"""


def test_who_may_not_ask_the_engine_does_not_wait_for_it() -> None:
    """Whose command runs by cron as another user waited without end, every night one more."""
    with tempfile.TemporaryDirectory(prefix="ha") as folder, socket.socket(socket.AF_UNIX) as sock:
        path = Path(folder) / "ha_control.ipc"
        sock.bind(str(path))
        sock.listen()
        path.chmod(0)
        command = [sys.executable, "-c", TAKE, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    assert "not permitted; run as the user of salt-master" in done.stderr


AT_ITS_START = """
import os, signal, subprocess, sys, time
from saltext_ha.cli.lock_program import Lock, run

class Popen(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        {then}

def ask(command, payload, timeout):
    answers = {{"held": True, "store": "etcd", "token": "x", "seconds": 3.0}}
    if payload["token"] and command == "lock":
        answers.pop({missing!r}, None)
    return answers

subprocess.Popen = Popen
sys.exit(run(Lock(ask, "x", "me", print), "x", sys.argv[1:], 0, print))
"""


def at_its_start(
    *command: str, then: str = "pass", missing: str = "", before: tuple[str, ...] = HEEDING
) -> tuple[int, str]:
    """
    Exit code and output of ``salt-ha lock``, which does *then* when its command has just begun.

    :param missing: what the engine's answers lack when the lock is prolonged.
    :param before: words before the command.
    """
    script = AT_ITS_START.format(then=then, missing=missing)
    words = [*before, sys.executable, "-c", script, *command]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1"])
def test_a_signal_while_the_command_is_started_is_passed_on(name: str, tmp_path: Path) -> None:
    """It ended the program alone, and the command went on without the lock."""
    file = tmp_path / "pid"
    code, said = at_its_start(
        *("sh", "-c", f"echo $$ > {file}; exec sleep 300"),
        then=f"os.kill(os.getpid(), signal.{name})",
    )
    assert code == 128 + signal.Signals[name], said
    assert not file.exists() or not file.read_text() or not psutil.pid_exists(int(file.read_text()))


def test_a_command_keeps_what_nohup_has_said() -> None:
    code, said = at_its_start("sh", "-c", "kill -HUP $$; echo goes on", before=("nohup",))
    assert (code, "goes on" in said) == (0, True), said


def test_whatever_goes_wrong_the_command_does_not_go_on_without_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code, said = at_its_start("sh", "-c", f"echo $$ > {file}; exec sleep 300", missing="token")
    assert code == 1
    assert "KeyError: 'token'" in said
    assert "sh is ended" in said
    assert not psutil.pid_exists(int(file.read_text()))
