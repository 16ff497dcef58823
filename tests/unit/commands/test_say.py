"""What a function says while it runs never ends it, and is no part of its answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from saltext_ha.commands.engine_client import say
say("1 of 2 masters restarted")
print("the answer")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_nobody_can_be_told(tmp_path: Path, redirection: str, unbuffered: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert (done.stdout, done.returncode) == ("the answer\n", 0)
