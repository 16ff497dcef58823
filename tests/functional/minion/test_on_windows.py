"""A minion on Windows on which somebody installed saltext-ha by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from saltext_ha.minion.windows import WHY

# Salt is loaded before: what it does on Windows is its own.
ON_WINDOWS = """
import logging, os, sys
import psutil, salt.config, salt.crypt, salt.loader, salt.minion, salt.payload
import salt.utils.platform

opts = salt.config.minion_config(None) | {"id": "web1", "cachedir": sys.argv[1]}
utils = salt.loader.utils(opts)
functions = salt.loader.minion_mods(opts, utils=utils)
states = salt.loader.states(opts, functions, utils, None)
functions["test.ping"], states["test.nop"]

MISSING = ("fcntl", "grp", "pwd", "resource", "termios")
for name in MISSING:
    sys.modules[name] = None
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "geteuid", "getuid"):
    delattr(os, name)
salt.utils.platform.is_windows = lambda: True
"""
LOADED = """
for loader, name in ((functions, "ha.current_master"), (states, "ha.multi_master")):
    print(name in loader, loader.missing_fun_string(name))
"""
ENGINE = """
logging.basicConfig(level=logging.CRITICAL, force=True)
from saltext_ha.engines import ha_watchdog
from saltext_ha.minion.watchdog.parent_minion import ParentMinion

ParentMinion.lasts = lambda self, seconds: False
ha_watchdog.__opts__ = opts
ha_watchdog.start()
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ON_WINDOWS + code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_functions_and_states_say_why_they_are_not_there(tmp_path: Path) -> None:
    said = run(LOADED, tmp_path).stdout.splitlines()
    assert said == [f"False 'ha' __virtual__ returned False: {WHY}"] * 2


def test_the_watchdog_does_not_begin_again_and_again(tmp_path: Path) -> None:
    done = run(ENGINE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"ha_watchdog not started: {WHY}" in done.stderr
