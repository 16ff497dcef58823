"""``ha.history``: who decided, as far as Salt tells, and why a decision holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import salt.config
import salt.netapi
import salt.runner
import salt.wheel

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, files_of, group, plant, settled, shown

PASSWORD = "correct horse battery staple"
USERS = {"alice": ["@wheel", "@runner"], "bob": ["@wheel"]}
# An eauth module that needs no PAM, on all releases of Salt.
CONFIG = {
    "external_auth": {"sharedsecret": USERS},
    "sharedsecret": PASSWORD,
    "netapi_enable_clients": ["wheel"],
}
LOGIN = {"eauth": "sharedsecret", "password": PASSWORD}


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", config=CONFIG) as lab:
        yield lab


def call(client: Callable[..., Any], master: Master, user: str, fun: str, **low: Any) -> Any:
    """Have *user* call a function of *master*'s."""
    opts = salt.config.client_config(str(master.config_file))
    return client(opts).cmd_sync({"fun": fun, **LOGIN, "username": user, **low}, timeout=SOON)


def wheel(master: Master, user: str, fun: str, **low: Any) -> Any:
    return call(salt.wheel.WheelClient, master, user, fun, **low)


def api(master: Master, user: str, **low: Any) -> Any:
    """What salt-api does with a request of *user*'s to *master*."""
    opts = salt.config.client_config(str(master.config_file))
    return salt.netapi.NetapiClient(opts).run({**LOGIN, "username": user, **low})


