"""Rows of measurements, the budgets they are held against, and the table that shows both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from proving import harness
from proving.benchmarks import rivals
from proving.benchmarks.rsync import DURABLE, Shot

RIVALS = ("rsync", DURABLE, "lsyncd", "unison", "Salt's cluster")
COLUMNS = (
    "work",
    "keys",
    "times faster",
    "times faster, durable",
    "times smaller",
    "median",
    "p99",
    "worst",
    "CPU",
    "instructions",
    "bytes",
    "memory",
    "idle CPU",
    *RIVALS,
    "rsync CPU",
    "rsync bytes",
    "budget",
    "ok",
)
WORDS = (COLUMNS.index("budget"), COLUMNS.index("ok"))


@dataclass(frozen=True)
class Budget:
    """
    The limits of a piece of work; None is no limit. Milliseconds, bytes on the wire, bytes of
    memory, and percent of one processor while nothing happens. ``worst`` is the limit for every
    sample.
    """

    median: float | None = None
    p99: float | None = None
    worst: float | None = None
    bytes: int | None = None
    memory: int | None = None
    idle: float | None = None

    def __str__(self) -> str:
        parts = [
            f"≤ {_ms(self.median)}" if self.median is not None else "",
            f"p99 ≤ {_ms(self.p99)}" if self.p99 is not None else "",
            f"worst ≤ {_ms(self.worst)}" if self.worst is not None else "",
            f"≤ {_size(self.bytes)}" if self.bytes is not None else "",
            f"≤ {_size(self.memory)}" if self.memory is not None else "",
            f"≤ {_percent(self.idle)}" if self.idle is not None else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Row:
    """
    One piece of work at one size.

    :param ms: the samples in milliseconds, None where only bytes count.
    :param cpu: milliseconds of processor time that all engines need for one sample, a mean.
    :param instructions: how many one item needs, where these are measured and not time.
    :param bytes: on the wire.
    :param rivals: the same work by other tools, by their name.
    :param memory: bytes that one engine holds.
    :param idle: percent of one processor that it uses while nothing happens.
    """

    work: str
    keys: int
    ms: Sequence[float] = ()
    bytes: int | None = None
    rivals: Mapping[str, Shot] = field(default_factory=dict)
    memory: int | None = None
    idle: float | None = None
    budget: Budget | None = None
    cpu: float | None = None
    instructions: int | None = None

    @property
    def median(self) -> float | None:
        """The median of the samples, in milliseconds."""
        return median(self.ms) if self.ms else None

    @property
    def p99(self) -> float | None:
        """The sample that 99 of 100 do not exceed; None with fewer than 20 samples."""
        if len(self.ms) < 20:
            return None
        return sorted(self.ms)[math.ceil(len(self.ms) * 0.99) - 1]

    @property
    def worst(self) -> float | None:
        """The longest of the samples, in milliseconds."""
        return max(self.ms, default=None)

    @property
    def ok(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        if self.budget is None:
            return None
        pairs = (
            (self.median, self.budget.median),
            (self.p99, self.budget.p99),
            (self.worst, self.budget.worst),
            (self.bytes, self.budget.bytes),
            (self.memory, self.budget.memory),
            (self.idle, self.budget.idle),
        )
        return all(limit is None or (value or 0) <= limit for value, limit in pairs)

    def theirs(self, name: str) -> float | None:
        """Milliseconds of the tool *name*, if it was measured."""
        shot = self.rivals.get(name)
        return shot.ms if shot else None

    def cells(self) -> list[str]:
        """The text of each column."""
        fastest = min((shot.ms for shot in self.rivals.values()), default=None)
        size = next((s.bytes for s in self.rivals.values() if s.bytes is not None), None)
        work = next((s.cpu for s in self.rivals.values() if s.cpu is not None), None)
        return [
            self.work,
            harness.spaced(self.keys),
            _ratio(fastest, self.median),
            _ratio(self.theirs(DURABLE), self.median),
            _ratio(size, self.bytes),
            _ms(self.median),
            _ms(self.p99),
            _ms(self.worst),
            _ms(self.cpu),
            "-" if self.instructions is None else harness.spaced(self.instructions),
            _size(self.bytes),
            _size(self.memory),
            _percent(self.idle),
            *(_ms(self.theirs(name)) for name in RIVALS),
            _ms(work),
            _size(size),
            str(self.budget or "-"),
            {True: "yes", False: "NO", None: "-"}[self.ok],
        ]

    def data(self) -> dict[str, Any]:
        """Plain data for ``--json``; times in milliseconds."""
        return {
            "work": self.work,
            "keys": self.keys,
            "samples_ms": [round(value, 3) for value in self.ms],
            "median_ms": self.median,
            "p99_ms": self.p99,
            "worst_ms": self.worst,
            "cpu_ms": self.cpu,
            "instructions": self.instructions,
            "bytes": self.bytes,
            "memory": self.memory,
            "idle_percent": self.idle,
            "rivals": {name: dataclasses.asdict(shot) for name, shot in self.rivals.items()},
            "budget": dataclasses.asdict(self.budget) if self.budget else None,
            "ok": self.ok,
        }


def table(rows: Sequence[Row]) -> str:
    return harness.aligned([COLUMNS, *(row.cells() for row in rows)], (0, *WORDS))


def markdown(rows: Sequence[Row]) -> str:
    """The same table in Markdown, for docs/."""
    return harness.markdown(COLUMNS, [row.cells() for row in rows])


GROWTH = ("work", "keys", "grows", *RIVALS[:-1])


def growth(rows: Sequence[Row]) -> str:
    """
    How much each piece of work grows from the fewest keys to the most, in Markdown; empty when all
    rows have the same number of keys.
    """
    by_work: dict[str, list[Row]] = {}
    for row in rows:
        if row.median:
            by_work.setdefault(row.work, []).append(row)
    lines = []
    for work, found in by_work.items():
        small, large = (pick(found, key=lambda row: row.keys) for pick in (min, max))
        if small.keys < large.keys:
            others = [_times(small.theirs(name), large.theirs(name)) for name in RIVALS[:-1]]
            keys = f"{harness.spaced(small.keys)} → {harness.spaced(large.keys)}"
            lines.append([work, keys, _times(small.median, large.median), *others])
    return harness.markdown(GROWTH, lines) if lines else ""


def _times(small: float | None, large: float | None) -> str:
    return f"× {large / small:.3g}" if small and large else "-"


def about() -> dict[str, str]:
    """What the numbers depend on."""
    return harness.machine() | rivals.versions()


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    return f"{value:.3g} ms"


def _size(value: int | None) -> str:
    if value is None:
        return "-"
    for limit, unit in ((2**20, "MB"), (2**10, "KB")):
        if value >= limit:
            return f"{value / limit:.4g} {unit}"
    return f"{value} B"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} %"


def _ratio(theirs: float | None, ours: float | None) -> str:
    """How many times better than the best of the others."""
    if not theirs or not ours:
        return "-"
    ratio = theirs / ours
    return f"{ratio:.3g}" if ratio < 1000 else harness.spaced(round(ratio))
