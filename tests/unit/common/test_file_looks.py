"""Looks at files that hang, fail, or do neither."""

from __future__ import annotations

import threading
import time

import pytest

from saltext_ha.common import file_looks
from saltext_ha.common.file_looks import Looks


def test_what_a_look_finds_or_fails_with_is_passed_on() -> None:
    look = Looks()
    assert look(lambda: 7) == 7

    def fails() -> None:
        raise FileNotFoundError(2, "No such file")

    def times_out() -> None:
        raise TimeoutError("of the file system itself")

    with pytest.raises(FileNotFoundError):
        look(fails)
    with pytest.raises(TimeoutError, match="itself"):
        look(times_out)
    assert look(lambda: 8) == 8


def test_only_the_first_caller_waits_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_looks, "HANGS_AFTER", 0.3)
    look, go = Looks(), threading.Event()
    before = set(threading.enumerate())
    try:
        with pytest.raises(TimeoutError, match="does not respond"):
            look(go.wait)
        begun = time.monotonic()
        for _ in range(50):
            with pytest.raises(TimeoutError, match="does not respond"):
                look(lambda: 7)
        assert time.monotonic() - begun < 7, "if each waits it is 15 s"
        (waiting,) = set(threading.enumerate()) - before
    finally:
        go.set()
    waiting.join(5)
    assert look(lambda: 7) == 7
