"""
The numbers of a simulation as one SVG, readable on light and on dark pages.

Above, a row for each scenario: time, messages and bytes, each on a logarithmic scale. Below, what a
master sends and receives while nothing happens, by the size of the group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from proving.harness import spaced
from proving.simulation.report import seconds, size

WIDTH, LEFT, ROW, PANEL, GAP = 1000, 300, 34, 200, 32
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.title { font-weight: 600; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.a { stroke: #0969da; fill: #0969da; } .b { stroke: #bc4c00; fill: #bc4c00; }
.c { stroke: #1a7f37; fill: #1a7f37; }
polyline { fill: none !important; stroke-width: 2; }
text.a, text.b, text.c { stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; } .grid { stroke: #3d444d; }
  .a { stroke: #58a6ff; fill: #58a6ff; } .b { stroke: #f0883e; fill: #f0883e; }
  .c { stroke: #3fb950; fill: #3fb950; }
}
"""


class Scale:
    """A logarithmic scale from *low* to *high*, drawn from *start* over *length* pixels."""

    def __init__(self, values: Sequence[float], start: float, length: float) -> None:
        present = [value for value in values if value > 0] or [1.0]
        self.low = math.floor(math.log10(min(present)))
        self.high = max(math.ceil(math.log10(max(present))), self.low + 1)
        self._start, self._length = start, length

    def at(self, value: float) -> float:
        """The pixel of *value*."""
        share = (math.log10(max(value, 10.0**self.low)) - self.low) / (self.high - self.low)
        return self._start + share * self._length

    def ticks(self) -> list[float]:
        """Powers of ten, few enough to be read."""
        step = max(1, math.ceil((self.high - self.low) / 4))
        return [10.0**power for power in range(self.low, self.high + 1, step)]


def draw(data: Mapping[str, Any]) -> str:
    """The SVG, as text."""
    about = data["about"]
    title = f"{spaced(about['keys'])} keys, {about['masters']} masters in six regions"
    parts = [_text(16, 24, title, "title")]
    height = 44.0
    if data["scenarios"]:
        height = _scenarios(parts, data["scenarios"], height)
    if data["steady"]:
        height = _steady(parts, data["steady"], height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _scenarios(parts: list[str], rows: Sequence[Mapping[str, Any]], top: float) -> float:
    times = [row[name] for row in rows for name in ("median_s", "all_worst_s")]
    panels = (
        ("time until all know", Scale(times, LEFT, PANEL), seconds),
        ("messages", Scale([row["messages"] for row in rows], LEFT + PANEL + GAP, PANEL), spaced),
        ("bytes", Scale([row["bytes"] for row in rows], LEFT + 2 * (PANEL + GAP), PANEL), size),
    )
    bottom = top + 24 + ROW * len(rows)
    for name, scale, show in panels:
        parts.append(_text(scale.at(10.0**scale.low), top + 8, name, "title"))
        for tick in scale.ticks():
            x = scale.at(tick)
            parts.append(_line(x, top + 18, x, bottom))
            # The first label leaves room for the last one of the panel before.
            anchor = "start" if tick == 10.0**scale.low else "middle"
            parts.append(_text(x, bottom + 16, show(tick), "small", anchor))
    for index, row in enumerate(rows):
        y = top + 24 + ROW * index + ROW / 2
        for line, words in enumerate(_wrapped(row["what"])):
            parts.append(_text(16, y - 2 + 14 * line, words, "small" if line else ""))
        (_, time, _), (_, messages, _), (_, volume, _) = panels
        first, last = time.at(row["median_s"]), time.at(row["all_worst_s"])
        parts.append(
            f'<line class="a" x1="{first:.1f}" y1="{y}" x2="{last:.1f}" y2="{y}" stroke-width="3"/>'
        )
        parts += [_dot(first, y, "a", 3), _dot(last, y, "a", 5)]
        parts.append(_text(last, y - 8, seconds(row["all_worst_s"]), "small", "middle"))
        for scale, value, show, kind in (
            (messages, row["messages"], spaced, "b"),
            (volume, row["bytes"], size, "c"),
        ):
            parts.append(_dot(scale.at(value), y, kind, 5))
            parts.append(_text(scale.at(value), y - 8, show(value), "small", "middle"))
    note = "small dot: the median master; large dot: the last one, in the worst repetition"
    parts.append(_text(LEFT, bottom + 34, note, "small"))
    return bottom + 56


def _steady(parts: list[str], rows: Sequence[Mapping[str, Any]], top: float) -> float:
    """Two charts: requests, and bytes a second of one master by the number of masters."""
    wide, high = 370, 200
    charts = (
        ("requests a master makes in a second", ["requests_made_per_s"], spaced),
        (
            "bytes a master sends and receives in a second",
            ["anti_entropy_bytes_per_s", "membership_bytes_per_s"],
            size,
        ),
    )
    for chart, (name, fields, show) in enumerate(charts):
        left = 70 + chart * (wide + 90)
        across = Scale([row["masters"] for row in rows], left, wide)
        up = Scale([row[field] for row in rows for field in fields], 0, high)
        parts.append(_text(left, top + 12, f"in sync: {name}", "title"))
        base = top + 28 + high
        for tick in up.ticks():
            y = base - up.at(tick)
            parts.append(_line(left, y, left + wide, y))
            label = f"{tick:g}" if show is spaced else show(tick)
            parts.append(_text(left - 6, y + 4, label, "small", "end"))
        for masters in sorted({row["masters"] for row in rows}):
            parts.append(_text(across.at(masters), base + 16, str(masters), "small", "middle"))
        parts.append(_text(left + wide / 2, base + 32, "masters", "small", "middle"))
        intervals = sorted({row["sync_interval"] for row in rows})
        for field in fields:
            for index, interval in enumerate(intervals):
                if field.startswith("membership") and index:
                    continue  # these go by the minute, whatever the interval is
                kind = "b" if field.startswith("membership") else "a"
                points = [
                    (across.at(row["masters"]), base - up.at(row[field]))
                    for row in rows
                    if row["sync_interval"] == interval
                ]
                shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                faint = 1 - 0.3 * index
                parts.append(f'<polyline class="{kind}" points="{shown}" opacity="{faint:.1f}"/>')
                words = "members" if kind == "b" else f"{interval:g} s"
                x, y = points[-1]
                parts.append(_text(x + 4, y + 4, words, f"small {kind}"))
    return top + 28 + high + 48


def _wrapped(text: str) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= 42:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _dot(x: float, y: float, kind: str, radius: int) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
