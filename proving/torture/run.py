"""One history from beginning to end, and its result."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proving.torture import checker
from proving.torture.faults import disks
from proving.torture.history import History
from proving.torture.member import Member
from proving.torture.nursery import Nursery
from proving.torture.play import Player
from proving.torture.world import Violation, World

TAIL = 15
INVARIANT = re.compile(r"[IL]\d(?:/I\d)*\b")
DROPPED = re.compile(r"ha tombstones dropped: keys=(\d+)")


@dataclass
class Result:
    """
    ``flaws`` is empty when all invariants hold; ``acts`` are the ledger's lines, ``logs`` the last
    lines of the engines' logs, both for people.
    """

    history: History
    flaws: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    acts: list[str] = field(default_factory=list)
    logs: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Setting:
    """
    What all histories of one run share.

    :param keep: a folder that is left as it is after a history that failed.
    """

    nurseries: Sequence[Nursery]
    mounting: bool = False
    mutant: str = ""
    folder: Path | None = None
    keep: Path | None = None

    def told(self) -> str:
        """What a seed depends on, for people."""
        salts = ", ".join(f"{nursery.salt} ({nursery.interpreter})" for nursery in self.nurseries)
        mutant = f"; without the guard {self.mutant}" if self.mutant else ""
        return f"Salt {salts}; {disks(self.mounting)}{mutant}"


def broken(flaws: Iterable[str]) -> set[str]:
    """The invariants that *flaws* begin with; none if torture itself, or an engine, failed."""
    found = (INVARIANT.match(flaw) for flaw in flaws)
    return {number for match in found if match for number in match[0].split("/")}


def alike(flaws: Sequence[str], others: Sequence[str]) -> bool:
    """Whether both break a common invariant; or neither breaks one, and both have other flaws."""
    ours, theirs = broken(flaws), broken(others)
    return bool(ours & theirs if ours or theirs else flaws and others)


def run(history: History, setting: Setting) -> Result:
    """Act *history* out, heal, and check."""
    result = Result(history)
    begun = time.monotonic()
    # A short name: unix sockets are below it, and their paths have at most 108 bytes.
    root = Path(tempfile.mkdtemp(prefix="t-", dir=setting.folder))
    world: World | None = None
    try:
        world = World(
            history, root, setting.nurseries, mutant=setting.mutant, mounting=setting.mounting
        )
        player = Player(world, history)
        for number, step in enumerate(history.steps):
            player.play(step, number)
        player.finish()
        result.flaws = player.once.check() + checker.check(world, history.seed)
    except Violation as exc:
        result.flaws = [str(exc)]
    except Exception:
        result.flaws = [f"torture itself failed: {traceback.format_exc()}"]
    finally:
        if world is not None:
            result.counts = world.counts
            result.counts["tombstones dropped"] = sum(map(_dropped, world.members.values()))
            result.acts = [str(act) for act in world.ledger.acts]
            if result.flaws:
                for name, member in world.members.items():
                    if member.log.exists():
                        lines = member.log.read_text(errors="replace").splitlines()
                        result.logs[name] = lines[-TAIL:]
                if setting.keep:
                    shutil.copytree(
                        root, setting.keep / str(history.seed), symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("*.sock", "*.ipc", "balloon"),
                    )  # fmt: skip
            world.close()
        shutil.rmtree(root, ignore_errors=True)
    result.seconds = time.monotonic() - begun
    return result


def _dropped(member: Member) -> int:
    """How many tombstones this master saw to being dropped."""
    log = member.log.read_text(errors="replace") if member.log.exists() else ""
    return sum(int(found[1]) for found in DROPPED.finditer(log))
