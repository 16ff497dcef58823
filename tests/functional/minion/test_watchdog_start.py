"""How the engine ``ha_watchdog`` starts, and when it does not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lab import wait_for
from saltext_ha.engines import ha_watchdog
from saltext_ha.minion.watchdog import run
from saltext_ha.minion.watchdog.parent_minion import ParentMinion

START = """
import logging, sys
logging.basicConfig(level=logging.CRITICAL)
from saltext_ha.engines import ha_watchdog
settings = dict.fromkeys(sys.argv[2:], 5)
# Of one with another name; Salt took its engine_module out before.
engines = [{"watchdog": settings}]
ha_watchdog.__opts__ = {"conf_file": "/etc/salt/x", "__role": sys.argv[1], "engines": engines}
ha_watchdog.start(**settings)
"""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        # Other engines of Salt have theirs there.
        (["minion", "interval"], "takes no settings (interval); write them below ha:"),
        (["master"], "is for salt-minion; salt-master has  ha"),
    ],
)
def test_mistakes_in_engines_are_named(arguments: list[str], why: str) -> None:
    command = [sys.executable, "-c", START, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("CRITICAL"))
        assert f"/etc/salt/x: engines: ha_watchdog: {why}" in line
    finally:
        process.kill()
        process.communicate()


def test_a_syndic_is_no_minion(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads the configuration of the minion beside it, and starts its engines, too."""
    opts = {"__role": "syndic", "master": "127.0.0.1", "conf_file": "/etc/salt/minion"}
    monkeypatch.setattr(ha_watchdog, "__opts__", opts, raising=False)
    monkeypatch.setattr(ParentMinion, "lasts", lambda self, seconds: False)
    monkeypatch.setattr(run, "run", lambda *_: pytest.fail("it watches"))
    with caplog.at_level(logging.INFO):
        ha_watchdog.start()
    assert "a syndic's masters are not watched" in caplog.text


# A minion that ends before it has reached a master: it signals no engine, and waits for all.
ENDING = """
import logging, multiprocessing, os, pathlib, sys, time
import salt.config
from saltext_ha.engines import ha_watchdog

logging.basicConfig(level=logging.INFO, force=True)
folder, master = pathlib.Path(sys.argv[1]), sys.argv[2]
ha_watchdog.__opts__ = salt.config.apply_minion_config(
    {"root_dir": str(folder), "id": "web1", "master": [master] if master else []}
)
pidfile = pathlib.Path(ha_watchdog.__opts__["pidfile"])
pidfile.parent.mkdir(parents=True)
pidfile.write_text(str(os.getpid()))
multiprocessing.get_context("fork").Process(target=ha_watchdog.start).start()
if sys.stdin.readline() == "told to\\n":
    pidfile.unlink()
"""


@pytest.mark.parametrize("why", [b"told to\n", b"its key is rejected\n"])
@pytest.mark.parametrize("master", ["127.0.0.1", ""])
def test_it_ends_with_its_minion(master: str, why: bytes, tmp_path: Path) -> None:
    """Also where nothing is to be watched. A minion that ends by itself leaves its pidfile."""
    log = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tmp_path), master],
        stdin=subprocess.PIPE,
        stderr=log.open("w"),
        start_new_session=True,
    )
    try:
        begun = "watching masters" if master else "nothing to watch"
        wait_for(lambda: begun in log.read_text(), 120, "it has begun")
        process.communicate(why, timeout=120)
        assert process.returncode == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
