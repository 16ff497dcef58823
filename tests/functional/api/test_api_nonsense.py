"""A salt-api that lies in front of one that does not: the calls succeed, and nobody is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_ha.api import ApiPoolError, BadConfiguration, CallFailed, OutcomeUnknown, SaltApiPool
from saltext_ha.api.answer import MAX_DEPTH, Answer, shown
from tests.api_liar import (
    ANSWERS,
    BODIES,
    FORMS,
    HEAD,
    TOKENS,
    Bytes,
    Liar,
    flood,
    said,
    whole,
)
from tests.api_server import PASSWORD, Server, everything, respond
from tests.api_server import pool as usual

pytestmark = pytest.mark.core

CALLS: dict[str, Callable[[SaltApiPool], Any]] = {
    "local": lambda one: one.local("*", "test.ping", idempotent=True),
    "local_async": lambda one: one.local_async("*", "test.ping", idempotent=True),
    "runner": lambda one: one.runner("test.arg", ["x"]),
    "wheel": lambda one: one.wheel("key.list_all"),
    "minions": lambda one: one.minions(),
}
ONCE: dict[str, Callable[[SaltApiPool], Any]] = {
    "local": lambda one: one.local("*", "state.apply"),
    "local_async": lambda one: one.local_async("*", "state.apply"),
    "runner": lambda one: one.runner("state.orchestrate", ["x"]),
    "wheel": lambda one: one.wheel("key.delete", ["x"]),
}


@pytest.fixture
def liar() -> Iterator[Liar]:
    one = Liar()
    yield one
    one.close()


@pytest.fixture
def honest() -> Iterator[Server]:
    one = Server()

    def answer(handler: Any, low: Any) -> None:
        answers: dict[tuple[str, str], Any] = {
            ("local", low["fun"]): {"web": {"ret": True, "retcode": 0}},
            ("local_async", low["fun"]): {"jid": low.get("jid"), "minions": ["web"]},
            ("runner", "manage.status"): {"up": ["web"], "down": []},
        }
        usual = {"data": {"return": low["arg"], "success": True}}
        respond(handler, {"return": [answers.get((low["client"], low["fun"]), usual)]})

    one.answer = answer
    yield one
    one.close()


def pool(liar: Liar, honest: Server, deadline: float = 10) -> SaltApiPool:
    # Whoever lies stays first in line, and is asked each time.
    return usual(liar, honest, deadline=deadline, fall=10**9)


def all_succeed(liar: Liar, honest: Server, calls: Any = None, deadline: float = 3) -> None:
    for name, call in (calls or CALLS).items():
        before, begun = len(liar.asked), time.monotonic()
        with pool(liar, honest, deadline) as one:
            found = call(one)
            if name == "minions":
                assert (found.up, list(found.unasked)) == ({"web"}, ["m1"])
            elif name == "local_async":
                assert (found.master, found.minions) == ("m2", ("web",))
            assert "/login" in liar.asked[before:]
        assert time.monotonic() - begun < deadline + 10


def known(call: Callable[[], Any]) -> BaseException | None:
    """What *call* raised, which is one of ours, and holds no secret."""
    try:
        call()
    except ApiPoolError as exc:
        text = everything(exc)
        assert PASSWORD not in text
        assert "token-" not in text
        return exc
    return None


# -- the login


LOGINS: dict[str, bytes] = {
    **{f"body: {name}": whole(body) for name, body in BODIES.items()},
    **{f"token: {name}": said(token) for name, token in TOKENS.items()},
    **{f"answer: {name}": answer for name, answer in ANSWERS.items()},
}


@pytest.mark.parametrize("name", LOGINS)
def test_a_login_that_is_none(liar: Liar, honest: Server, name: str) -> None:
    """Nothing was run: all calls go elsewhere, those that may run only once, too."""
    liar.login = LOGINS[name]
    all_succeed(liar, honest, {**CALLS, "runner once": ONCE["runner"], "local once": ONCE["local"]})
    assert set(liar.asked) <= {"/", "/login"}
    with usual(liar) as alone:
        error = known(lambda: alone.runner("test.arg"))
    assert error is not None


@pytest.mark.parametrize("where", ["login", "call"])
@pytest.mark.parametrize("kind", ["head", "hints", "chunks", "body", "flood", "headers"])
def test_an_answer_without_end(liar: Liar, honest: Server, kind: str, where: str) -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    endless: dict[str, Bytes] = {
        "head": liar.drip(b"HTTP/1.1 200", b" "),
        "hints": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        "chunks": liar.drip(chunked, b"1\r\n[\r\n"),
        "body": liar.drip(HEAD + b"Content-Length: 99999999\r\n\r\n", b" "),
        "flood": flood(HEAD + b"\r\n", bytes(1 << 20)),
        "headers": liar.drip(HEAD, b"X: 1\r\n"),
    }
    setattr(liar, where, endless[kind])
    all_succeed(liar, honest, {"runner": CALLS["runner"]}, deadline=4)


def test_a_trailer_without_end(liar: Liar, honest: Server) -> None:
    ended = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    liar.call = liar.drip(ended, b"X: 1\r\n")
    all_succeed(liar, honest, {"runner": CALLS["runner"]}, deadline=4)


# -- calls


LIES: dict[str, bytes] = {
    **{f"body: {name}": whole(body) for name, body in BODIES.items()},
    **{f"answer: {name}": answer for name, answer in ANSWERS.items()},
}


@pytest.mark.parametrize("name", LIES)
def test_an_answer_that_is_none(liar: Liar, honest: Server, name: str) -> None:
    liar.call = LIES[name]
    all_succeed(liar, honest)


MOVED = (
    "answer: redirect to itself",
    "answer: redirect to nowhere",
    "answer: redirect with a bomb",
    "answer: not modified",
)


def calls(server: Server) -> list[Any]:
    """What was sent there; where minions are may be asked anybody."""
    return [low for path, _, low in server.requests if path == "/" and low[0]["fun"] != "ha.where"]


@pytest.mark.parametrize(
    "name",
    [*MOVED, "body: deep lists", "body: html", "answer: nothing", "answer: no HTTP"],
)
def test_what_may_have_run_is_not_run_again(liar: Liar, honest: Server, name: str) -> None:
    liar.call = LIES[name]
    for kind in ("runner", "local_async"):
        call = ONCE[kind]
        before = len(calls(honest))
        # Moved and the like: salt-api did nothing with it.
        sent = name in MOVED
        # What became of the others is asked for until the deadline, if they have a job id.
        with pool(liar, honest, deadline=10 if sent or kind == "runner" else 2) as one:
            error = known(lambda call=call, one=one: call(one))
        after = len(calls(honest))
        assert (error is None) == sent
        assert after - before == sent
        if not sent:
            assert isinstance(error, OutcomeUnknown)
            assert error.master == "m1"


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_of_another_function(liar: Liar, honest: Server, name: str) -> None:
    """Each is right for some client; nothing else than ours is ever raised."""
    liar.call = said(FORMS[name])
    with pool(liar, honest, deadline=1) as one:
        for call in (*CALLS.values(), *ONCE.values()):
            known(lambda call=call: call(one))
        assert one.runner("test.arg", ["x"], deadline=10) == ["x"]
        error = known(lambda: one.lookup("20250101000000000000", "m1"))
        assert error is not None or name.startswith(("data", "no", "local", "up", "success"))


def test_a_liar_is_down_and_asked_last(liar: Liar, honest: Server) -> None:
    liar.call = whole(b"[" * 200_000)
    with usual(liar, honest, spacing=0.001, rise=10**9) as one:
        for _ in range(20):
            one.runner("test.arg")
        assert one.status()["masters"][0]["healthy"] is False
        asked = len(liar.asked)
        one.runner("test.arg")
        assert len(liar.asked) == asked


# -- at random

text = st.text(max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | text
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(10**400), 1e308, "\ud800", "web"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            text
            | st.sampled_from(
                ("return", "data", "success", "token", "expire", "start", "minions", "Minions")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    value=values,
    form=st.sampled_from(["login", "token", "call", "body"]),
    data=st.binary(max_size=200),
    cut=st.integers(0, 500),
)
def test_whatever_it_answers(
    liar: Liar, honest: Server, value: Any, form: str, data: bytes, cut: int
) -> None:
    raw = whole(data)[:cut] if form == "body" else said(value)
    liar.login, liar.call = said({"token": "token-x", "start": 0, "expire": 60}), raw
    if form == "login":
        liar.login = raw
    elif form == "token":
        token = value if isinstance(value, dict) else {"expire": value}
        liar.login = said({"token": "token-x", "start": 0, "expire": 60} | token)
    with pool(liar, honest, deadline=1) as one:
        found = known(lambda: one.runner("test.arg", ["x"], deadline=10))
        # A failure that is told in proper form is one.
        assert found is None or isinstance(found, CallFailed)
        assert found is None or value["data"]["success"] is False
        for call in (CALLS["minions"], CALLS["wheel"], CALLS["local_async"], ONCE["wheel"]):
            known(lambda call=call: call(one))


# -- secrets


def test_no_secret_in_any_frame(
    liar: Liar, honest: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    lies = [BODIES[name] for name in ("deep lists", "half", "no text", "a long number", "html")]
    for body in lies:
        liar.login, liar.call = said({"token": "token-x", "start": 0, "expire": 60}), whole(body)
        with usual(liar, deadline=0.4) as one:
            for call in (*CALLS.values(), *ONCE.values()):
                assert known(lambda call=call, one=one: call(one)) is not None
        liar.login = whole(body)
        with usual(liar, deadline=0.5) as one:
            assert known(lambda one=one: one.runner("test.arg")) is not None
    assert PASSWORD not in caplog.text
    assert "token-" not in caplog.text


def test_no_secret_in_the_frames_of_a_wrong_configuration(
    liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT_API_USERNAME", "ops")
    monkeypatch.setenv("SALT_API_PASSWORD", PASSWORD)
    for config in ("{", "[1]", '[{"url": "x", "password": "' + PASSWORD + '"}]'):
        monkeypatch.setenv("SALT_MASTERS_CONFIG", config)
        assert known(SaltApiPool) is not None
    for wrong in ({"selection": "best"}, {"deadline": -1}, {"eauth": 5}, {"verify": "/not/there"}):
        assert known(lambda wrong=wrong: usual(liar, **wrong)) is not None
    entry = {"url": "nonsense", "username": "ops", "password": PASSWORD}
    entries, entry = [entry], {}

    def make() -> Any:
        return SaltApiPool([entries.pop()])

    assert known(make) is not None


def test_no_secret_in_the_frames_of_an_argument_that_is_no_json(liar: Liar) -> None:
    nothing: Any = object()
    calls: list[Callable[[SaltApiPool], Any]] = [
        lambda one: one.runner("test.arg", [nothing]),
        lambda one: one.lookup(nothing),
    ]
    refused = pytest.raises(BadConfiguration, match="object is nothing that JSON has")
    for call in calls:
        with usual(liar) as one, refused as bad:
            call(one)
        assert PASSWORD not in everything(bad.value)
        assert "token-" not in everything(bad.value)


def test_no_secret_in_the_frames_of_what_comes_from_outside(
    liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a time limit of a task queue, while the request is on its way."""

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    with usual(liar) as one:
        one._prober.close()
        monkeypatch.setattr("http.client.HTTPResponse.begin", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            one.runner("test.arg")
        monkeypatch.undo()
    assert PASSWORD not in everything(caught.value)


# -- what is said of an answer


def test_how_deep_and_how_large() -> None:
    deep = Answer(200, b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert isinstance(deep.json(), list)
    with pytest.raises(ValueError, match="nested more than"):
        Answer(200, b"[" + deep.body + b"]").json()
    with pytest.raises(ValueError, match="more than 10000000 items"):
        Answer(200, b"[" + b"," * 10_000_001).json()
    assert "secret" not in repr(Answer(200, b"secret"))


def test_what_a_master_says_is_one_line_in_a_message() -> None:
    assert shown("a\nb\x1b[31m\u202e") == "a b?[31m?"
    assert len(shown("x" * 10_000_000)) < 1100
    assert shown(10**10_000) == "int"
