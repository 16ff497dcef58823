"""
Writes the tables of docs/consistency.md from the data that the check itself uses.

.. code-block:: bash

    python -m saltext_ha.consistency.document docs/consistency.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from saltext_ha.consistency import access, clock, master_key, sections
from saltext_ha.consistency.options import TABLE, Level

_BLOCK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def updated(page: str) -> str:
    """*page* with every block between ``<!-- NAME -->`` and ``<!-- end -->`` replaced."""
    return _BLOCK.sub(lambda found: f"{found[1]}{_BLOCKS[found[2]]()}\n{found[3]}", page)


def _sections() -> str:
    questions = {sections.KEYS: sections.KEYS_QUESTION, clock.NAME: clock.QUESTION}
    questions.update({name: part.question for name, part in sections.OF_MASTERS.items()})
    rows = [f"| `{name}` | {questions[name]} |" for name in sections.NAMES]
    return "\n".join(["| section | answers |", "|---|---|", *rows])


def _level(level: Level) -> Callable[[], str]:
    def block() -> str:
        topics = [topic for topic in TABLE if topic.level is level]
        rows = [f"| {t.name} | {_options(t.options)} | {t.why} |" for t in topics]
        return "\n".join(
            [
                # Long: folded, by topic.
                f"<details><summary>{', '.join(t.name for t in topics)}</summary>",
                *("", "| | options | because |", "|---|---|---|", *rows, "", "</details>"),
            ]
        )

    return block


def _options(options: tuple[str, ...]) -> str:
    return ", ".join(f"`{option}`" for option in options)


_BLOCKS: dict[str, Callable[[], str]] = {
    "sections": _sections,
    "master_key": lambda: _options(tuple(rule.option for rule in master_key.CONFIG)),
    "access": lambda: _options(tuple(access.RULES)),
    "own": lambda: _options(access.OWN_API),
    **{level.name.lower(): _level(level) for level in Level},
}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
