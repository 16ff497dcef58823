"""How an engine ends: whatever stops it, nothing that hangs keeps its process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.engines import Place
from saltext_ha.engine.service import Service
from tests.loop import in_a_loop

pytestmark = pytest.mark.core

HANGS = """
import logging, threading, time
from saltext_ha.engine.main import end_within

logging.basicConfig(force=True)
threading.Thread(target=time.sleep, args=(600,)).start()
end_within(0.2)
"""


def test_a_thread_that_hangs_does_not_keep_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], timeout=200, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "ended after 0.2 s, though a thread had not; does a file system hang?" in ended.stderr


FAILS = """
import json, logging, sys
from lab.engines import Place
from saltext_ha.engine import main
from saltext_ha.health.watcher import Watcher

async def fails(self):
    raise ValueError("a fault of ours")

logging.basicConfig(force=True)
Watcher.run = fails
place = Place.of(json.loads(sys.argv[1]))
main.run(place.opts, place.config)
"""


def test_an_engine_that_ends_because_a_part_failed_says_so(tmp_path: Path) -> None:
    """Its log by a traceback, and its process by its exit status."""
    ended = subprocess.run(
        [sys.executable, "-c", FAILS, json.dumps(Place(tmp_path, "m1").data())],
        timeout=200,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ERROR:saltext_ha.common.tasks:ha engine: health failed\nTraceback" in ended.stderr
    assert "ValueError: a fault of ours" in ended.stderr
    assert ended.returncode == 1


@pytest.mark.usefixtures("no_bus")
@in_a_loop
async def test_a_part_that_fails_begins_the_end_as_a_signal_does(tmp_path: Path) -> None:
    place, begun = Place(tmp_path, "m1"), list[str]()
    service = Service(place.opts, place.config, stopping=lambda: begun.append("the end"))

    async def fails() -> None:
        raise ValueError("a fault of ours")

    service._tasks.start("a part", fails())
    await service.run()
    service.stop()
    assert begun == ["the end"]
