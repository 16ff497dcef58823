"""How the engine ``ha_watchdog`` starts, and when it does not."""

from __future__ import annotations

import subprocess
import sys

START = """
import logging
logging.basicConfig(level=logging.CRITICAL)
from saltext_ha.engines import ha_watchdog
ha_watchdog.__opts__ = {"conf_file": "/etc/salt/minion"}
ha_watchdog.start(interval=5)
"""


def test_settings_below_engines_are_named() -> None:
    """Other engines of Salt have theirs there."""
    process = subprocess.Popen([sys.executable, "-c", START], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("CRITICAL"))
        assert "engines: ha_watchdog: takes no settings (interval); write them below ha:" in line
    finally:
        process.kill()
        process.communicate()
