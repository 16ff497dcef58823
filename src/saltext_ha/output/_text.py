"""
Lays out text for a terminal: display width, alignment, numbers, durations, colour.

Not an outputter: Salt's loader skips files that start with an underscore.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.output._names import Masters

Data = Mapping[str, Any]
"""An answer of the engine or of a minion, or a mapping in it."""

NARROWEST = 12  # a column is not shrunk below this many cells
WIDEST = 256  # cells of a column where the screen has no edge; longer than any minion id
GAP = "  "
MARK = " *"  # after the name of this master, or of the leader
NO_MASTERS = Masters()
LONGEST_REASON = 200
LONGEST_NOTE = 400
LISTED = 50  # entries of a list; all of them are in the JSON
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_STYLES = {
    **dict.fromkeys(("ok", "running", "accepted", "same", "active", "done"), "GREEN"),
    **dict.fromkeys(("degraded", "differ", "pending", "differs"), "YELLOW"),
    **dict.fromkeys(("unknown", "error", "rejected", "denied", "conflict", "down"), "LIGHT_RED"),
    **dict.fromkeys(("failed", "unfinished"), "LIGHT_RED"),
}


@dataclass(frozen=True)
class Screen:
    """Where text goes: its width in cells, and Salt's colours (empty texts without colour)."""

    width: int = 80
    colors: Mapping[str, Any] = field(default_factory=dict)
    edge: bool = True
    """Whether tables must fit it. In a pipe or a file they cut no id: grep has to find it."""

    def paint(self, text: str, word: str | None = None) -> str:
        """*text* in the colour of *word* (default: *text* itself), if there is one."""
        key = (word if word is not None else text).strip().lower()
        color = str(self.colors.get(_STYLES.get(key, ""), ""))
        return f"{color}{text}{self.colors.get('ENDC', '')}" if color else text


def clean(value: Any) -> str:
    """
    One line of harmless text: text from a minion or a peer must not control the terminal, break a
    table or change the direction of writing.
    """
    text = " ".join(str(value).split())
    if text.isascii() and text.isprintable():  # most are; thousands of keys are shown sooner
        return text
    return "".join("?" if unicodedata.category(char) in HIDDEN else char for char in text)


