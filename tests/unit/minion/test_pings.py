"""A master that answers, and one that does not; over a real socket where it matters."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest
import salt.config

from saltext_ha.common.version import salt_release
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


WEBSOCKET = pytest.mark.skipif(salt_release() < (3007,), reason="Salt 3006 has no websockets")


@pytest.mark.parametrize("transport", ["zeromq", "tcp", pytest.param("ws", marks=WEBSOCKET)])
def test_a_watchdog_that_asks_for_years_keeps_no_descriptors(transport: str) -> None:
    usual = {**salt.config.DEFAULT_MINION_OPTS, "__role": "minion", "id": "web1"}
    opts = {**usual, "transport": transport}
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        master = binding.SeenMaster(M1, M1, port, frozenset({"127.0.0.1"}))
        counts = []
        for _ in range(3):
            assert pings.ping_all(opts, [master], 0.2)[0]["answers"] is False
            counts.append(psutil.Process().num_fds())
    assert len(set(counts[1:])) == 1


def welcome(server: socket.socket) -> None:
    """Open a websocket for the next caller, and say nothing on it until it hangs up."""
    with server.accept()[0] as caller:
        key = caller.recv(4096).partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        accepted = hashlib.sha1(
            key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False
        )
        caller.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(accepted.digest()) + b"\r\n\r\n"
        )
        while caller.recv(4096):
            pass


@WEBSOCKET
def test_a_master_whose_workers_hang_behind_a_websocket() -> None:
    opts = {**salt.config.DEFAULT_MINION_OPTS, "__role": "minion", "id": "web1", "transport": "ws"}
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as beside:
        address, port = server.getsockname()

        def serve() -> None:
            server.accept()[0].close()  # whether it can be reached
            welcome(server)

        over = beside.submit(serve)
        master = binding.SeenMaster("m1", "m1", port, frozenset({address}))
        answer = pings.ping(opts, master, 0.5)
        assert (answer["answers"], answer["note"]) == (False, "timed out")
        over.result(10)
