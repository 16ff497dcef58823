"""
Shortens the names of masters in a table that is wider than the screen: hosts often share a long
domain, and ids of minions need the room.

What is left out is the same for all masters of the table, so their names stay distinct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = list[list[str]]


@dataclass(frozen=True)
class Masters:
    """Where a table names masters: in the headings or cells of *columns*."""

    columns: Sequence[str] = ()
    names: Iterable[Any] = ()

    def shorter(self, rows: Rows) -> Iterator[Rows]:
        """
        *rows*, of which the first has the headings, with ever shorter names: without the domain
        that all share, then also without their common start. The first column, which says what a
        row is about, keeps that start.
        """
        names = sorted({str(name) for name in self.names if name})
        places = [place for place, name in enumerate(rows[0]) if name in self.columns]
        if len(names) < 2 or not places:
            return
        hosts = _without_domain(names)
        rows = _replaced(rows, dict(zip(names, hosts, strict=True)), places)
        yield rows
        ends = dict(zip(hosts, _without_start(hosts), strict=True))
        yield _replaced(rows, ends, [place for place in places if place])


def _replaced(rows: Rows, shorter: Mapping[str, str], places: Iterable[int]) -> Rows:
    """*rows* with each name in the columns at *places* replaced."""
    changed = [list(row) for row in rows]
    for row in changed:
        for place in places:
            row[place] = re.sub(r"[^\s,]+", lambda word: shorter.get(word[0], word[0]), row[place])
    return changed


def _without_domain(names: Sequence[str]) -> list[str]:
    labels = [name.split(".") for name in names]
    shared = _alike([each[:0:-1] for each in labels])  # the first label is no domain
    if labels[0][-1].isdigit():  # an address
        shared = 0
    return [".".join(each[: len(each) - shared]) for each in labels]


def _without_start(names: Sequence[str]) -> list[str]:
    words = [re.findall(r"\d+|[^\W\d_]+|.", name) for name in names]
    shared = _alike([each[:-1] for each in words])
    start = "".join(words[0][:shared])
    return ["…" + name[len(start) :] for name in names] if len(start) > 1 else list(names)


def _alike(each: Iterable[Sequence[str]]) -> int:
    """How many entries all of *each* begin with."""
    shared = 0
    for entries in zip(*each, strict=False):
        if len(set(entries)) > 1:
            break
        shared += 1
    return shared
