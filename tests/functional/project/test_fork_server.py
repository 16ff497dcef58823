"""What is forked behaves as what is started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.cli import Result, run
from lab.fork_server import server_of
from lab.keys import new_pair
from lab.node import LIMIT
from lab.process import Daemon, status
from lab.wait import wait_for

PYTHON = Path(sys.executable)
TELLS = """
import os, random, sys
print(sys.argv, os.getcwd(), sorted(os.environ), os.getsid(0) == os.getpid(), sys.path[0], __name__)
print(sys.stdin.read(), file=sys.stderr)
print(sorted(os.listdir("/proc/self/fd")), random.random() if "random" in sys.argv else "")
sys.exit(7)
"""
# Which modules loaders find, in a new folder as well; and how often they looked into folders.
LOADS = """
import os, shutil, sys
import salt.config, salt.loader

folder, looks, listdir = os.path.join(sys.argv[1], "modules"), [], os.listdir
os.listdir = lambda *of: looks.append(of) or listdir(*of)
opts = salt.config.apply_minion_config({"extension_modules": sys.argv[1]})
utils = salt.loader.utils(opts)
modules = salt.loader.minion_mods(opts, utils=utils)
print(modules["test.ping"](), "ha_probe" in modules.file_mapping)
others = salt.loader.states(opts, modules, utils, {}), salt.loader.runner(opts, utils=utils)
for loader in (utils, modules, *others, salt.loader.returners(opts, modules)):
    print(loader.tag, loader.file_mapping)
print(len(looks), file=sys.stderr)
print("test" in salt.loader.minion_mods({**opts, "disable_modules": ["test"]}).file_mapping)
os.makedirs(folder)
with open(os.path.join(folder, "ha_probe.py"), "w") as file:
    file.write("def is_there(): return 'there'")
modules.clear()
print(modules["ha_probe.is_there"](), modules.file_mapping)
shutil.rmtree(folder)
modules.clear()
print("ha_probe" in modules.file_mapping)
"""
# What Salt makes of a private key, and of text that is none.
READS_KEYS = """
import sys
from salt.crypt import PrivateKey

