"""``salt-ha watch`` on a real terminal, beside a real engine."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.engines import Place
from lab.wait import wait_for
from saltext_ha import cli
from saltext_ha.cli import watch
from saltext_ha.common.errors import HaError
from tests.engines import places, running
from tests.keys import public_key
from tests.loop import in_a_loop

pytestmark = pytest.mark.core


class Terminal:
    """What a program writes on a terminal of 80 columns and 24 lines."""

    def __init__(self, *command: str) -> None:
        ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self._ours, self._text = ours, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # nobody has the other end any more
                return
            self._text += data.decode(errors="replace")

    def screen(self) -> str:
        """What was drawn last, whole."""
        return self._text.split(watch.HOME)[-1]

    def end(self, by: int = signal.SIGINT) -> tuple[int, str]:
        """Ctrl-C; the exit status, and what is left on the usual screen."""
        os.kill(self.process.pid, by)
        status = self.process.wait(60)
        self._reader.join(60)
        os.close(self._ours)
        return status, self._text.split(watch.LEAVE)[-1]


def configured(place: Place) -> str:
    """The folder with the configuration of *place*."""
    keys = ("root_dir", "pki_dir", "sock_dir", "cachedir", "id", "user", "ha")
    config = {key: place.opts[key] for key in keys}
    (place.folder / "master").write_text(yaml.safe_dump({**config, "color": False}))
    return str(place.folder)


async def shown(terminal: Terminal, *words: str) -> None:
    def there() -> bool:
        screen = terminal.screen()
        return all(re.search(word, screen) for word in words)

    try:
        await asyncio.to_thread(wait_for, there, 120, f"the screen has {words}", poll=0.1)
    except TimeoutError as exc:
        raise TimeoutError(f"{exc}: {terminal.screen()!r}") from None


@in_a_loop
async def test_the_table_follows_the_group_until_ctrl_c(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    command = (sys.executable, "-m", "saltext_ha.cli", "-c", configured(place), "watch", "0.5")
    async with running(place):
        terminal = Terminal(*command)
        await shown(terminal, "every 0.5 s · Ctrl-C ends it", r"m1 \* +running .* 0 +0 ")
        (place.pki_dir / "minions_pre" / "web1").write_text(public_key(1))
        await shown(terminal, r"m1 \* +running .* 0 +1 ")
    # Nothing that was so before its engine ended is left on the screen as if it still were.
    await shown(terminal, "is not running")
    assert "running  " not in terminal.screen()
    status, left = await asyncio.to_thread(terminal.end)
    assert status == 2
    assert "is not running" in left


def test_who_ends_it_by_kill_has_the_terminal_back(tmp_path: Path) -> None:
    (place,) = places(tmp_path, "m1")
    terminal = Terminal(sys.executable, "-m", "saltext_ha.cli", "-c", configured(place), "watch")
    wait_for(lambda: "is not running" in terminal.screen(), 120, "it is drawn", poll=0.1)
    status, left = terminal.end(signal.SIGTERM)
    assert status == 2
    assert "is not running" in left


class Screen(io.StringIO):
    """Stops *work*, as Ctrl-C does, once *word* is drawn."""

    work: watch.Watch

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def write(self, text: str) -> int:
        if self._word in text and watch.HOME in text:
            self.work.stop()
        return super().write(text)


def watched(ask: Callable[[], dict[str, Any]], out: Screen, interval: float = 2.0) -> int:
    out.work = watch.Watch(ask, lambda each: str(each["state"]), out, interval)
    return out.work.run()


def answer(state: str, retcode: int) -> dict[str, Any]:
    return {"outputter": "ha", "state": state, "retcode": retcode}


def test_what_is_old_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hangs: what it said last was fine."""
    monkeypatch.setattr(watch, "LATE", 0.3)
    hangs, answers = threading.Event(), iter([answer("fine", 0)])

    def ask() -> dict[str, Any]:
        for each in answers:
            return each
        hangs.wait()
        return answer("fine", 0)

    out = Screen("OLD: ")
    try:
        status = watched(ask, out, 0.5)
    finally:
        hangs.set()
    assert status == 2
    left = out.getvalue().split(watch.LEAVE)[-1]
    assert left.startswith("OLD: the engine has not answered for ")
    assert left.endswith("\nfine\n")


