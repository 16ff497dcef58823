"""The report of a torture run: each failure with how to repeat it, and what really happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from proving.torture.history import BULK, History
from proving.torture.run import Result


def failure(
    result: Result, setting: str, prefix: int | None = None, shortest: History | None = None
) -> str:
    """
    All that is needed to examine a failure.

    :param setting: what the seed depends on (:meth:`Setting.told`).
    :param prefix: how many of its first steps fail alike, if that was looked for.
    :param shortest: the steps of these that matter.
    """
    lines = [f"seed {result.history.seed} FAILED", *(f"  {flaw}" for flaw in result.flaws)]
    lines.append(f"  with {setting}")
    told = shortest or result.history
    if prefix is not None:
        lines.append(f"  the first {prefix} of its {len(result.history.steps)} steps fail alike")
    lines.append(f"  {'the shortest part of them that fails' if shortest else 'its steps'}:")
    lines += [f"    {number:2} {json.dumps(step)}" for number, step in enumerate(told.steps)]
    lines.append("  what was done (without the keys that all have from the start):")
    lines += [f"    {act}" for act in result.acts if not any(f" {i}/" in act for i in BULK)]
    for name, log in result.logs.items():
        lines += [f"  the end of {name}'s log:", *(f"    {line}" for line in log)]
    lines.append(f"  again: make torture HISTORIES=1 SEED={result.history.seed}")
    if shortest:
        lines.append(f"  or, as a file for --replay:\n{shortest.to_json()}")
    return "\n".join(lines)


def happened(results: Iterable[Result]) -> Counter[str]:
    """How often each thing really happened, in all histories together."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    return +counts


def table(counts: Mapping[str, int]) -> Iterator[str]:
    """*counts* for people, in two columns of text."""
    for name, count in sorted(counts.items()):
        yield f"{count:8}  {name.replace('_', ' ')}"
