"""Which sections, what is let pass, how far clocks are apart, and what is news."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.consistency import consistency_watch
from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.common.errors import HaError
from saltext_ha.config.consistency import ConsistencySettings, parse
from saltext_ha.consistency import clock, news, sections
from saltext_ha.consistency.clock import Offset
from saltext_ha.consistency.freshness import stale
from saltext_ha.consistency.news import Last, follow
from saltext_ha.consistency.result import answer, of_differences
from tests.loop import in_a_loop, until


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ("", sections.NAMES),
        (None, sections.NAMES),
        ([], sections.NAMES),
        ("keys,access", ("keys", "access")),
        ("access, keys", ("keys", "access")),
        (["roots"], ("roots",)),
        ("Master Key", ("master_key",)),
        ("master-key,", ("master_key",)),
    ],
)
def test_sections_can_be_chosen(only: Any, chosen: tuple[str, ...]) -> None:
    assert sections.select(only) == chosen


@pytest.mark.parametrize(
    ("only", "hint"),
    [
        ("acess", "did you mean 'access'"),
        ("keys,option", "did you mean 'options'"),
        (7, "takes some of"),
    ],
)
def test_a_section_that_is_none(only: Any, hint: str) -> None:
    with pytest.raises(HaError, match=hint):
        sections.select(only)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no", "takes a mapping"),
        ({"intervall": 5}, "did you mean 'interval'"),
        ({"x": 5}, "known keys"),
        ({"interval": 5}, "from 10 to 86400"),
        ({"interval": True}, "from 10 to 86400"),
        ({"ignore": "nodegroups"}, "takes a list"),
        ({"ignore": [1]}, "takes a list"),
    ],
)
def test_settings_that_are_wrong(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(value)


def test_settings() -> None:
    assert parse({}) == ConsistencySettings()
    assert parse({"interval": 0, "ignore": None}).interval == 0
    assert parse({"ignore": ["a:*"]}).ignore == ("a:*",)


@pytest.mark.parametrize(
    ("pattern", "ignored"),
    [
        ("external_auth:pam:alice", True),
        ("external_auth:pam", True),
        ("external_auth", True),
        ("access", True),
        ("access:external_auth:*:alice", True),
        ("*:alice", True),
        ("external_auth:pam:ali", False),
        ("roots:external_auth", False),
        ("options:*", False),
    ],
)
def test_what_is_ignored(pattern: str, ignored: bool) -> None:
    assert (
        ConsistencySettings(ignore=(pattern,)).ignores("access", "external_auth:pam:alice")
        is ignored
    )


@pytest.mark.parametrize(
    "path", ["publisher_acl:web[0-9]+", "publisher_acl:.*", "publisher_acl:[!a]", "nodegroups:a?[b"]
)
def test_a_path_is_ignored_as_it_is_shown(path: str) -> None:
    settings = ConsistencySettings(ignore=(path,))
    for shown in (path, f"{path}:below"):
        assert settings.ignores("access", shown)
        assert ConsistencySettings(ignore=(f"access:{path}",)).ignores("access", shown)
    assert not settings.ignores("access", "publisher_acl")


# The clock


def test_the_shortest_round_trip_knows_the_clock_best() -> None:
    found = clock.offset([(1000.0, 10.0, 14.0), (1000.5, 20.0, 20.2), (0.0, 30.0, 32.0)])
    assert found is not None
    assert found.seconds == pytest.approx(980.4)
    assert found.error == pytest.approx(0.1)
    assert clock.offset([]) is None


@pytest.mark.parametrize(
    ("offsets", "apart"),
    [
        ({"m2": Offset(4.9, 0.0)}, False),
        ({"m2": Offset(5.2, 0.1)}, True),
        ({"m2": Offset(-5.2, 0.1)}, True),
        ({"m2": Offset(9.0, 5.0)}, False),  # perhaps, but nobody knows
        ({"m2": Offset(3.0, 0.0), "m3": Offset(-3.0, 0.0)}, True),
        ({}, False),
    ],
)
def test_clocks_are_apart_only_when_that_is_certain(
    offsets: dict[str, Offset], apart: bool
) -> None:
    found = clock.compare("m1", offsets, {"m9": "gone"})
    assert bool(found) is apart
    if found:
        assert found[0]["values"].keys() == {"m1", *offsets, "m9"}
        assert found[0]["values"]["m2"] == offsets["m2"].data()


# News


def made(*paths: str, unknown: str = "", note: bool = False) -> dict[str, Any]:
    gone = {unknown: "timed out"} if unknown else {}
    severity = "note" if note else "drift"
    found = [{"path": path, "severity": severity} for path in paths]
    return answer({"access": of_differences("access", found, gone)}, ["m1", "m2"], gone)


@pytest.mark.parametrize(
    ("answers", "events"),
    [
        ([made()], [""]),
        ([made("a")], ["drift"]),
        ([made("a"), made("a"), made("a")], ["drift", "", ""]),
        ([made("a"), made("a", "b"), made("b")], ["drift", "drift", "drift"]),
        ([made("a"), made(), made()], ["drift", "consistent", ""]),
        ([made("a", note=True)], [""]),
        # Nobody knows whether it is over.
        ([made("a"), made(unknown="m2"), made("a")], ["drift", "", ""]),
        ([made("a"), made(unknown="m2"), made()], ["drift", "", "consistent"]),
        ([made("a"), made("b", unknown="m2"), made("b")], ["drift", "drift", "drift"]),
        ([made(), made(unknown="m2"), made()], ["", "", ""]),
        ([made(unknown="m2"), made("a", unknown="m2")], ["", "drift"]),
    ],
)
def test_events_are_fired_when_the_answer_changes(
    answers: list[dict[str, Any]], events: list[str]
) -> None:
    last = Last()
    fired = []
    for at, found in enumerate(answers):
        last, event = follow(last, found, float(at))
        fired.append(event)
        # A restart in between changes nothing.
        last = Last.read(json.loads(json.dumps(last.data())))
    assert fired == events


def test_what_an_event_tells() -> None:
    told = news.event(made("a", "b", unknown="m3"), "m1")
    assert told == {
        "master": "m1",
        "status": "differ",
        "masters": ["m1", "m2"],
        "unknown": {"m3": "timed out"},
        "count": 2,
        "differences": ["access:a", "access:b"],
    }


def test_what_is_remembered_for_the_status() -> None:
    last, _ = follow(Last(), made("a", "b"), 7.0)
    assert last.data()["counts"] == {"access": 2}
    assert (last.status, last.at) == ("differ", 7.0)


@pytest.mark.parametrize(
    ("age", "interval", "why"),
    [
        (2099, 600, ""),
        (2101, 600, "no check has ended since, though one is due every 600 s"),
        (-2101, 600, "no check has ended since"),  # the clock was set back
        (86399, 0, ""),
        (86401, 0, "more than a day ago"),
    ],
)
def test_an_answer_counts_for_so_long(age: float, interval: float, why: str) -> None:
    now = 1_700_000_000.0
    found = stale(now - age, now, interval, "")
    assert why in found
    assert bool(found) == bool(why)
    assert stale(0.0, now, interval, "") == ""  # there was none: that is said already
    assert stale(now, now, interval, "boom") == "the last check failed: boom"


class InTurn:
    """
    A check with these answers, in turn; then with none, for ever.

    :ivar before: called before each answer, with its number.
    """

    def __init__(self, *answers: Any) -> None:
        self._left, self._count, self._over = list(answers), len(answers), asyncio.Event()
        self.before: Callable[[int], object] = lambda number: None

    async def __call__(self) -> Any:
        self.before(self._count - len(self._left))
        if not self._left:
            self._over.set()
            await asyncio.Event().wait()
        answer = self._left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def asked_by(self, watch: ConsistencyWatch, within: float = 20) -> None:
        """Wait until *watch* has had all answers, and asks for more."""
        running = asyncio.ensure_future(watch.run(self))
        try:
            await asyncio.wait_for(self._over.wait(), within)
        finally:
            running.cancel()


@pytest.mark.parametrize(
    ("error", "why"), [(HaError("no key store"), "no key store"), (KeyError("x"), "KeyError; ")]
)
@in_a_loop
async def test_a_check_that_fails_ends_what_was_known(
    tmp_path: Path, error: Exception, why: str
) -> None:
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, 0.001)
    seen: list[str] = []
    check = InTurn(error, answer({}, {"m1"}, {}))
    check.before = lambda _: seen.append(watch.stale())
    await check.asked_by(watch)
    assert not watch.stale()
    assert seen[0] == seen[2] == ""
    assert why in seen[1]
    assert seen[1].startswith("the last check failed: ")


def served(*paths: str) -> dict[str, Any]:
    """An answer in which masters differ in what they serve, and where."""
    found = [{"path": path, "severity": "drift"} for path in paths]
    return answer({"roots": of_differences("roots", found, {})}, ["m1", "m2"], {})


@pytest.mark.parametrize(
    ("answers", "events"),
    [
        ([served("gitfs:https://x:main"), served()], []),
        ([served("gitfs:https://x:main"), served("git_pillar:https://x:main")], ["drift"]),
        ([served("gitfs:https://x:main", "file_roots:base:a"), served()], ["drift", "consistent"]),
        (
            [served("file_roots:base:a"), served("gitfs:https://x:main"), served()],
            ["drift", "consistent"],
        ),
    ],
)
@in_a_loop
async def test_a_commit_that_another_master_is_about_to_fetch_is_no_news(
    tmp_path: Path, answers: list[dict[str, Any]], events: list[str]
) -> None:
    fired: list[str] = []
    watch = ConsistencyWatch(tmp_path, "m1", lambda tag, _: fired.append(tag), 0.001)
    await InTurn(*answers).asked_by(watch)
    assert fired == events
    assert watch.last.status == answers[-1]["status"]


@pytest.mark.parametrize(
    ("before", "interval", "status"),
    [
        (served("gitfs:https://x:main", "gitfs:https://y:main"), 3600, "differ"),
        (served(), 0.01, "same"),
    ],
)
@in_a_loop
async def test_a_known_difference_is_not_waited_for_and_a_new_one_an_interval_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Any, interval: float, status: str
) -> None:
    monkeypatch.setattr(consistency_watch, "FIRST", 0.0)
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, interval, fetched=3600)
    watch.note(before)
    noted, left = watch.last.at, [served("gitfs:https://x:main")]

    async def check() -> Any:
        return left.pop() if left else served()

    running = asyncio.ensure_future(watch.run(check))
    await until(lambda: watch.last.at > noted, deadline=20)
    running.cancel()
    assert watch.last.status == status


@pytest.mark.parametrize("before", [made(), made("a"), made(unknown="m2")])
@in_a_loop
async def test_after_a_restart_what_differed_is_compared_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any]
) -> None:
    monkeypatch.setattr(consistency_watch, "SETTLED", 0.0)

    def watch() -> ConsistencyWatch:
        return ConsistencyWatch(tmp_path, "m1", lambda *_: None, 600, up=lambda: ("m1", "m2"))

    watch().note(before)
    waits = pytest.raises(asyncio.TimeoutError)
    with waits if before["status"] == "same" else contextlib.nullcontext():
        await InTurn().asked_by(watch(), 2)


@in_a_loop
async def test_who_went_while_it_was_asked_is_compared_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency_watch, "SETTLED", 0.0)
    monkeypatch.setattr(consistency_watch, "TURN", 0.01)
    there = {"m1", "m2"}
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, 600, up=lambda: tuple(there))

    def go(number: int) -> None:
        if number == 0:
            there.discard("m2")
            asyncio.get_running_loop().call_later(0.1, there.add, "m2")

    check = InTurn(made(unknown="m2"))
    check.before = go
    await check.asked_by(watch, 5)
