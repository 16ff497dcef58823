"""The pool against servers on this machine that behave as badly as servers do."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from fractions import Fraction
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.api import (
    ApiPoolError,
    BadConfiguration,
    CallFailed,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    SaltApiPool,
    Secret,
    TimedOut,
)
from saltext_ha.api import tokens as api_tokens
from saltext_ha.api.connection import ApiConnection
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.transport import KEPT, Lost, NotSent, Transport
from tests.api_server import PASSWORD, Server, everything, pool, respond
from tests.certificates import self_signed

pytestmark = pytest.mark.core


def drip(handler: BaseHTTPRequestHandler, low: Any) -> None:
    """A byte every 50 ms: no single read is ever slow."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)


def short(handler: BaseHTTPRequestHandler, low: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"return"')
    handler.close_connection = True


def nonsense(handler: BaseHTTPRequestHandler, low: Any) -> None:
    respond(handler, b"<html>It works!</html>")


def error(handler: BaseHTTPRequestHandler, low: Any) -> None:
    respond(handler, {"status": 500}, 500)


def not_acceptable(handler: BaseHTTPRequestHandler, low: Any) -> None:
    """salt-api looks at the header Accept when it has run the call."""
    respond(handler, {}, 406)


def not_running(handler: BaseHTTPRequestHandler, low: Any) -> None:
    respond(handler, b"<p>Salt Master is not available.</p>", 503)


@pytest.mark.parametrize("answer", [drip, short, nonsense, not_running, error])
def test_a_read_is_asked_for_again_elsewhere(servers: list[Server], answer: Any) -> None:
    servers[0].answer = answer
    with pool(*servers, deadline=8) as one:
        begun = time.monotonic()
        assert one.runner("test.arg", ["x"]) == ["x"]
        assert time.monotonic() - begun < 8
    assert [server.calls("test.arg") for server in servers] == [1, 1]


def test_the_log_says_which_master_answered(
    servers: list[Server], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "saltext_ha.api")
    servers[0].answer = not_running
    with pool(*servers) as one:
        assert one.runner("test.arg", ["x"]) == ["x"]
    assert "api_pool master=m2 answered=runner.test.arg" in caplog.text
    assert "master=m1 answered" not in caplog.text


@pytest.mark.parametrize("answer", [drip, short, nonsense, error, not_acceptable])
def test_what_may_have_run_is_not_run_again(servers: list[Server], answer: Any) -> None:
    servers[0].answer = answer
    # One that drips is waited for until then.
    with pool(*servers, deadline=4 if answer is drip else 10) as one:
        with pytest.raises(OutcomeUnknown, match="the call was sent to m1 and may") as caught:
            one.runner("state.orchestrate", ["deploy"])
        assert [server.calls("state.orchestrate") for server in servers] == [1, 0]
        assert caught.value.jid is None
        again = one.runner("state.orchestrate", ["deploy"], idempotent=True, deadline=8)
        assert again == ["deploy"]


def test_rest_tornado_gets_neither_a_call_nor_a_password(servers: list[Server]) -> None:
    """It is another program, whose answers mean something else."""
    first, second = servers
    first.hello = {"clients": ["local", "local_async", "runner", "runner_async"]}
    second.hello = {"clients": ["local", "runner", "wheel"], "return": "Welcome"}
    with pool(*servers) as one:
        assert one.runner("test.arg", ["x"]) == ["x"]
        assert first.requests == []
        assert second.calls("test.arg") == 1
        found = one.status()["masters"][0]["reason"]
        assert found == "it is rest_tornado; the pool needs rest_cherrypy there"
        # It was exchanged meanwhile.
        first.hello = second.hello
        second.answer = not_running
        assert one.runner("test.arg", ["y"]) == ["y"]
        assert first.calls("test.arg") == 1


def limited(handler: BaseHTTPRequestHandler, low: Any) -> None:
    respond(handler, b"<h1>429 Too Many Requests</h1>", 429)


@pytest.mark.parametrize("answer", [not_running, limited])
def test_what_was_surely_not_run_goes_elsewhere(servers: list[Server], answer: Any) -> None:
    servers[0].answer = answer
    with pool(*servers) as one:
        assert one.wheel("key.delete", ["web"]) == ["web"]
    assert [server.calls("key.delete") for server in servers] == [1, 1]


def test_one_deadline_for_all(servers: list[Server]) -> None:
    for server in servers:
        server.answer = drip
    with pool(*servers) as one:
        begun = time.monotonic()
        with pytest.raises(TimedOut, match=r"m1: no complete answer.*m2: no complete"):
            one.runner("test.arg", deadline=3)
        assert time.monotonic() - begun < 20


def test_salt_api_waits_for_a_runner_as_long_as_the_call(servers: list[Server]) -> None:
    """Otherwise it would answer 504 after its rest_timeout (300 s), or wait so long for nobody."""

    def last() -> dict[str, Any]:
        low: dict[str, Any] = [sent for path, _, sent in servers[0].requests if path == "/"][-1][0]
        return low

    def waited() -> float:
        return float(last()["timeout"])

    with pool(*servers) as one:
        one.runner("state.orchestrate", ["deploy"], deadline=1800)
        assert 1790 < waited() < 1810
        one.runner("test.arg", ["x"], deadline=20)
        assert 5 < waited() < 20, "a read has half of it for each master"
        one.runner("test.arg", deadline=2)
        assert waited() > 2, "and never less than the call"
        one.wheel("key.list_all")
        assert "timeout" not in last()


def test_the_deadline_holds_between_head_and_body(servers: list[Server]) -> None:
    over = threading.Event()

    def stall(handler: BaseHTTPRequestHandler, low: Any) -> None:
        over.wait(5.4)
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        over.wait(20)
        handler.close_connection = True

    servers[0].answer = stall
    with pool(servers[0]) as one:
        begun = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            one.runner("state.orchestrate", deadline=6)
        assert time.monotonic() - begun < 11, "anew for the body it is 11.4 s"
        over.set()


def test_a_failed_function_is_told_and_not_repeated(servers: list[Server]) -> None:
    def fail(handler: BaseHTTPRequestHandler, low: Any) -> None:
        respond(handler, {"return": [{"data": {"return": "Exception: x", "success": False}}]})

    servers[0].answer = fail
    with pool(*servers) as one:
        with pytest.raises(CallFailed, match=r"m1: runner jobs.active failed: Exception: x"):
            one.runner("jobs.active")
        assert servers[1].calls("jobs.active") == 0


def test_login_again_before_the_token_ends(servers: list[Server]) -> None:
    servers[0].life = 0.2
    with pool(servers[0]) as one:
        deadline = Deadline(10)
        while servers[0].logins < 4 and not deadline.passed:
            one.runner("test.arg")
        assert servers[0].logins >= 4
        used = [token for path, token, _ in servers[0].requests if path == "/"]
        assert len(set(used)) >= 2


def test_one_login_for_fifty_threads(servers: list[Server]) -> None:
    with pool(servers[0]) as one:
        threads = [threading.Thread(target=one.runner, args=("test.arg",)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert servers[0].calls("test.arg") == 50
    assert servers[0].logins <= 2, "one for the threads, and one for the probe"


def test_a_call_that_is_refused_with_a_new_token_too(servers: list[Server]) -> None:
    def refuse(handler: BaseHTTPRequestHandler, low: Any) -> None:
        respond(handler, {}, 401)

    for server in servers:
        server.answer = refuse
    refused = r"m1: ops may not run runner test\.arg; m2: ops"
    with pool(*servers) as one, pytest.raises(NotAuthorised, match=refused):
        one.runner("test.arg")


def test_a_call_without_time_says_nothing_about_a_master(servers: list[Server]) -> None:
    """Nobody asked it: the master before took all the time, or the caller gave none."""
    with pool(servers[0], fall=1, spacing=0) as one:
        one.runner("test.arg")
        with pytest.raises(NoMasterAvailable, match="no time left"):
            one.wheel("key.accept", ["web"], deadline=0)
        assert one.status()["status"] == "online"


def test_calls_that_are_refused_leave_no_tokens_on_the_master(servers: list[Server]) -> None:
    """A token is good for twelve hours, and an application may ask every second."""

    def refuse(handler: BaseHTTPRequestHandler, low: Any) -> None:
        if low["fun"] == "test.arg":
            servers[0].echo(handler, low)
        else:
            respond(handler, {}, 401, Cache_Control="private")  # salt-api knows the token

    def tokens(path: str) -> int:
        return sum(asked == path for asked, _, _ in list(servers[0].requests))

    servers[0].answer = refuse
    with pool(servers[0]) as one:
        one._prober.close()  # a late probe has a token of its own for a moment
        one.runner("test.arg")
        for _ in range(10):
            with pytest.raises(NotAuthorised):
                one.wheel("key.accept", ["web"])
            assert one.runner("test.arg", ["x"]) == ["x"]
        assert tokens("/login") - tokens("/logout") == 1
        assert tokens("/login") <= 3, "the first, perhaps its probe's, and one to make sure"
        # What salt-api does not know any more, as after its restart, is replaced each time.
        servers[0].answer = lambda handler, low: respond(handler, {}, 401)
        before = tokens("/login")
        with pytest.raises(NotAuthorised):
            one.wheel("key.accept", ["web"])
        assert tokens("/login") == before + 1


def test_a_client_that_is_not_enabled(servers: list[Server]) -> None:
    def disabled(handler: BaseHTTPRequestHandler, low: Any) -> None:
        text = f"<p>Client disabled: &#x27;{low['client']}&#x27;. Add to &#x27;netapi_enable_…</p>"
        respond(handler, text.encode(), 400)

    servers[0].answer = disabled
    with pool(*servers) as one:
        assert one.runner("state.orchestrate", ["deploy"]) == ["deploy"], "nothing was run on m1"
        servers[1].answer = disabled
        with pytest.raises(NotAuthorised, match=r"m1: netapi_enable_clients .* has no runner; m2:"):
            one.runner("state.orchestrate", ["deploy"])
        assert one.status()["masters"][0]["healthy"] is not False


def test_a_redirect_is_not_followed_with_the_token(servers: list[Server]) -> None:
    def away(handler: BaseHTTPRequestHandler, low: Any) -> None:
        handler.send_response(307)
        handler.send_header("Location", servers[1].url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    servers[0].answer = away
    with pool(servers[0]) as one, pytest.raises(NoMasterAvailable, match="HTTP 307"):
        one.runner("test.arg")
    assert not servers[1].requests


def test_no_secret_in_any_error(servers: list[Server], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for answer in (short, nonsense, error, not_running):
        servers[0].answer = answer
        with pool(servers[0], deadline=1) as one:
            with pytest.raises(Exception, match="m1") as caught:
                one.runner("state.orchestrate")
            text = f"{everything(caught.value)} {one!r} {one.status()} {vars(one)}"
            assert PASSWORD not in text
            assert "token-" not in text
    assert PASSWORD not in caplog.text
    assert "token-" not in caplog.text


def quick_answer(handler: BaseHTTPRequestHandler, low: Any) -> None:
    if low["client"] == "local_async":
        respond(handler, {"return": [{"jid": low["jid"], "minions": ["a"]}]})
    elif low["client"] == "local":
        respond(handler, {"return": [{"a": {"ret": low["arg"]}}]})
    elif low["fun"] == "jobs.list_job":
        job = {"Function": "x", "Minions": ["a"], "Result": {"a": {"return": 1}}}
        respond(handler, {"return": [job]})
    else:
        respond(handler, {"return": [{"data": {"return": low["arg"], "success": True}}]})


@pytest.mark.parametrize("deadline", [float("inf"), float("nan"), "60", 10**400])
def test_a_deadline_that_is_no_number_of_seconds(servers: list[Server], deadline: Any) -> None:
    servers[0].answer = quick_answer
    with pool(servers[0]) as one:
        job = one.local_async("a", "test.x")
        calls: list[Callable[..., Any]] = [
            partial(one.local, "a", "test.x"),
            partial(one.runner, "state.orchestrate"),
            partial(one.wheel, "key.delete"),
            partial(one.wait, job),
            partial(one.lookup, job.jid),
            one.minions,
        ]
        for call in calls:
            with pytest.raises(BadConfiguration, match=r"deadline: .*; takes a finite number"):
                call(deadline=deadline)
        assert one.status()["masters"][0]["reason"] in ("call", "login"), "no fault of the master"
    assert not servers[0].calls("state.orchestrate")


def test_a_deadline_of_years(servers: list[Server]) -> None:
    """A socket takes at most 24 days, a lock some more."""
    servers[0].answer = quick_answer
    with pool(servers[0], probe_interval=1e10, probe_timeout=1e10, deadline=1e12) as one:
        assert one.runner("state.orchestrate", ["x"]) == ["x"]
        assert one.wait(one.local_async("a", "test.x"), deadline=1e9) == {"a": 1}
        assert one._prober._thread is not None
        assert one._prober._thread.is_alive()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arg": "uptime"}, r"arg: is str; takes a list"),
        ({"arg": b"uptime"}, r"arg: is bytes; takes a list"),
        ({"arg": {"cmd": "uptime"}}, r"arg: is dict; takes a list"),
        ({"arg": None}, r"arg: is NoneType; takes a list"),
        ({"arg": [datetime.now()]}, r"arg: .*datetime is nothing that JSON has"),
        ({"arg": [b"x"]}, r"arg: .*bytes is nothing"),
        ({"kwarg": {"a": {1}}}, r"kwarg: .*set is nothing"),
        ({"kwarg": {(1, 2): 1}}, r"kwarg: .*keys must be"),
        ({"kwarg": "x"}, r"kwarg: is str; takes a mapping"),
        ({"fun": None}, r"fun: is NoneType; takes"),
        ({"tgt": None}, r"tgt: is NoneType; takes"),
        ({"tgt": b"a"}, r"tgt: is bytes; takes"),
        ({"tgt_type": ["glob"]}, r"tgt_type: is list; takes text"),
    ],
)
def test_arguments_that_cannot_be_sent(
    servers: list[Server], arguments: dict[str, Any], message: str
) -> None:
    given = {"tgt": "a", "fun": "cmd.run", **arguments}
    with pool(*servers) as one:
        calls: list[Callable[..., Any]] = [one.local, one.local_async]
        if not {"tgt", "tgt_type"} & arguments.keys():
            calls += [partial(_without_target, one.runner), partial(_without_target, one.wheel)]
        for call in calls:
            with pytest.raises(BadConfiguration, match=message):
                call(**given)
    assert not [low for path, _, low in servers[0].requests if path == "/"]


def _without_target(call: Callable[..., Any], tgt: str, **arguments: Any) -> Any:
    return call(**arguments)


def test_arguments_as_older_callers_give_them(servers: list[Server]) -> None:
    servers[0].answer = quick_answer
    with pool(servers[0]) as one:
        assert one.local("a", "test.arg", "") == {"a": []}
        assert one.local({"a"}, "test.arg", (1, None)) == {"a": [1, None]}  # type: ignore[arg-type]
        assert one.runner("test.arg", iter([float(1)])) == [1.0]  # type: ignore[arg-type]
        assert one.local("a", "test.arg", deadline=Fraction(5)) == {"a": []}  # type: ignore[arg-type]
        with pytest.raises(NoMasterAvailable):
            one.runner("test.arg", deadline=0)


def test_a_jid_that_json_does_not_have(servers: list[Server]) -> None:
    with pool(servers[0]) as one:
        with pytest.raises(BadConfiguration, match="set is nothing that JSON has"):
            one.lookup({1})  # type: ignore[arg-type]
        with pytest.raises(BadConfiguration, match="takes one of m1"):
            one.lookup("1", ["m1"])  # type: ignore[arg-type]


def test_a_refused_password_that_is_not_utf8(
    servers: list[Server], caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handler: BaseHTTPRequestHandler, low: Any) -> None:
        respond(handler, {}, 401)

    servers[0].login = refuse
    with pool(servers[0], password="gr\udcfcn-hunter2") as one:
        for _ in range(3):
            with pytest.raises(NotAuthorised, match="login of ops") as caught:
                one.runner("jobs.active")
            assert "hunter2" not in everything(caught.value)
    assert "hunter2" not in caplog.text
    assert "Traceback" not in caplog.text


def test_a_refused_password_is_tried_less_and_less_often(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an account that was locked would stay so for ever."""
    passed = 0.0
    tried: list[float] = []

    def refuse(handler: BaseHTTPRequestHandler, low: Any) -> None:
        tried.append(passed)
        respond(handler, {}, 401)

    servers[0].login = refuse
    with pool(servers[0]) as one:
        one._prober.close()
        clock = time.monotonic
        monkeypatch.setattr(api_tokens, "time", SimpleNamespace(monotonic=lambda: clock() + passed))
        tried.clear()
        while passed < 7200:
            with pytest.raises(NotAuthorised, match="login of ops"):
                one.runner("jobs.active")
            passed += 30
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[-1] == 300
    assert pauses == sorted(pauses)


# -- certain or not


def test_nobody_there() -> None:
    with pytest.raises(NotSent, match="refused the connection"):
        Transport("http://127.0.0.1:1").exchange("GET", "/", Deadline(5))


def test_tls_that_never_comes_to_be(servers: list[Server]) -> None:
    """Connected, but no byte of the request was sent: as certain as a refused connection."""
    plain = Transport(servers[0].url.replace("http:", "https:"))
    with pytest.raises(NotSent, match=r"does not speak TLS: is it http:.*SALT_API_SCHEME=http"):
        plain.exchange("POST", "/", Deadline(5), [])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = Transport(f"https://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(NotSent):
            hung.exchange("POST", "/", Deadline(0.3), [])


def test_the_deadline_holds_between_name_and_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    really = socket.getaddrinfo

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(5.4)
        return really(*args, **more)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = Transport(f"https://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        begun = time.monotonic()
        with pytest.raises(NotSent, match="no answer"):
            hung.exchange("POST", "/", Deadline(6.0), [])
    assert time.monotonic() - begun < 11, "anew for the handshake it is 11.4 s"


@pytest.fixture
def holes() -> Iterator[list[tuple[str, int]]]:
    """Four addresses that drop what comes, as a firewall does: their queues are full."""
    with contextlib.ExitStack() as opened:
        port, found = 0, list[tuple[str, int]]()
        for last in (1, 2, 3, 4):
            listener = opened.enter_context(socket.socket())
            listener.bind((f"127.0.0.{last}", port))
            listener.listen(0)
            port = listener.getsockname()[1]
            found.append(listener.getsockname())
            for _ in range(4):
                waiting = opened.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
        yield found


def named(monkeypatch: pytest.MonkeyPatch, addresses: list[tuple[str, int]]) -> Transport:
    """A salt-api whose name has *addresses*, in this order."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    return Transport(f"http://many.example:{addresses[0][1]}")


def test_the_deadline_holds_for_all_addresses_of_a_name(
    holes: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    with pytest.raises(NotSent, match="no answer"):
        named(monkeypatch, holes).exchange("GET", "/", Deadline(3))
    assert time.monotonic() - begun < 10, "anew for each address it is 12 s"
    monkeypatch.setattr("saltext_ha.api.connection.CONNECT_LIMIT", 3.0)
    begun = time.monotonic()
    with pytest.raises(NotSent, match="no answer"):
        named(monkeypatch, holes).exchange("GET", "/", Deadline(60))
    assert time.monotonic() - begun < 10, "anew for each address it is 12 s"


def test_the_next_address_of_a_name_is_tried_in_time(
    servers: list[Server], holes: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(servers[0].url.rpartition(":")[2])
    refusing = ("127.0.0.9", port)
    transport = named(monkeypatch, [refusing, *holes[:2], ("127.0.0.1", port)])
    assert transport.exchange("GET", "/", Deadline(4)).status == 200
    with pytest.raises(NotSent, match="refused the connection"):
        named(monkeypatch, [holes[0], refusing]).exchange("GET", "/", Deadline(3))


def test_more_connections_than_are_kept_are_closed(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Watched(ApiConnection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr("saltext_ha.api.transport.CONNECTIONS", 0)
    monkeypatch.setattr("saltext_ha.api.transport.ApiConnection", Watched)
    Transport(servers[0].url).exchange("POST", "/", Deadline(5), [{"fun": "x", "arg": []}])
    assert len(closed) == 1


def test_connections_of_many_threads_do_not_stay_when_one_goes_on(servers: list[Server]) -> None:
    """salt-api has closed its end of them."""
    transport, together = Transport(servers[0].url), threading.Barrier(3)

    def meet(handler: BaseHTTPRequestHandler, low: Any) -> None:
        together.wait(60)
        servers[0].echo(handler, low)

    servers[0].answer = meet
    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(transport.exchange, "POST", "/", Deadline(60), [{"fun": "x", "arg": []}])
    others = [connection for connection, _ in list(transport._idle)[:2]]
    for place, connection in enumerate(others):
        transport._idle[place] = connection, time.monotonic() - KEPT
    transport.exchange("GET", "/", Deadline(60))
    assert [connection.sock for connection in others] == [None, None]
    assert len(transport._idle) == 1


def test_sent_to_one_that_hangs_or_is_gone(servers: list[Server]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = Transport(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Lost, match=r"no answer within [12]\.\d s") as caught:
            transport.exchange("POST", "/", Deadline(2), [])
        assert caught.value.slow


def test_a_ca_file_that_is_none_or_gone(tmp_path: Path, servers: list[Server]) -> None:
    file = tmp_path / "ca"
    file.write_text("no certificate")
    transport = Transport(servers[0].url.replace("http:", "https:"), str(file))
    with pytest.raises(NotSent):
        transport.exchange("POST", "/", Deadline(5), [])
    file.unlink()
    with pytest.raises(NotSent, match="the CA file of verify cannot be read"):
        transport.exchange("POST", "/", Deadline(5), [])


@pytest.mark.parametrize(
    ("address", "days", "trusted", "said"),
    [
        ("127.0.0.1", -9, True, "its certificate has expired"),
        ("127.0.0.1", 9, True, "its certificate is not valid yet: is a clock wrong?"),
        ("127.0.0.2", 0, True, "its certificate is for another host"),
        ("127.0.0.1", 0, False, "its certificate is not trusted; give verify=PATH of its CA"),
    ],
)
def test_why_a_certificate_is_refused(
    tmp_path: Path, address: str, days: int, trusted: bool, said: str
) -> None:
    crt, key = self_signed(tmp_path, address, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:

        def shake() -> None:
            connection, _ = server.accept()
            with contextlib.suppress(OSError), connection:
                context.wrap_socket(connection, server_side=True).close()

        shaken = threads.submit(shake)
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NotSent) as caught:
            Transport(url, str(crt) if trusted else True).exchange("GET", "/", Deadline(5))
        assert str(caught.value) == said
        shaken.result(10)


def test_http_to_a_salt_api_that_speaks_tls_is_told(
    tmp_path: Path, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    crt, key = self_signed(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(crt, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def shake() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with contextlib.suppress(OSError), connection:
                        context.wrap_socket(connection, server_side=True)

        threading.Thread(target=shake, daemon=True).start()
        wrong = SimpleNamespace(url=f"http://127.0.0.1:{server.getsockname()[1]}")
        with pool(wrong) as one, pytest.raises(NoMasterAvailable, match="write https://"):
            one.runner("test.arg")
        server.shutdown(socket.SHUT_RDWR)
    # One that took a login before speaks HTTP. A probe would log in again.
    monkeypatch.setattr("saltext_ha.api.prober.Prober.start", lambda prober: None)
    with pool(servers[0]) as one:
        one.runner("test.arg")
        one._masters["m1"]._tokens._token = None  # it has ended
        servers[0].login = hang_up
        with pytest.raises(NoMasterAvailable) as caught:
            one.runner("test.arg")
        assert "https" not in str(caught.value)


def hang_up(handler: BaseHTTPRequestHandler, low: Any) -> None:
    handler.close_connection = True


def test_connections_are_used_again(servers: list[Server]) -> None:
    transport, peers = Transport(servers[0].url), set()

    def remember(handler: BaseHTTPRequestHandler, low: Any) -> None:
        peers.add(handler.client_address)
        servers[0].echo(handler, low)

    servers[0].answer = remember
    for _ in range(5):
        transport.exchange("POST", "/", Deadline(5), [{"fun": "x", "arg": []}])
    assert len(peers) == 1


def test_connections_are_used_again_where_there_is_no_poll(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, and under eventlet."""
    monkeypatch.delattr("select.poll")
    transport = Transport(servers[0].url)
    for _ in range(2):
        assert transport.exchange("GET", "/", Deadline(5)).status == 200


def test_a_connection_that_salt_api_is_about_to_close_is_not_used(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes one that was idle for ten seconds, and what is sent just then is lost."""
    monkeypatch.setattr("saltext_ha.api.transport.KEPT", 0.0, raising=False)
    seen = set()

    def closing(handler: BaseHTTPRequestHandler, low: Any) -> None:
        if handler.client_address in seen:
            handler.close_connection = True
            return
        seen.add(handler.client_address)
        servers[0].echo(handler, low)

    servers[0].answer = closing
    with pool(servers[0]) as one:
        for word in ("a", "b", "c"):
            assert one.wheel("test.arg", [word]) == [word]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_pool_is_of_no_use_after_a_fork(servers: list[Server]) -> None:
    """Two processes on one connection would read each other's answers."""

    def child(pipe: int, one: SaltApiPool) -> None:
        try:
            for use in (lambda: one.runner("test.arg", ["child"]), one.status):
                try:
                    said = repr(use())
                except ApiPoolError as exc:
                    said = str(exc)
                os.write(pipe, said.encode() + b"\n")
            one.close()
        finally:
            os._exit(0)

    with pool(servers[0]) as one:
        one.runner("test.arg")
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            child(writing, one)
        os.close(writing)
        with open(reading, encoding="utf-8") as told:
            said = told.read().splitlines()
        os.waitpid(pid, 0)
        assert len(said) == 2
        assert all("before fork()" in line for line in said), said
        assert one.runner("test.arg", ["parent"]) == ["parent"]
        token = one._masters["m1"]._tokens.current
        assert token
        ended = [shown for path, shown, _ in servers[0].requests if path == "/logout"]
        assert token.secret.read() not in ended, "the child has logged the parent out"
    assert servers[0].calls("test.arg") == 2


def test_an_answer_that_breaks_off_is_lost_whatever_it_says(servers: list[Server]) -> None:
    def most(handler: BaseHTTPRequestHandler, low: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"return": [{"data": {"return": 1, "success": true}}]}')
        handler.close_connection = True

    servers[0].answer = most
    with pytest.raises(Lost, match="broke off") as caught:
        Transport(servers[0].url).exchange("POST", "/", Deadline(5), [{"fun": "x"}])
    assert not caught.value.finished
    assert not caught.value.slow


def test_nothing_is_kept_and_nothing_taken_from_elsewhere(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cookie is as good as a token, a proxy reads along, and .netrc is for other programs."""
    target, proxy = servers[:2]
    host = target.url.removeprefix("http://").partition(":")[0]
    (tmp_path / "netrc").write_text(f"machine {host} login root password of-somebody-else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    seen: list[dict[str, str]] = []

    def remember(handler: BaseHTTPRequestHandler, low: Any) -> None:
        seen.append(dict(handler.headers))
        handler.send_response(200)
        handler.send_header("Set-Cookie", "session_id=secret; Path=/")
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"{}")

    target.answer = remember
    transport = Transport(target.url)
    for _ in range(2):
        transport.exchange("POST", "/", Deadline(5), [{"fun": "x", "arg": []}], Secret("t"))
    assert len(seen) == 2
    assert not proxy.requests
    for headers in seen:
        assert headers["X-Auth-Token"] == "t"
        assert not {"Cookie", "Authorization"} & headers.keys()


def test_tokens_of_probes_are_given_back(servers: list[Server]) -> None:
    """Each would stay on the master for twelve hours."""
    with pool(servers[0], probe_interval=0.2) as one:
        one.runner("test.arg")
        current = one._masters["m1"]._tokens.current
        deadline = Deadline(10)

        def given_back() -> list[str | None]:
            return [token for path, token, _ in list(servers[0].requests) if path == "/logout"]

        while len(given_back()) < 2 and not deadline.passed:
            threading.Event().wait(0.02)
        assert current is not None
        assert len(given_back()) >= 2
        assert current.secret.read() not in given_back(), "that one is in use"
        assert one._masters["m1"]._tokens.current == current
    assert given_back()[-1] == current.secret.read(), "the pool logs out when it ends"


def test_a_pool_that_nobody_closed_probes_no_longer(servers: list[Server]) -> None:
    """As one that is made for a single call: each would log in every ten seconds, for ever."""
    before = set(threading.enumerate())
    one = pool(*servers, probe_interval=0.1)
    one.runner("test.arg")
    new = set(threading.enumerate()) - before
    (prober,) = (thread for thread in new if thread.name == "salt-api-pool")
    del one
    prober.join(60)
    assert not prober.is_alive()
