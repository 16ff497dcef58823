"""A minion that Salt starts as root, and that changes to the ``user:`` of its configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to change the user")

MINION = """
import json, os, socket, sys
from saltext_ha.minion import tcp_links
from saltext_ha.minion.restarting import processes
from saltext_ha.minion.watchdog import request, run
from saltext_ha.modules import ha

opts = json.loads(sys.argv[1])
with open(opts["pidfile"], "w") as file:
    file.write(str(os.getpid()))
bus = socket.create_server(("127.0.0.1", 0))
opts["tcp_pub_port"] = bus.getsockname()[1]
master = socket.create_server(("127.0.0.1", 0))
connection = socket.create_connection(master.getsockname())
opts["publish_port"] = master.getsockname()[1]
ha.__opts__, ha.__context__ = opts, {}
ha.version(), ha.current_master()  # another user may not read what is still to be imported
os.setgid(65534)
os.setuid(65534)
minion = os.getpid()

def fork():
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)

fork()
fork()  # a state that runs beside others has a process of its own
links = tcp_links.established(minion)
print(json.dumps({
    "minion": minion,
    "found": tcp_links.minion_pid(opts["pidfile"], opts["tcp_pub_port"], caller=False, forks=True),
    "hidden": links.note if links.seen is None else None,
    "process": ha.version()["process"],
    "known": processes.find(minion),
    "current": ha.current_master(),
    "moved": ha.failover(),
}), flush=True)
"""


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """What a job of such a minion says."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        opts = {
            "id": "web1",
            "master": "127.0.0.1",
            "master_list": ["127.0.0.1", "127.0.0.2"],
            "master_type": "failover",
            "master_ip": "127.0.0.1",
            "master_uri": "tcp://127.0.0.1:4506",
            "ipc_mode": "tcp",
            "pidfile": f"{folder}/minion.pid",
            "cachedir": folder,
            "conf_file": f"{folder}/minion",
            "multimaster": True,
        }
        line = [sys.executable, "-c", MINION, json.dumps(opts)]
        done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120)
        assert done.stdout, done.stderr
        yield json.loads(done.stdout)


def test_its_jobs_know_its_process(told: dict[str, Any]) -> None:
    assert told["found"] == told["minion"]
    assert told["process"] == told["known"]


def test_a_job_shows_what_it_was_connected_to(told: dict[str, Any]) -> None:
    current = told["current"]
    assert (current["address"], current["connected"]) == ("127.0.0.1", True)


def test_a_move_is_not_promised_that_nobody_could_make(told: dict[str, Any]) -> None:
    """It needs the minion's connections, which the kernel shows to root alone."""
    assert told["hidden"]
    assert (told["moved"]["result"], told["moved"]["comment"]) == (False, told["hidden"])
