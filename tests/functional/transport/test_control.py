"""The control socket: both ends of it over a real unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.wait import wait_for
from saltext_ha.commands import engine_client
from saltext_ha.common.errors import EngineBrokeOff, EngineUnavailable, HaError
from saltext_ha.transport import control_client
from saltext_ha.transport import control_server as engine_side
from saltext_ha.transport.connection import Limits
from saltext_ha.transport.control_server import LIMITS, PORTION, ControlServer, _encoded

pytestmark = pytest.mark.core


async def _echo(payload: dict[str, Any]) -> dict[str, Any]:
    return {"got": payload}


async def _refuse(payload: dict[str, Any]) -> dict[str, Any]:
    raise HaError("there is no minion 'büro'; see salt-run ha.keys")


async def _fail(payload: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("a password that must not be shown")


async def _unsendable(payload: dict[str, Any]) -> dict[str, Any]:
    return {"value": object()}


COMMANDS = {
    "echo": _echo,
    "refuse": _refuse,
    "fail": _fail,
    "unsendable": _unsendable,
}


class Engine:
    """A control server on an event loop of its own; its command ``hang`` lasts until the end."""

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        self.path = path
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self._hanging = asyncio.Event()
        self.server = ControlServer(path, {**COMMANDS, "hang": self._hang}, limits)
        self.do(self.server.start())

    async def _hang(self, payload: dict[str, Any]) -> dict[str, Any]:
        await self._hanging.wait()
        return {}

    def go_on(self) -> None:
        """From now on ``hang`` ends at once."""
        self.loop.call_soon_threadsafe(self._hanging.set)

    def do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def stop(self) -> None:
        self.go_on()
        self.do(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


@pytest.fixture
def path() -> Iterator[Path]:
    # A socket's path may have some 100 bytes only; tmp_path can be longer.
    with tempfile.TemporaryDirectory(prefix="ha") as folder:
        yield Path(folder) / "ha_control.ipc"


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    engine = Engine(path)
    yield engine
    engine.stop()


def raw(path: Path, data: bytes) -> bytes:
    """What is answered to *data*, up to the end of the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect(str(path))
        sock.sendall(data)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    return answer


def post(path: Path, body: bytes, method: bytes = b"POST") -> bytes:
    head = b"%s /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return raw(path, head % (method, len(body)) + body)


def test_a_command_is_carried_out(engine: Engine) -> None:
    payload = {"ids": ["büro-7"], "test": True, "none": None, "number": 1.5}
    assert control_client.request(engine.path, "echo", payload) == {"got": payload}
    assert control_client.request(engine.path, "echo") == {"got": {}}


@pytest.mark.parametrize("place", [lambda text: text, lambda text: [{"deep": text}]])
def test_bytes_that_are_no_utf8_are_refused_in_words(engine: Engine, place: Any) -> None:
    """From a terminal in Latin-1; the engine failed on them, with a traceback in its log."""
    typed = os.fsdecode("müller".encode("latin-1"))
    with pytest.raises(HaError, match=r"not in UTF-8, near .*ller"):
        control_client.request(engine.path, "echo", {"glob": place(typed)})


def test_a_large_request_and_answer_pass(engine: Engine) -> None:
    payload = {"ids": [f"minion{number}" for number in range(20_000)]}
    assert control_client.request(engine.path, "echo", payload) == {"got": payload}


def test_a_long_answer_is_encoded_in_portions_with_other_work_in_between() -> None:
    rows = [{"id": f"büro{number}"} for number in range(10 * PORTION + 1)]
    by_id = {row["id"]: number for number, row in enumerate(rows)}
    answer = {"rows": rows, "by id": by_id, "some": rows[:2], "none": [], "retcode": 0}

    async def encoded() -> tuple[str, int]:
        encoding = asyncio.ensure_future(_encoded(answer))
        turns = 0
        while not encoding.done():
            await asyncio.sleep(0)
            turns += 1
        return encoding.result(), turns

    text, turns = asyncio.run(encoded())
    assert json.loads(text) == answer
    assert turns > 20


def test_the_socket_is_for_its_owner_only(engine: Engine) -> None:
    mode = engine.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_what_the_engine_refuses_is_said_in_its_words(engine: Engine) -> None:
    with pytest.raises(HaError, match=r"^there is no minion 'büro'; see salt-run ha\.keys$"):
        control_client.request(engine.path, "refuse")


@pytest.mark.parametrize("command", ["fail", "unsendable"])
def test_a_failure_inside_is_not_shown_but_pointed_to(engine: Engine, command: str) -> None:
    with pytest.raises(HaError, match="log has the traceback") as caught:
        control_client.request(engine.path, command)
    assert "password" not in str(caught.value)
    assert control_client.request(engine.path, "echo") == {"got": {}}


def test_an_unknown_command_is_named(engine: Engine) -> None:
    with pytest.raises(HaError, match="no command '/ehco'"):
        control_client.request(engine.path, "ehco")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff\xfe", b"null"])