def display_width(text: str) -> int:
    """How many terminal cells *text* takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """*text* in at most *width* cells, with ``…`` where something was left out."""
    if display_width(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _cells(char)
        if used > width - 1:
            break
        kept += char
    return kept + "…"


def pad(text: str, width: int, right: bool = False) -> str:
    """*text* padded with spaces to *width* cells, on the left if *right* aligned."""
    fill = " " * (width - display_width(text))
    return fill + text if right else text + fill


def number(value: int) -> str:
    """``10412`` as ``10 412``."""
    return f"{value:,}".replace(",", " ")


def number_or_unknown(value: int | None) -> str:
    """:func:`number`, or ``?`` for None."""
    return "?" if value is None else number(value)


def count(amount: int, word: str) -> str:
    """``1 key``, ``3 keys``."""
    return f"{number(amount)} {word if amount == 1 else word + 's'}"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``1 s``, ``4 m``, ``3 h``, ``12 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def fingerprint(value: Any, parts: int = 5) -> str:
    """The first *parts* bytes of a fingerprint: ``3a:9f:12:44:0b:…``; the whole is in the JSON."""
    text = clean(value)
    pieces = text.split(":")
    return ":".join([*pieces[:parts], "…"]) if len(pieces) > parts + 1 else text


def distinct(values: Iterable[Any]) -> list[str]:
    """
    Texts with shortened fingerprints, but never so short that two different ones look the same: the
    first bytes of a fingerprint can be matched by trying keys.
    """
    texts = [clean(value) for value in values]
    parts = 5
    while True:
        short = [" ".join(fingerprint(word, parts) for word in text.split()) for text in texts]
        if len(set(short)) == len(set(texts)):
            return short
        parts += 5


def not_asked(data: Data, screen: Screen) -> list[str]:
    """The masters missing from an answer, and why: its part ``unknown``."""
    return [
        f"{screen.paint(clean(name), 'unknown')} could not be asked: "
        f"{shorten(clean(why), LONGEST_REASON)}"
        for name, why in sorted((data.get("unknown") or {}).items())
    ]


def table(
    screen: Screen,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    masters: Masters = NO_MASTERS,
) -> list[str]:
    """
    Lines of an aligned table; each cell is made :func:`clean`. Columns named in *right* are
    right-aligned. If the table is wider than the screen, *masters* get shorter names; then its
    widest column is shortened first: no column below :data:`NARROWEST`, and columns in *whole*
    never. On a screen without an edge those wider than :data:`WIDEST` are shortened to that.
    """
    cells = _as_narrow_as_needed(screen, columns, rows, masters)
    widths = _widths(cells)
    elastic = [place for place, name in enumerate(columns) if name not in whole]
    if not screen.edge:
        for place in elastic:
            widths[place] = min(widths[place], WIDEST)
        elastic = []
    while _total(widths) > screen.width and elastic:
        widest = max(elastic, key=lambda place: widths[place])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    shown = [
        [pad(text, width, name in right) for text in _cut(column, width)]
        for name, column, width in zip(columns, zip(*cells, strict=True), widths, strict=True)
    ]
    lines = []
    for place, padded in enumerate(map(list, zip(*shown, strict=True))):
        padded[-1] = padded[-1].rstrip()
        painted = [screen.paint(cell) for cell in padded] if place else padded
        lines.append(GAP.join(painted).rstrip())
    return lines


def fits(
    screen: Screen,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    masters: Masters = NO_MASTERS,
) -> bool:
    """Whether :func:`table` would shorten nothing but the names of *masters*."""
    if not screen.edge:
        return True
    return _total(_widths(_as_narrow_as_needed(screen, columns, rows, masters))) <= screen.width


def _as_narrow_as_needed(
    screen: Screen, columns: Sequence[str], rows: Sequence[Sequence[Any]], masters: Masters
) -> list[list[str]]:
    """The cells, headings first, with names of *masters* as short as the screen needs them."""
    cells = [list(map(clean, row)) for row in (columns, *rows)]
    shorter = masters.shorter(cells) if screen.edge else iter(())
    while _total(_widths(cells)) > screen.width and (found := next(shorter, None)):
        cells = found
    return cells


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, column)) for column in zip(*cells, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cut(column: Sequence[str], width: int) -> list[str]:
    """The cells of a column in at most *width* cells; marks stay."""
    if max(map(display_width, column)) <= width:
        return list(column)
    room = width - len(MARK) if any(text.endswith(MARK) for text in column) else width
    cut = excerpts([text.removesuffix(MARK) for text in column], room, fill=True)
    return [
        short + MARK if text.endswith(MARK) else short
        for text, short in zip(column, cut, strict=True)
    ]


def inline(value: Any) -> str:
    """Any plain value on one line, in YAML's form for one line."""
    if isinstance(value, Mapping):
        if value.get("absent") is True:
            return "absent"
        if "unknown" in value and len(value) == 1:
            return "unknown"
        if "secret" in value and len(value) == 1:
            return f"secret {clean(value['secret'])}"
        return "{" + ", ".join(f"{clean(k)}: {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else clean(value) or '""'


def excerpts(texts: Sequence[str], width: int, fill: bool = False) -> list[str]:
    """
    Each text in at most *width* cells. Texts that would look the same when cut at the end are cut
    in front instead, so that the difference is visible.

    :param fill: cut no more in front than is needed, so that these are as wide as they may be.
    """
    cut = [shorten(text, width) for text in texts]
    alike: dict[str, set[str]] = {}
    for short, text in zip(cut, texts, strict=True):
        alike.setdefault(short, set()).add(text)
    starts = dict.fromkeys(alike, 0)
    for short, same in alike.items():
        if len(same) > 1:
            starts[short] = _begin_alike(same) - width // 4
            if fill:
                starts[short] = min(starts[short], max(map(display_width, same)) - width + 1)
    return [
        shorten("…" + text[starts[short] :], width) if starts[short] > 0 else short
        for short, text in zip(cut, texts, strict=True)
    ]


def _begin_alike(texts: set[str]) -> int:
    """How many characters all of *texts* begin with."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((place for place, (one, other) in pairs if one != other), len(first))


def with_notes(
    screen: Screen,
    columns: list[str],
    rows: Sequence[Sequence[Any]],
    entries: Sequence[Data],
    right: Sequence[str] = (),
    masters: Masters = NO_MASTERS,
) -> list[str]:
    """A table with a last column of notes, or with the notes below it if they do not fit."""
    notes = [clean(entry.get("note") or "") for entry in entries]
    if not any(notes):
        return table(screen, columns, rows, right, masters=masters)
    beside = [[*row, note] for row, note in zip(rows, notes, strict=True)]
    unbounded = Screen(width=sys.maxsize)
    widest = max(map(display_width, table(unbounded, [*columns, "Note"], beside, right)))
    if widest <= screen.width:
        return table(screen, [*columns, "Note"], beside, right)
    lines = table(screen, columns, rows, right, masters=masters)
    return lines + [
        f"  {clean(entry.get('name') or entry.get('id'))}: {shorten(note, LONGEST_NOTE)}"
        for entry, note in zip(entries, notes, strict=True)
        if note
    ]


def left_out(amount: int, word: str = "") -> list[str]:
    """A line about *amount* entries that are not shown, if there are any; *word*: one of them."""
    said = count(amount, word) if word else number(amount)
    return [f"… {said} more (--out=json has all)"] if amount > 0 else []


def id_list(ids: Sequence[Any], most: int, screen: Screen, total: int | None = None) -> str:
    """
    *ids* in one line: the first *most*, and how many more there are. In a pipe or a file all of
    them: grep has to find each.

    :param total: how many there are, if not all of them are in *ids*.
    """
    shown = [clean(each) for each in (ids[:most] if screen.edge else ids)]
    rest = (len(ids) if total is None else max(total, len(ids))) - len(shown)
    return ", ".join(shown) + (f" and {number(rest)} more" if rest else "")


def yes_no(value: Any, unknown: str = "-") -> str:
    """``yes`` or ``no``; *unknown* for anything but True and False."""
    return "yes" if value is True else "no" if value is False else unknown


def on_master(state: Any) -> str:
    """What a master shows of a key: its *state*; ``-`` if there is none, ``?`` if it is unknown."""
    if state is None:
        return "-"
    return "?" if state == "unknown" else str(state)


def listed(entries: Iterable[str]) -> list[str]:
    """Entries below a table, indented, the first :data:`LISTED` of them."""
    lines = [f"  {entry}" for entry in entries]
    return [*lines[:LISTED], *(f"  {line}" for line in left_out(len(lines) - LISTED))]


def notes(data: Data) -> list[str]:
    """The notes of an answer, each on its line."""
    return [shorten(clean(note), LONGEST_NOTE) for note in data.get("notes") or []]


def seen(entry: Data) -> str:
    """How long ago a master was seen."""
    seconds = entry.get("seen")
    if seconds is None:
        return "-" if entry.get("self") else "never"
    return duration(seconds)