def lines(master: Master, glob: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = master.control("history", {"glob": glob})["writes"]
    return found


def explained(master: Master, glob: str, count: int) -> list[dict[str, Any]]:
    """
    The lines that name decisions, when there are so many: a store may show the end before its
    master has heard of all decisions.
    """
    return wait_for(
        lambda: (
            len(found := [line for line in lines(master, glob) if line["decisions"]]) >= count
            and found
        ),
        SOON,
        f"{master.name} explains {glob}",
    )


def decided(master: Master, glob: str) -> list[tuple[str, str, str]]:
    """What was done, by whom and where, newest first."""
    return [(line["what"], line["by"], line["on"]) for line in lines(master, glob)]


@pytest.mark.core
def test_who_calls_the_wheel_is_named_on_both_masters(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    key = plant(lab, "minions_pre", "web07", m1, m2)
    wheel(m1, "alice", "key.accept", match="web07")
    shown("web07", {"minions": key}, m1, m2)
    wheel(m2, "bob", "key.reject", arg=["web0*"], kwarg={"include_accepted": True})
    shown("web07", {"minions_rejected": key}, m1, m2)
    api(m1, "alice", client="wheel", fun="key.delete", match="web07")
    shown("web07", {}, m1, m2)
    for master in (m1, m2):
        assert decided(master, "web07") == [
            ("deleted", "alice", "m1"),
            ("rejected", "bob", "m2"),
            ("accepted", "alice", "m1"),
            ("pending", "minion", "m1"),
        ]


@pytest.mark.core
def test_many_keys_of_one_call_and_those_of_salt_key_are_told_apart(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    names = [f"many{number}" for number in range(8)]
    for name in (*names, "single"):
        m1.plant("minions_pre", name, lab.key_pair()[1])
    settled(lab, m1, m2)
    wheel(m1, "alice", "key.accept_dict", arg=[], kwarg={"match": {"minions_pre": names}})
    m1.salt_key("-a", "single", "-y").check()
    wait_for(lambda: {"single", *names} <= m2.keys()["minions"].keys(), SOON, "all on m2")
    for master in (m1, m2):
        for name in names:
            assert decided(master, name)[0] == ("accepted", "alice", "m1")
        assert decided(master, "single")[0] == ("accepted", "operator", "m1")


def test_a_key_that_the_wheel_makes_has_a_maker(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    # It fires no event of its own, and a pass over the store finds it.
    wheel(m1, "alice", "key.gen_accept", id_="made1")
    wait_for(lambda: "made1" in m2.keys()["minions"], SOON, "the key on m2")
    assert decided(m2, "made1") == [("accepted", "alice", "m1")]


@pytest.mark.core
def test_who_calls_the_runner_is_named_with_the_command(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    key = plant(lab, "minions", "back1", m1, m2)
    m1.salt_key("-d", "back1", "-y").check()
    shown("back1", {}, m1, m2)
    call(salt.runner.RunnerClient, m2, "alice", "ha.restore", arg=["back1"], kwarg={})
    shown("back1", {"minions": key}, m1, m2)
    line, *_ = lines(m1, "back1")
    assert (line["what"], line["by"], line["on"], line["why"]) == (
        "accepted",
        "alice",
        "m2",
        "ha.restore",
    )
    # On the command line it is whoever runs salt-run.
    m1.salt_key("-d", "back1", "-y").check()
    shown("back1", {}, m1, m2)
    m1.salt_run("ha.restore", "back1").check()
    line, *_ = lines(m1, "back1")
    assert (line["by"], line["why"]) == (m1.opts["user"], "ha.restore")


def test_both_masters_say_why_a_rejection_holds(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    key = plant(lab, "minions_pre", "torn7", m1, m2)
    m2.salt_run("ha.pause").check()
    m2.suspend()
    try:
        wheel(m1, "alice", "key.accept", match="torn7")
        wait_for(lambda: decided(m1, "torn7")[0][0] == "accepted", SOON, "m1 recorded it")
        # Alone with its store, as in a partition: it has heard nothing of m1's decision.
        (m2.pki_dir / "minions_pre" / "torn7").rename(m2.pki_dir / "minions_rejected" / "torn7")
    finally:
        m2.resume()
    m2.salt_run("ha.resume").check()
    shown("torn7", {"minions_rejected": key}, m1, m2)
    expected = (
        "rejected on m2 by operator and accepted on m1 by alice, neither knowing of the other:"
        " rejected holds"
    )
    for master in (m1, m2):
        (line,) = explained(master, "torn7", 1)
        assert (line["why"], line["on"]) == (expected, master.name)
        assert {(d["state"], d["by"], d["on"]) for d in line["decisions"]} == {
            ("rejected", "operator", "m2"),
            ("accepted", "alice", "m1"),
        }
    # Neither a restart nor another exchange tells it again.
    m1.kill()
    m1.start()
    settled(lab, m1, m2)
    assert [line["why"] for line in lines(m1, "torn7") if line["decisions"]] == [expected]
    text = " ".join(m1.salt_run_text("ha.history", "torn7").check().stdout.split())
    assert expected in text


def test_a_conflict_tells_its_beginning_and_who_ended_it(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    first, second = (lab.key_pair()[1].strip() for _ in range(2))
    m2.suspend()
    try:
        m1.plant("minions", "both7", first)
        wait_for(lambda: decided(m1, "both7"), SOON, "m1 recorded its key")
        m2.plant("minions", "both7", second)
    finally:
        m2.resume()
    wait_for(lambda: m2.control("status")["conflicts"], SOON, "a conflict")
    wait_for(lambda: m1.control("status")["conflicts"], SOON, "the same on m1")

    def of_m2() -> list[str]:
        """m1 may know of a conflict by what m2 says, a little before it has the key of m2."""
        return [line["fingerprint"] for line in lines(m1, "both7") if line["on"] == "m2"]

    (keep,) = wait_for(of_m2, SOON, "m1 has heard of it")
    call(salt.runner.RunnerClient, m1, "alice", "ha.resolve", arg=["both7", keep], kwarg={})
    shown("both7", {"minions": second}, m1, m2)
    for master in (m1, m2):
        over, began = explained(master, "both7", 2)
        assert (began["what"], over["what"]) == ("conflict", "conflict over")
        assert began["why"].endswith("neither knowing of the other: end it with ha.resolve")
        assert "deleted on m1 by alice via ha.resolve" in over["why"]
        assert over["why"].endswith(f"{keep[:11]}:… stays")


def test_the_filters_and_the_limit(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    key = plant(lab, "minions_pre", "filter1", m1, m2)
    wheel(m2, "bob", "key.accept", match="filter1")
    shown("filter1", {"minions": key}, m1, m2)
    answer = m1.salt_run("ha.history", "filter*", by="bob", since="10m").check().data
    assert [(line["by"], line["what"]) for line in answer["writes"]] == [("bob", "accepted")]
    answer = m1.salt_run("ha.history", limit=1).check().data
    assert (len(answer["writes"]), answer["more"]) == (1, True)
    wrong = m1.salt_run("ha.history", since="yesterday")
    assert wrong.returncode == 2
    assert "2h" in wrong.data["error"]
    assert files_of(m1, "filter1") == {"minions": key}