def test_a_malformed_request_is_refused(engine: Engine, body: bytes) -> None:
    answer = post(engine.path, body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"malformed request" in answer


def test_only_post_does_anything(engine: Engine) -> None:
    assert post(engine.path, b"", b"GET").startswith(b"HTTP/1.1 404 ")


def test_what_is_no_http_does_not_stop_the_engine(engine: Engine) -> None:
    raw(engine.path, b"\x00\x01 no http\r\n\r\n")
    assert control_client.request(engine.path, "echo") == {"got": {}}


def test_without_an_engine_it_says_what_to_look_at(path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"engines: \[ha: \{\}\]"):
        control_client.request(path, "echo")


def test_a_socket_that_a_killed_engine_left_is_no_engine_and_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))
    with pytest.raises(EngineUnavailable, match="not running") as raised:
        control_client.request(path, "echo")
    assert raised.type is EngineUnavailable, "nobody got it"
    engine = Engine(path)
    assert control_client.request(path, "echo") == {"got": {}}
    engine.stop()
    assert not path.exists()


def test_an_engine_that_hangs_is_given_up_on(engine: Engine) -> None:
    with pytest.raises(EngineBrokeOff, match="timed out"):
        control_client.request(engine.path, "hang", timeout=0.2)
    assert control_client.request(engine.path, "echo") == {"got": {}}


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>"])
def test_an_engine_that_answers_nonsense_is_unavailable(path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(EngineBrokeOff, match="does not answer"):
            control_client.request(path, "echo", timeout=60)
        thread.join(60)


def test_an_engine_that_is_connected_to_by_many_is_waited_for(path: Path) -> None:
    """When its queue is full, connecting to a unix socket fails at once, unless it may block."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(control_client.request(path, "echo", timeout=60))
        except EngineUnavailable as exc:
            answers.append(exc)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with connected(path):
            asking = threading.Thread(target=ask)
            asking.start()
            asking.join(0.3)
            listener.accept()[0].close()
            if not answers:
                connection, _ = listener.accept()
                said = b""
                # It is sent in two parts.
                while not said.endswith(b"{}") and (part := connection.recv(65536)):
                    said += part
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                connection.close()
            asking.join(60)
    assert answers == [{}]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere/x.ipc", r"nowhere/x\.ipc: control socket cannot be made: .*No such file"),
        ("x" * 108, r"cannot be made: .*too long \(107 bytes at most\): set sock_dir to a shorter"),
    ],
)
def test_a_place_where_no_socket_can_be_made_is_named(path: Path, place: str, said: str) -> None:
    async def start() -> None:
        server = ControlServer(path.parent / place, COMMANDS)
        try:
            await server.start()
        finally:
            await server.stop()

    with pytest.raises(HaError, match=said):
        asyncio.run(start())


# -- who is slow, says nothing, or says too much


def connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(path))
    sock.settimeout(60)
    return sock


def echoes(path: Path) -> None:
    """It answers; where the limit is short, a caller that the machine holds up is cut off, too."""

    def once() -> bool:
        return control_client.request(path, "echo") == {"got": {}}

    wait_for(once, 60, "it answers")


def is_over(sock: socket.socket) -> bool:
    """Whether the engine hung up, or does so before long."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /echo HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_who_never_comes_to_the_end_is_cut_off(path: Path, begun: bytes) -> None:
    engine = Engine(path, Limits(header=0.2))
    with connected(path) as sock:
        with contextlib.suppress(BrokenPipeError):  # it was cut off before that
            sock.sendall(begun)
        assert is_over(sock)
    late = engine.server.refused
    wait_for(lambda: late["no request in time"] == 1, 60, "it is counted")
    echoes(path)
    engine.stop()


def test_many_who_say_nothing_keep_nobody_out(path: Path) -> None:
    engine = Engine(path, Limits(header=30, max_anonymous=8, max_handshakes=8, backlog=8))
    crowd = [connected(path) for _ in range(60)]
    assert control_client.request(path, "echo") == {"got": {}}
    assert sum(is_over(sock) for sock in crowd[:50]) == 50
    assert engine.server.refused["too many connections"] >= 50
    for sock in crowd:
        sock.close()
    engine.stop()


def test_a_flood_of_connections_keeps_no_runner_out(engine: Engine) -> None:
    """
    Others may come while it sends its command, but not so many that it would be the oldest one:
    how many they are must not depend on which thread the machine holds up.
    """
    over, allowed = threading.Event(), threading.Semaphore(10 * LIMITS.max_anonymous)
    fewer = LIMITS.max_anonymous - 2 * LIMITS.backlog

    def flood() -> None:
        crowd: list[socket.socket] = []
        while not over.is_set():
            if not allowed.acquire(timeout=0.1):
                continue
            crowd.append(connected(engine.path))
            while len(crowd) > 400:
                crowd.pop(0).close()
        for sock in crowd:
            sock.close()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        wait_for(lambda: "too many connections" in engine.server.refused, 60, "it is a flood")
        for _ in range(40):
            while allowed.acquire(blocking=False):
                pass
            allowed.release(fewer)
            assert control_client.request(engine.path, "echo") == {"got": {}}
    finally:
        over.set()
        flooding.join(60)


def test_a_command_that_is_carried_out_gives_way_to_nobody(path: Path) -> None:
    engine = Engine(path, Limits(max_anonymous=8, max_handshakes=8, backlog=8))
    with connected(path) as waiting:
        waiting.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: engine.server._working == 1, 60, "it is carried out")
        crowd = [connected(path) for _ in range(60)]
        engine.go_on()
        assert waiting.recv(65536).startswith(b"HTTP/1.1 200 ")
    for sock in crowd:
        sock.close()
    engine.stop()


