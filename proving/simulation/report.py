"""The numbers of a simulation as tables, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proving import harness

HEAD = (
    "what happens",
    "a master knows: median",
    "p99",
    "all: median",
    "worst",
    "messages",
    "bytes",
)
STEADY = (
    "masters",
    "sync_interval",
    "requests made /s",
    "anti-entropy /s",
    "membership /s",
)


def table(data: Mapping[str, Any]) -> str:
    """The tables, aligned for a terminal."""
    return "\n\n".join(harness.aligned(rows) for rows in _tables(data))


def markdown(data: Mapping[str, Any]) -> str:
    """The same for docs/simulation.md."""
    tables = (harness.markdown(head, rows) for head, *rows in _tables(data))
    return "\n".join(tables).rstrip("\n")


def seconds(value: float) -> str:
    """A time, for people."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min"


def size(value: float) -> str:
    """Bytes for people."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g} B"


def _tables(data: Mapping[str, Any]) -> list[Sequence[Sequence[str]]]:
    scenarios = [
        [
            row["what"],
            *(seconds(row[name]) for name in ("median_s", "p99_s", "all_median_s", "all_worst_s")),
            harness.spaced(row["messages"]),
            size(row["bytes"]),
        ]
        for row in data["scenarios"]
    ]
    steady = [
        [
            str(row["masters"]),
            f"{row['sync_interval']:g} s",
            f"{row['requests_made_per_s']:.3g}",
            size(row["anti_entropy_bytes_per_s"]),
            size(row["membership_bytes_per_s"]),
        ]
        for row in data["steady"]
    ]
    return [[head, *rows] for head, rows in ((HEAD, scenarios), (STEADY, steady)) if rows]
