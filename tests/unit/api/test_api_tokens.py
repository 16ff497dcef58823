"""Logins that threads make side by side."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.api.config import Endpoint, Secret
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.tokens import REFUSED_PAUSE, Refused, Tokens


def test_logins_that_are_refused_together_count_once() -> None:
    """A user database that fails for a moment must not keep a master out for five minutes."""
    together = threading.Barrier(4)

    def exchange(*_: Any, **__: Any) -> Any:
        together.wait(60)  # all have begun
        return SimpleNamespace(status=401)

    transport: Any = SimpleNamespace(exchange=exchange)
    tokens = Tokens(Endpoint("http://127.0.0.1:1", "alice", Secret("wrong")), transport)

    def login() -> None:
        with pytest.raises(Refused):
            tokens.login(Deadline(60))

    threads = [threading.Thread(target=login) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert tokens._refused is not None
    assert tokens._refused.pause == REFUSED_PAUSE
    # The next one that is tried after the pause, and refused, makes it longer.
    tokens._note_refusal(tokens._refused.password, time.monotonic() + REFUSED_PAUSE + 1)
    assert tokens._refused.pause == 2 * REFUSED_PAUSE
