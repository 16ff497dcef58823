"""An error that no test can catch fails the test in which it happens: see ``filterwarnings``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
THREAD = """
import threading

def test_it():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
"""
FINALIZER = """
class Closes:
    def __del__(self):
        raise ZeroDivisionError

def test_it():
    Closes()
"""


@pytest.mark.parametrize("text", [THREAD, FINALIZER], ids=["thread", "finalizer"])
def test_what_ends_a_thread_or_is_ignored_fails_the_test(text: str, tmp_path: Path) -> None:
    file = tmp_path / "tests/test_it.py"
    file.parent.mkdir()
    file.write_text(text)
    settings = str(ROOT / "pyproject.toml")
    command = [sys.executable, "-m", "pytest", "-q", "-c", settings, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 1, done.stdout
    assert "ZeroDivisionError" in done.stdout
