"""A master that answers, and one that does not; over a real socket where it matters."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import psutil
import pytest
import salt.config

from saltext_ha.minion import binding, cleartext_request, pings

pytestmark = pytest.mark.core

M1 = "10.0.0.1"


def test_ping_of_a_closed_port_is_answered_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    master = binding.SeenMaster("m1", "m1", port, frozenset({"127.0.0.1"}))
    answer = pings.ping({}, master, 60)
    assert (answer["answers"], answer["milliseconds"]) == (False, None)
    assert "refused" in answer["note"]
    unknown = binding.SeenMaster("m1", "m1", port)
    assert pings.ping({}, unknown, 60)["answers"] is None


@pytest.mark.parametrize("reply", [None, {}, "pong", {"cmd": "_auth"}])
def test_who_answers_something_else_is_no_master(
    monkeypatch: pytest.MonkeyPatch, reply: object
) -> None:
    monkeypatch.setattr(cleartext_request, "ask", lambda *arguments: reply)
    master = binding.SeenMaster(M1, M1, 4506, frozenset({M1}))
    answer = pings.ping({}, master, 1)
    assert (answer["answers"], answer["milliseconds"]) == (False, None)
    assert "not to a ping" in answer["note"]


def test_of_a_name_with_several_addresses_the_one_in_use_is_asked() -> None:
    """Behind the others there may be other masters, which work or do not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        both = binding.SeenMaster("salt", "salt", port, frozenset({"127.0.0.1", "127.0.0.2"}))
        answer = pings.ping({}, replace(both, ip="127.0.0.2"), 5)
        assert (answer["answers"], "refused" in answer["note"]) == (False, True)


def test_each_question_has_an_event_loop_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Salt 3007 makes one for a thread without, and leaves it open: three descriptors each."""
    current: list[asyncio.AbstractEventLoop] = []
    open_ones: list[int] = []

    def ask(*arguments: object) -> object:
        open_ones.append(sum(not each.is_closed() for each in current))
        return {"cmd": "ping"}

    monkeypatch.setattr(asyncio, "set_event_loop", current.append)
    monkeypatch.setattr(cleartext_request, "ask", ask)
    master = binding.SeenMaster(M1, M1, 4506, frozenset({M1}))
    for _ in range(2):
        assert pings.ping_all({}, [master], 1)[0]["answers"] is True
    assert open_ones == [1, 1]
    assert [each.is_closed() for each in current] == [True, True]


def test_a_watchdog_that_asks_for_years_keeps_no_descriptors() -> None:
    opts = {**salt.config.DEFAULT_MINION_OPTS, "__role": "minion", "id": "web1"}
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        master = binding.SeenMaster(M1, M1, port, frozenset({"127.0.0.1"}))
        counts = []
        for _ in range(3):
            assert pings.ping_all(opts, [master], 0.2)[0]["answers"] is False
            counts.append(psutil.Process().num_fds())
    assert len(set(counts[1:])) == 1