def test_more_commands_at_a_time_than_a_master_needs_are_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_side, "MAX_COMMANDS", 1)
    with connected(engine.path) as waiting:
        waiting.sendall(b"POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        wait_for(lambda: engine.server._working == 1, 60, "it is carried out")
        with pytest.raises(HaError, match="1 commands are being carried out"):
            control_client.request(engine.path, "echo")
        engine.go_on()
        assert waiting.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert control_client.request(engine.path, "echo") == {"got": {}}


def test_a_request_that_is_too_large_is_refused_in_words(engine: Engine) -> None:
    with pytest.raises(HaError, match="at most 1 MB"):
        control_client.request(engine.path, "echo", {"ids": ["x" * 100] * 40_000})
    assert control_client.request(engine.path, "echo") == {"got": {}}


# -- whatever is sent is answered, or hung up on

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=15,
)
bodies = st.binary(max_size=200) | plain.map(lambda value: json.dumps(value).encode())


def test_any_body_is_carried_out_or_refused(engine: Engine) -> None:
    @settings(max_examples=200)
    @given(bodies)
    def check(body: bytes) -> None:
        status, _, answer = post(engine.path, body).partition(b"\r\n\r\n")
        told = json.loads(answer)
        if status.startswith(b"HTTP/1.1 200 "):
            assert repr(told["got"]) == repr(json.loads(body or b"{}"))
        else:
            assert status.startswith(b"HTTP/1.1 400 ")
            assert told["error"].startswith("malformed request: ")

    check()


def test_any_bytes_leave_the_socket_answering(path: Path) -> None:
    engine = Engine(path, Limits(header=0.05))
    line = b"POST /echo HTTP/1.1\r\n"
    proper = st.sampled_from([b"Host: x\r\n", b"Content-Length: ", b"2\r\n", b"\r\n", b"{}"])
    parts = st.lists(proper | st.binary(max_size=20), max_size=8)
    seen = set()

    @settings(max_examples=100)
    @given(st.sampled_from([line, line + b"Host: x\r\n", b""]), parts)
    def check(first: bytes, parts: list[bytes]) -> None:
        with connected(path) as sock:
            answer = b""
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                sock.sendall(first + b"".join(parts) + b"\r\n\r\n")
                answer = sock.recv(65536)
        assert not answer or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 "))
        seen.add(answer[9:12])

    check()
    assert {b"200", b"400"} <= seen
    assert b"500" not in seen
    echoes(path)
    engine.stop()


def asked(path: Path, command: str, work: Any = 0) -> dict[str, Any]:
    """What a runner gets."""
    settings: Any = SimpleNamespace(control_socket=path, peer_timeout=5.0)
    return engine_client.engine(settings, command, {}, work)


@pytest.mark.parametrize("work", [-100, float("nan"), float("inf"), 1e20, "soon", None])
def test_the_engine_says_what_is_wrong_with_a_time(engine: Engine, work: Any) -> None:
    assert asked(engine.path, "echo", work) == {"got": {}}


@pytest.mark.parametrize("numbers", [[700, 200], []])
def test_while_keys_are_written_how_many_are_left_is_told(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    numbers: list[int],
) -> None:
    monkeypatch.setattr(control_client, "FIRST", 0.1)
    monkeypatch.setattr(control_client, "AGAIN", 0.2)
    left = list(numbers)

    async def keys_left(payload: dict[str, Any]) -> dict[str, Any]:
        number = left.pop(0) if left else 0
        if not left:
            engine.go_on()
        return {"keys": number}

    if numbers:  # otherwise like an engine of an older release
        monkeypatch.setitem(COMMANDS, "left", keys_left)
    engine = Engine(path)
    if not numbers:  # it is asked for them all the same
        threading.Timer(1.0, engine.go_on).start()
    try:
        assert asked(path, "hang") == {}
    finally:
        engine.stop()
    told = capsys.readouterr().err.splitlines()
    assert told == [f"still to be written here: {number} keys …" for number in numbers]
