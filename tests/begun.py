"""The threads that a test begins; other tests of its process may have left some that go on."""

from __future__ import annotations

import threading

import pytest


def threads_begun(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Those that this thread begins from now on, and those that they begin."""
    me, start = threading.current_thread(), threading.Thread.start
    begun: list[threading.Thread] = []

    def noted(thread: threading.Thread) -> None:
        if threading.current_thread() in (me, *begun):
            begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return begun
