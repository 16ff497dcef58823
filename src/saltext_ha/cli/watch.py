"""
``salt-ha watch``: the state of the group, redrawn until Ctrl-C.

The screen never shows an old state as new: while the engine does not answer, the first line says
since when.
"""

from __future__ import annotations

import queue
import re
import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

from saltext_ha.commands.engine_client import Answer
from saltext_ha.common.errors import HaError

SHORTEST, USUAL, LONGEST = 0.5, 2.0, 3600.0
TICK = 0.5  # seconds after which the first line is drawn anew
LATE = 3.0  # seconds beyond the interval after which what is shown counts as old
OLD = 2  # exit code when there is no answer, or only an old one

# As terminals have had them since the VT100; the second screen keeps what stood there before.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def interval_of(text: str) -> float:
    """
    Seconds between two questions.

    :param text: as somebody typed it, ``2`` or ``interval=2``.
    :raises HaError: it is no interval; says what it takes.
    """
    try:
        seconds = float(text.removeprefix("interval="))
    except ValueError:
        seconds = -1.0
    if not SHORTEST <= seconds <= LONGEST:
        raise HaError(
            f'watch: "{text}" is no interval; write seconds, from {SHORTEST} to {LONGEST:.0f}'
        )
    return seconds


class Watch:
    """
    Asks and draws.

    :param ask: answers as ``ha.status`` does; may block for long, and runs in a thread.
    :param render: an answer as the text of a table.
    :param width: how many cells of the terminal a text takes.
    """

    def __init__(
        self,
        ask: Callable[[], Answer],
        render: Callable[[Answer], str],
        out: TextIO,
        interval: float = USUAL,
        width: Callable[[str], int] = len,
    ) -> None:
        self._ask, self._render, self._out, self._interval = ask, render, out, interval
        self._width = width
        self._heard: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._table, self._at, self._retcode = "", 0.0, OLD
        self._over = False

    def stop(self) -> None:
        """End :meth:`run` soon; may be called by the handler of a signal."""
        self._over = True

    def run(self) -> int:
        """
        Draw until :meth:`stop`; then leave the last table on the usual screen.

        :return: the exit code of the last answer; 2 if that is old.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        began = time.monotonic()
        self._out.write(ENTER)
        try:
            while not self._over:
                self._take()
                self._draw(self._head(time.monotonic() - (self._at or began)))
        finally:
            self._out.write(LEAVE)
            self._out.flush()
        age = time.monotonic() - (self._at or began)
        print(self._head(age), self._table, sep="\n", file=self._out, flush=True)
        return OLD if self._is_late(age) else self._retcode

    def _listen(self) -> None:
        while True:
            try:
                self._heard.put(self._ask())
            except Exception as exc:
                self._heard.put(exc)
                return
            time.sleep(self._interval)

    def _take(self) -> None:
        """:raises Exception: the error that ended the asking."""
        try:
            answer = self._heard.get(timeout=TICK)
        except queue.Empty:
            return
        if isinstance(answer, BaseException):
            raise answer
        self._table, self._retcode = self._render(answer), int(answer["retcode"])
        self._at = time.monotonic()

    def _is_late(self, age: float) -> bool:
        return not self._at or age > self._interval + LATE

    def _head(self, age: float) -> str:
        """The first line: when this was so, and whether it still is."""
        if not self._at:
            return f"asking the engine, for {age:.0f} s"
        if self._is_late(age):
            return f"OLD: the engine has not answered for {age:.0f} s; this is what it said then"
        at = time.strftime("%H:%M:%S", time.localtime(time.time() - age))
        return f"{at} · every {self._interval:g} s · Ctrl-C ends it"

    def _draw(self, head: str) -> None:
        size = shutil.get_terminal_size()
        lines = [head[: size.columns], "", *self._table.splitlines()]
        # A longer line goes on in the next row; one row too many, and the head scrolls away.
        cells = [self._width(_COLOUR.sub("", line)) for line in lines]
        rows = [max(1, -(-each // size.columns)) for each in cells]
        if sum(rows) > size.lines:
            kept = len(lines)
            while sum(rows[:kept]) > size.lines - 1:
                kept -= 1
            more = f"… {len(lines) - kept} more lines; salt-ha status has all"[: size.columns]
            lines, rows = [*lines[:kept], more], [*rows[:kept], 1]
            cells = [*cells[:kept], len(more)]
        # Lines are not erased before they are drawn, which would flicker, but after. Not after a
        # full row: that would erase its last character.
        ends = ["" if each and each % size.columns == 0 else END_OF_LINE for each in cells]
        text = "\r\n".join(line + end for line, end in zip(lines, ends, strict=True))
        below = f"\r\n{BELOW}" if sum(rows) < size.lines else ""
        self._out.write(f"{HOME}{text}{below}")
        self._out.flush()
