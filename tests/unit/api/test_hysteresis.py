"""When a master is down, when it is up again, and who is asked first."""

from __future__ import annotations

import inspect
import itertools
from types import SimpleNamespace
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import saltext_ha.api
from saltext_ha.api import NoMasterAvailable, Policy, SaltApiPool
from saltext_ha.api.calls import publication, summary
from saltext_ha.api.jobs import new_jid, read_status
from saltext_ha.api.master import MasterApi
from saltext_ha.api.minions import union
from saltext_ha.api.reads import is_read
from saltext_ha.api.selection import Selector, Standing, ranked
from saltext_ha.common.hysteresis import Health, Rules, after
from saltext_ha.runners import ha as runner

pytestmark = pytest.mark.core

RULES = Rules(fall=2, rise=3, spacing=1.0)


def play(signals: str, step: float = 10.0, health: Health | None = None) -> str:
    """What is believed after each of the signals ``+`` and ``-``: ``U`` or ``D``."""
    state, told = health or Health(), ""
    for number, signal in enumerate(signals):
        state = after(state, signal == "+", signal, number * step, RULES)
        told += "U" if state.usable else "D"
    return told


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ("+", "U"),
        ("-", "U"),
        ("--", "UD"),
        ("-+-+-", "UUUUU"),
        ("--+++", "UDDDU"),
        ("--++-+++", "UDDDDDDU"),
        ("--+++-", "UDDDUU"),
    ],
)
def test_hysteresis(signals: str, expected: str) -> None:
    assert play(signals) == expected


def test_who_never_answered_is_not_known_to_work() -> None:
    one = after(Health(), False, "refused", 0.0, RULES)
    soon = after(one, False, "refused", 0.5, RULES)
    assert [(each.usable, each.known) for each in (one, soon)] == [(True, False)] * 2
    assert not after(soon, False, "refused", 9.0, RULES).usable
    assert after(soon, True, "", 9.0, RULES).known
    pool = SaltApiPool(
        ["http://127.0.0.1:1"], username="ops", password="x", probe_interval=600, deadline=5
    )
    with pool, pytest.raises(NoMasterAvailable):
        pool.runner("test.arg")
    (master,) = pool.status()["masters"]
    assert (pool.status()["status"], master["healthy"]) == ("unknown", None)
    assert master["reason"] == "refused the connection"


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ([True, True], "online"),
        ([True, False], "degraded"),
        ([True, None], "degraded"),
        ([False, False], "offline"),
        ([False, None], "unknown"),
        ([None, None], "unknown"),
    ],
)
def test_what_is_not_known_is_not_called_offline(known: list[bool | None], says: str) -> None:
    masters = [
        SimpleNamespace(
            endpoint=SimpleNamespace(url="https://m:8000"),
            name="m",
            health=Health(usable=good is not False, known=good is not None),
        )
        for good in known
    ]
    told = summary(cast("list[MasterApi]", masters))
    assert (told["status"], told["healthy_count"]) == (says, known.count(True))


def test_the_type_of_a_policy_is_public() -> None:
    policy: Policy = "sticky"
    assert policy in get_args(Policy)
    assert "Policy" in saltext_ha.api.__all__


def test_many_signals_of_one_moment_are_one() -> None:
    assert play("-" * 50, step=0.001) == "U" * 50
    assert play("--" + "+" * 50, step=1.0)[-1] == "U"
    down = Health(usable=False, known=True)
    assert play("+" * 50, step=0.01, health=down)[-1] == "D"


@given(st.text("+-", max_size=60))
def test_it_turns_only_after_a_row(signals: str) -> None:
    told = "U" + play(signals)
    for place, (before, now) in enumerate(itertools.pairwise(told), 1):
        if before != now:
            row = signals[:place]
            assert row.endswith("+++" if now == "U" else "--")


A, B, C = Standing("a", 1, True), Standing("b", 0, True), Standing("c", 0, True)
DOWN = Standing("b", 0, False)


def test_priority() -> None:
    assert ranked([A, B, C], "priority") == ["b", "c", "a"]
    assert ranked([A, DOWN, C], "priority") == ["c", "a", "b"], "the one that is down comes last"