def test_the_last_answer_is_the_exit_status() -> None:
    assert watched(lambda: answer("drift", 1), Screen("drift")) == 1


def test_before_the_first_answer_it_says_for_how_long_it_asks() -> None:
    hangs = threading.Event()
    out = Screen("asking the engine, for ")
    try:
        assert watched(lambda: {"late": hangs.wait()}, out) == 2
    finally:
        hangs.set()
    left = out.getvalue().split(watch.LEAVE)[-1]
    assert re.fullmatch(r"asking the engine, for \d+ s\n\n", left)


def test_an_error_ends_it_and_gives_the_screen_back() -> None:
    def ask() -> dict[str, Any]:
        raise HaError("no such thing")

    out = io.StringIO()
    with pytest.raises(HaError, match="no such thing"):
        watch.Watch(ask, str, out).run()
    assert out.getvalue().endswith(watch.LEAVE)


def test_the_first_line_has_the_time_of_the_answer() -> None:
    work = watch.Watch(dict, str, io.StringIO())
    work._at = 1.0
    times = [time.time() - 4]
    head = work._head(4.0)
    times.append(time.time() - 4)
    assert head.split()[0] in {time.strftime("%H:%M:%S", time.localtime(at)) for at in times}


def test_a_table_that_just_fits_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    out = Screen("row 1")
    watched(lambda: answer("\n".join(f"row {number}" for number in range(8)), 0), out)
    lines = drawn(out)
    assert (len(lines), lines[-1]) == (10, "row 7")


def test_a_long_table_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "30")
    out = Screen("row 1")
    table = "\n".join(f"row {number}" for number in range(20))
    watched(lambda: answer(table, 0), out)
    lines = drawn(out)
    assert len(lines) == 10
    assert lines[-2:] == ["row 6", "… 13 more lines; salt-ha statu"]


def drawn(out: Screen) -> list[str]:
    """The lines that were drawn last."""
    screen = out.getvalue().split(watch.HOME)[-1].split(watch.LEAVE)[0]
    return screen.replace(watch.END_OF_LINE, "").replace(watch.BELOW, "").split("\r\n")


def test_long_lines_do_not_scroll_the_head_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As notes are: each goes on in the next rows."""
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "30")
    out = Screen("note 1")
    red = f"\x1b[0;31m{'x' * 20}\x1b[0;0m"
    notes = "\n".join(f"note {number} {'x' * 53} {red}" for number in range(4))
    watched(lambda: answer(notes, 0), out)
    lines = drawn(out)
    # The head, an empty line, two notes of three rows, and the last line.
    assert [line[:6] for line in lines[2:]] == ["note 0", "note 1", "… 2 mo", ""]


def test_nothing_is_erased_behind_a_full_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor still stands on its last character there, which would go."""
    monkeypatch.setenv("COLUMNS", "30")
    out = Screen("full")
    watched(lambda: answer(f"full {'x' * 25}\nnot full", 0), out)
    screen = out.getvalue().split(watch.LEAVE)[0]
    assert f"xxx\r\nnot full{watch.END_OF_LINE}\r\n{watch.BELOW}" in screen


@pytest.mark.parametrize("text", ["0", "interval=-1", "soon", "1e9", "nan"])
def test_an_interval_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(HaError, match="is no interval; write seconds"):
        watch.interval_of(text)
    for least_and_most in ("0.5", "interval=3600"):
        watch.interval_of(least_and_most)


def test_without_a_terminal_it_names_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place,) = places(tmp_path, "m1")
    assert cli.main(["-c", configured(place), "watch"]) == 2
    assert "salt-ha status  prints it once" in capsys.readouterr().err