text = sys.stdin.read()
print(PrivateKey.from_str(text).sign(b"text").hex())
PrivateKey.from_str(text.replace("A", "", 1))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file that can be run, to be filled."""
    path = tmp_path / "program"
    path.touch(0o700)
    return path


@pytest.fixture
def both(tmp_path: Path) -> Any:
    """Run a command in both ways."""

    def run_both(*command: str, stdin: str = "", **env: str) -> list[Result]:
        path = {name: text for name, text in os.environ.items() if name == "PYTHONPATH"}
        same = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "COLUMNS": "80", **path}
        environment = {**same, **env}
        return [
            run(
                command,
                env=environment,
                cwd=tmp_path,
                timeout=LIMIT,
                parse=False,
                stdin=stdin,
                server=server,
            )
            for server in (None, server_of(PYTHON))
        ]

    return run_both


def test_a_file_is_given_the_same_and_gives_the_same(both: Any, program: Path) -> None:
    program.write_text(f"#!{PYTHON}\n{TELLS}")
    started, forked = both(str(program), "a", "b c", stdin="given", MORE="yes")
    assert started == forked
    assert started.returncode == 7
    assert "given" in started.stderr
    assert "MORE" in started.stdout


def test_a_module_and_its_error(both: Any, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"{TELLS.replace('sys.exit(7)', '')}\n1 / 0\n")
    started, forked = both(str(PYTHON), "-m", "module", "a")
    assert started.stdout == forked.stdout
    assert started.returncode == forked.returncode == 1
    assert "ZeroDivisionError" in started.stderr
    assert "ZeroDivisionError" in forked.stderr


@pytest.mark.parametrize("end", ["", "None", "True", "3", "300", "-1", "'the reason'", "[1]"])
def test_how_it_ends(both: Any, tmp_path: Path, end: str) -> None:
    """After its threads and what is to be done at exit; what it wrote is there."""
    (tmp_path / "module.py").write_text(
        "import atexit, sys, threading, time\n"
        "atexit.register(print, 'last')\n"
        "begun = threading.Event()\n"
        "late = lambda: (begun.wait(), time.sleep(0.1), print('thread'))\n"
        "threading.Thread(target=late).start()\n"
        "print('first', end=' ')\n"
        "begun.set()\n" + (f"sys.exit({end})\n" if end else "")
    )
    started, forked = both(str(PYTHON), "-m", "module")
    assert started == forked
    assert started.stdout == "first thread\nlast\n"


@pytest.mark.parametrize("program", ["salt-run", "salt-key", "salt", "salt-call"])
def test_programs_of_salt(both: Any, program: str) -> None:
    command = str(PYTHON.parent / program)
    for argument in ("--version", "--help", "--no-such-option"):
        started, forked = both(command, argument)
        assert started == forked
        assert started.stdout + started.stderr


def test_loaders_find_the_same_though_forked_ones_do_not_look(both: Any, program: Path) -> None:
    program.write_text(f"#!{PYTHON}\n{LOADS}")
    started, forked = both(str(program), str(program.parent / "synced"))
    assert started.stdout == forked.stdout
    assert started.returncode == forked.returncode == 0, str(started)
    assert "True False\n" in started.stdout
    assert "\nthere {" in started.stdout
    assert started.stdout.endswith("}\nFalse\n")
    assert int(started.stderr) > int(forked.stderr) == 0


def test_keys_are_good_for_the_same(both: Any, program: Path) -> None:
    program.write_text(f"#!{PYTHON}\n{READS_KEYS}")
    started, forked = both(str(program), stdin=new_pair()[0])
    assert started.stdout == forked.stdout
    assert len(started.stdout.strip()) == 512
    assert started.returncode == forked.returncode == 1
    assert started.stderr.splitlines()[-1] == forked.stderr.splitlines()[-1]


def test_each_has_random_numbers_of_its_own(tmp_path: Path, program: Path) -> None:
    program.write_text(f"#!{PYTHON}\n{TELLS}")
    outputs = {
        run(
            [str(program), "random"],
            env=os.environ,
            cwd=tmp_path,
            timeout=LIMIT,
            parse=False,
            server=server_of(PYTHON),
        ).stdout
        for _ in range(2)
    }
    assert len(outputs) == 2


def test_what_takes_too_long_is_killed_with_its_children(tmp_path: Path, program: Path) -> None:
    program.write_text(
        f"#!{PYTHON}\nimport subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print('began', child.pid, flush=True)\n"
        "child.wait()\n"
    )

    def given_up(after: int) -> str:
        order = [str(program)]
        with pytest.raises(TimeoutError, match=rf"not within {after} s: .*program") as failure:
            run(order, env=os.environ, cwd=tmp_path, timeout=after, server=server_of(PYTHON))
        return str(failure.value)

    said = given_up(2)
    if "began" not in said:
        said = given_up(30)  # the machine is too busy to begin it sooner
    child = int(said.split("began")[1].split()[0])
    assert status(child) == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("forked", [False, True])
def test_a_daemon_and_what_outlives_its_first_process(
    tmp_path: Path, program: Path, forked: bool
) -> None:
    program.write_text(
        f"#!{PYTHON}\nimport os, time\n"
        "if not os.fork():\n    while True:\n        print('tick', flush=True); time.sleep(0.02)\n"
        "os.wait()\n"
    )
    server = server_of(PYTHON) if forked else None
    daemon = Daemon([str(program)], os.environ, tmp_path, tmp_path / "out", server)
    daemon.spawn()
    try:
        wait_for(lambda: daemon.output.stat().st_size, 60, "first tick")
        first, child = daemon.pids()
        assert first == daemon.session
        assert psutil.Process(first).cmdline()[:2] == [str(PYTHON), str(program)]
        daemon.suspend()
        assert daemon.running
        daemon.resume()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not daemon.running, 60, "it has ended")
        assert daemon.pids() == [child]
        # Nobody else is given its number as long as the lab may kill what bears it.
        assert psutil.Process(first).status() == psutil.STATUS_ZOMBIE
        daemon.spawn()
        assert daemon.running
        assert status(child) == psutil.STATUS_ZOMBIE
    finally:
        daemon.kill()
    assert not daemon.running
    assert not daemon.pids()
    wait_for(lambda: not psutil.pid_exists(first), 60, "its number is free")


def test_what_only_a_new_interpreter_would_notice_is_not_forked(tmp_path: Path) -> None:
    server, here = server_of(PYTHON), dict(os.environ)
    program = str(PYTHON.parent / "salt-run")
    assert server.can_run([program, "-c", "x"], here)
    assert server.can_run([str(PYTHON), "-m", "saltext_ha.cli"], here)
    assert not server.can_run([program], {**here, "PYTHONPATH": str(tmp_path)})
    assert not server.can_run(["sh", "-c", program], here)
    assert not server.can_run(["/bin/sh", "-c", program], here)