def test_round_robin() -> None:
    selector = Selector("round_robin")
    assert [selector.order([A, B, C])[0] for _ in range(4)] == ["b", "c", "a", "b"]
    assert selector.order([A, DOWN, C])[-1] == "b"


def test_sticky_stays_where_it_went() -> None:
    selector = Selector("sticky")
    assert selector.order([A, B])[0] == "b"
    assert selector.order([A, DOWN])[0] == "a"
    assert selector.order([A, B])[0] == "a", "b is up again, but nothing is wrong with a"


def test_jids_are_salts_and_nobody_elses() -> None:
    from salt.utils.jid import is_jid

    jids = {new_jid() for _ in range(2000)}
    assert len(jids) == 2000
    assert all(is_jid(jid) for jid in jids)


def test_what_a_job_cache_says() -> None:
    found = {
        "Function": "test.ping",
        "Minions": ["a", "b"],
        "Result": {"a": {"return": False, "retcode": 0}},
    }
    status = read_status("1", "m1", found)
    assert (status.found, dict(status.returned), status.missing) == (True, {"a": False}, ["b"])
    assert not status.complete
    for absent in ({"Error": "no job", "Result": {}}, {"Function": "unknown-function"}):
        assert not read_status("1", "m1", absent).found
    with pytest.raises(ValueError, match="another form"):
        read_status("1", "m1", "Exception occurred in runner jobs.list_job")


def test_a_minion_is_down_only_when_no_master_has_it() -> None:
    answers = {
        "m1": {"up": ["a"], "down": ["b", "c"]},
        "m2": {"up": ["b"], "down": ["c"]},
        "m3": "Exception occurred",
    }
    seen = union(answers, {"m4": "refused"})
    assert (seen.up, seen.down) == ({"a", "b"}, {"c"})
    assert seen.partial
    assert seen.unasked.keys() == {"m3", "m4"}
    assert not union({"m1": {"up": [], "down": []}}, {}).partial


def test_what_changes_something_is_no_read() -> None:
    assert is_read("runner", "jobs.list_job")
    assert is_read("wheel", "key.list_all")
    for fun in ("manage.down", "survey.hash", "state.orchestrate", "key.list_all"):
        assert not is_read("runner", fun)
    for fun in ("key.accept", "key.delete", "config.apply", "jobs.list_job"):
        assert not is_read("wheel", fun)


def test_each_of_our_runner_functions_either_reads_or_changes_something() -> None:
    changing = {
        "cmd",
        "deploy",
        "drain",
        "invite",
        "install_minions",
        "join",
        "leave",
        "once",
        "pause",
        "rebalance",
        "refill",
        "release",
        "remove_peer",
        "renew",
        "restart_masters",
        "resolve",
        "restore",
        "resume",
        "rewrite",
        "rollback",
        "sync",
        "withdraw",
    }
    ours = {
        runner.__func_alias__.get(name, name)
        for name, found in vars(runner).items()
        if inspect.isfunction(found) and found.__module__ == runner.__name__ and name[0] != "_"
    }
    assert {name for name in ours if not is_read("runner", f"ha.{name}")} == changing


def test_a_job_cache_that_does_not_tell_to_whom_it_was_published() -> None:
    """``get_load`` of pgjsonb, mysql, redis and others has no Minions."""
    early = read_status("1", "m1", {"Function": "test.ping", "Result": {}})
    late = read_status("1", "m1", {"Function": "test.ping", "Result": {"web1": {"return": True}}})
    assert not early.complete
    assert not late.complete
    known = read_status("1", "m1", {"Function": "f", "Minions": ["web1", "web2"], "Result": {}})
    assert known.followed_by(late).missing == ["web2"]
    assert known.followed_by(late).returned == {"web1": True}
    assert known.followed_by(read_status("1", "m1", {"Error": "gone"})) == known


def test_a_list_of_minions_is_sent_as_one() -> None:
    low = publication("local", ["web1", "web2"], "test.ping", (), None, "glob", None)
    assert (low["tgt"], low["tgt_type"]) == (["web1", "web2"], "list")
