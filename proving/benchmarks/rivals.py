"""
The tools that users would pick instead, on the same key folders: rsync, lsyncd and unison.

All of them run on this machine, without ssh and without waiting for their cron job: the least they
can cost. lsyncd is told not to wait (``delay = 0``; by default it waits 15 s).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lab import key_folders
from proving.benchmarks import rsync
from proving.benchmarks.rsync import Shot

TOOLS = ("rsync", "lsyncd", "unison")
PACKAGES = {**{tool: tool for tool in TOOLS}, "etcd": "etcd-server"}
"""Required program → its Debian package: the tools, and etcd, a leader store of ours."""
VERSION = re.compile(r"\d+(\.\d+)+")
PATIENCE = 120.0
POLL = 0.0005

Shots = Mapping[str, Shot]
Seen = Callable[[Path], bool]


class ToolsMissing(Exception):
    """Something to compare with is not installed; says what to do."""


def require() -> None:
    """
    Make sure that all programs are there: a table with holes in it compares nothing.

    :raises ToolsMissing: names those that are not.
    """
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if missing:
        raise ToolsMissing(
            f"{', '.join(missing)} not found; install what is compared with, and etcd: "
            f"apt-get install {' '.join(PACKAGES.values())}"
        )


def versions() -> dict[str, str]:
    """The version of each: ``{"rsync": "3.2.7", …}``; ``?`` if one tells none."""
    asked = {**dict.fromkeys(PACKAGES, "--version"), "unison": "-version"}
    return {tool: _version([tool, option]) for tool, option in asked.items()}


def _version(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "?"  # make hostile does not need them
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = VERSION.search(said)
    return found.group() if found else "?"


@dataclass(frozen=True)
class Compared:
    """The same three pieces of work by each tool; medians of several runs."""

    in_sync: Shots
    accept: Shots
    delete: Shots


Tool = Callable[[Path, Path], Shot]


def measure(pki_dir: Path, root: Path, runs: int) -> Compared:
    """
    What the tools need for the key folders of *pki_dir*.

    They work on a copy of it below *root*, so that no engine sees their changes.
    """
    require()
    source = root / "source"
    rsync.copy(pki_dir, source)
    ids = key_folders.fresh("rival")

    def accept() -> Seen:
        minion_id = next(ids)
        key_folders.plant(source, [minion_id], seed=time.monotonic_ns())
        return lambda target: (target / key_folders.ACCEPTED / minion_id).exists()

    def delete() -> Seen:
        with os.scandir(source / key_folders.ACCEPTED) as entries:
            minion_id = next(entry.name for entry in entries if not entry.name.startswith("."))
        (source / key_folders.ACCEPTED / minion_id).unlink()
        return lambda target: not (target / key_folders.ACCEPTED / minion_id).exists()

    def nothing() -> Seen:
        return lambda target: True

    works = (nothing, accept, delete)
    found: dict[str, list[Shot]] = {}
    for name, tool in COPIES.items():
        target = root / name
        tool(source, target)
        found[name] = [_shots(tool, source, target, runs, change) for change in works]
    with _lsyncd(source, root / "lsyncd"):
        latencies = [_latency(root / "lsyncd", runs, change) for change in works[1:]]
    in_sync, accepted, deleted = (
        {name: shots[number] for name, shots in found.items()} for number in range(3)
    )
    # lsyncd never compares the folders: in sync there is nothing to measure.
    return Compared(
        in_sync,
        {**accepted, "lsyncd": latencies[0]},
        {**deleted, "lsyncd": latencies[1]},
    )


def _shots(
    tool: Tool,
    source: Path,
    target: Path,
    runs: int,
    change: Callable[[], Seen],
) -> Shot:
    shots = []
    for _ in range(runs):
        seen = change()
        shots.append(tool(source, target))
        if not seen(target):
            raise AssertionError(f"{tool.__name__} did not bring the change to {target}")
    return rsync.of_several(shots, median)


def unison(source: Path, target: Path) -> Shot:
    """One run, both ways as unison does; its archives lie beside the target."""
    target.mkdir(parents=True, exist_ok=True)
    command = ["unison", str(source), str(target), "-batch", "-silent", "-ui", "text"]
    command += ["-times", "-perms", "-1", "-confirmbigdel=false", "-ignore", "Name .*"]
    environment = {**os.environ, "UNISON": str(target.parent / "unison-archives")}
    return rsync.run(command, environment)[0]


COPIES: Mapping[str, Tool] = {
    "rsync": rsync.copy,
    rsync.DURABLE: rsync.durable,
    "unison": unison,
}
"""The tools that make one folder equal the other in one shot."""


def copied_to_all(tool: Tool, source: Path, targets: list[Path]) -> Shot:
    """*source* by *tool* to one of *targets* after the other: the sum."""
    return rsync.of_several([tool(source, target) for target in targets], sum)


@contextlib.contextmanager
def _lsyncd(source: Path, target: Path) -> Iterator[None]:
    """A running lsyncd that has brought *target* up to date."""
    rsync.copy(source, target)
    settings = target.with_name("lsyncd.conf")
    settings.write_text(
        "settings { nodaemon = true }\n"
        f'sync {{ default.rsync, source = "{source}", target = "{target}", delete = true,'
        " delay = 0, rsync = { archive = true } }\n",
        encoding="utf-8",
    )
    ready = key_folders.fresh("ready")
    process = subprocess.Popen(
        ["lsyncd", "-log", "scarce", str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        minion_id = next(ready)
        key_folders.plant(source, [minion_id])
        _until(lambda: (target / key_folders.ACCEPTED / minion_id).exists(), "lsyncd has started")
        yield
    finally:
        process.terminate()
        process.wait()


def _latency(target: Path, runs: int, change: Callable[[], Seen]) -> Shot:
    times = []
    for _ in range(runs):
        seen = change()
        began = time.perf_counter()
        _until(lambda seen=seen: seen(target), "lsyncd brought a change")  # type: ignore[misc]
        times.append((time.perf_counter() - began) * 1000)
    return Shot(median(times))


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(POLL)
