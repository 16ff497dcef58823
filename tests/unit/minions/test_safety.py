"""Would every minion go on? Every doubt is a no."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from saltext_ha.commands.masters.endpoints import MinionEndpoint
from saltext_ha.commands.minions import failover_safe
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minion import binding
from saltext_ha.minions import reports, safety
from saltext_ha.minions.safety import (
    Capacity,
    GroupFacts,
    KnownMaster,
    MinionReport,
    UnsafeReason,
    judge,
)
from saltext_ha.output import _failover
from saltext_ha.output._text import Screen
from saltext_ha.replication.placement import Stored
from saltext_ha.sync.summary import MasterSummary

pytestmark = pytest.mark.core

KEY, OTHER = b"k" * 32, b"o" * 32
ACCEPTED = Stored("accepted", KEY, frozenset())
PENDING = Stored("pending", KEY, frozenset())
BOTH = (
    KnownMaster(("m1",), "10.0.0.1:4506", True, True, True),
    KnownMaster(("m2",), "10.0.0.2:4506", True, True, True),
)
GOOD = MinionReport(BOTH, "failover")
SAME = {name: {"status": "same", "differences": [], "unknown": {}} for name in safety.SECTIONS}


def group(*names: str, **changes: Any) -> GroupFacts:
    """A group that could lose any of its masters."""
    names = names or ("m1", "m2")
    whole = GroupFacts(
        names,
        {name: Capacity(5, 100_000) for name in names},
        {name: {"web1": ACCEPTED, "web2": ACCEPTED} for name in names},
        SAME,
        {"web1": GOOD, "web2": replace(GOOD, type="list")},
    )
    return replace(whole, **changes)


def the(reasons: list[UnsafeReason], about: str) -> UnsafeReason:
    assert [reason.about for reason in reasons] == [about]
    return reasons[0]


def test_a_group_that_has_all() -> None:
    assert judge(group(), "m1") == []
    assert judge(group(), "m2") == []


def test_the_only_master() -> None:
    assert the(judge(group("m1"), "m1"), "masters").text == "there is no other master"


@pytest.mark.parametrize("lost", ["m1", "m2"])
def test_a_master_that_cannot_be_asked_is_a_doubt(lost: str) -> None:
    keys = {"m1": group().keys["m1"]}
    away = group(unreached={"m2": "timed out"}, keys=keys)
    reason = the(judge(away, lost), "masters")
    assert (reason.unknown, "timed out" in reason.text) == (True, True)
    assert "m2" in reason.fix


def test_what_status_says_of_those_that_are_left() -> None:
    noted = group(notes={"m2": ["5 keys are held"]})
    assert the(judge(noted, "m1"), "masters").text == "m2: 5 keys are held"
    assert judge(noted, "m2") == []


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (PENDING, "pending on m2"),
        (Stored("rejected", KEY, frozenset()), "rejected on m2"),
        (None, "absent on m2"),
        (Stored("accepted", OTHER, frozenset()), "different keys"),
    ],
)
def test_a_key_that_the_other_master_does_not_have(stored: Stored | None, text: str) -> None:
    table = {"web1": ACCEPTED, **({"web2": stored} if stored else {})}
    lacking = group(keys={"m1": group().keys["m1"], "m2": table})
    reason = the(judge(lacking, "m1"), "keys")
    assert (text in reason.text, reason.minions, reason.count) == (True, ("web2",), 1)
    # Not ha.sync, which might spread the revocation, were it the newer decision.
    helps = (
        "ha.resolve web2 6b:6b:6b:6b:… or 6f:6f:6f:6f:…, of"
        if text == "different keys"
        else "ha.history ID says"
    )
    assert reason.fix.startswith(f"salt-run {helps}")
    if text != "different keys":
        assert judge(lacking, "m2") == [], "m1, which has all, is left"


def test_a_key_must_be_on_all_that_are_left() -> None:
    """A failover minion that tries the one first on which it is pending waits there for ever."""
    full = group().keys["m1"]
    three = group("m1", "m2", "m3", keys={"m1": full, "m2": full, "m3": {"web1": ACCEPTED}})
    assert the(judge(three, "m1"), "keys").text == "their keys are absent on m3"
    assert judge(three, "m3") == []


@pytest.mark.parametrize("name", safety.SECTIONS)
def test_what_only_the_lost_master_lacks_is_not_missed(name: str) -> None:
    def found(**values: Any) -> GroupFacts:
        drift = {"path": "base:top.sls", "values": values, "fix": "copy it"}
        names = sorted(values)
        return group(*names, sections={**SAME, name: {**SAME[name], "differences": [drift]}})

    lacks = {"absent": True}
    lacking = found(m1="content #1", m2="content #1", m3=lacks)
    assert judge(lacking, "m3") == []
    assert the(judge(lacking, "m1"), name), "m3 is left, and lacks it"
    assert the(judge(found(m1=lacks, m2=lacks, m3="content #1"), "m3"), name)
    assert the(judge(found(m1="content #1", m2="content #2", m3=lacks), "m3"), name)
    assert the(judge(found(m1="content #1", m2={"unknown": "away"}, m3=lacks), "m3"), name)


def test_a_master_that_no_minion_knows() -> None:
    full = group().keys["m1"]
    three = group("m1", "m2", "m3", keys=dict.fromkeys(("m1", "m2", "m3"), full))
    assert safety.unknown_to_minions(three) == ["m3"]
    assert safety.unknown_to_minions(group()) == []
    for doubt in (
        MinionReport(problem="too old"),
        replace(GOOD, masters=(*BOTH, KnownMaster((), "salt:4506"))),
        replace(GOOD, masters=(*BOTH, KnownMaster(("m2", "m3"), "salt:4506"))),
    ):
        assert (
            safety.unknown_to_minions(replace(three, minions={"web1": GOOD, "web2": doubt})) == []
        )
    assert safety.unknown_to_minions(replace(three, minions={"web1": GOOD})) == []


@pytest.mark.parametrize("name", safety.SECTIONS)
def test_a_difference_that_check_consistency_finds(name: str) -> None:
    def sections(**changes: Any) -> Any:
        return {"sections": {**SAME, name: {**SAME[name], **changes}}}

    drift = {"path": "pam:alice", "values": {}, "fix": "write it"}
    reason = the(judge(group(**sections(differences=[drift])), "m1"), name)
    assert ("pam:alice" in reason.text, reason.fix, reason.unknown) == (True, "write it", False)
    note = {**drift, "severity": "note"}
    assert judge(group(**sections(differences=[note])), "m1") == []
    missed = the(judge(group(**sections(unknown={"m2": "no such file"})), "m1"), name)
    assert (missed.unknown, "/var/log/salt/master on m2" in missed.fix) == (True, True)
    assert the(judge(group(**sections(left_out=3)), "m1"), name).text == "and 3 more"
    rest = {key: value for key, value in SAME.items() if key != name}
    assert the(judge(group(sections=rest), "m1"), name).unknown


def test_minions_that_do_not_answer() -> None:
    silent = group(minions={"web1": GOOD})
    reason = the(judge(silent, "m1"), "minions")
    assert (reason.minions, reason.unknown) == (("web2",), True)
    assert the(judge(group(unasked={"m2": "no bus"}), "m1"), "minions").unknown


@pytest.mark.parametrize(
    ("report", "text", "unknown"),
    [
        (replace(GOOD, masters=BOTH[:1]), "they know no other master of the group than m1", False),
        (
            replace(GOOD, masters=(*BOTH, KnownMaster((), "old:4506"))),
            "old:4506, which is no master",
            False,
        ),
        (
            replace(
                GOOD, masters=(BOTH[0], KnownMaster(("m2", "m3"), "salt:4506", True, True, True))
            ),
            "they know salt:4506, which may be m2 or m3",
            True,
        ),
        (replace(GOOD, type="func"), "master_type func", True),
        (replace(GOOD, findings=(("HA201", "never looks", "do"),)), "HA201 never looks", False),
        (MinionReport(problem="'ha.lint' is not available."), "is not available", True),
    ],
)
def test_minions_that_would_not_go_on(report: MinionReport, text: str, unknown: bool) -> None:
    reason = the(judge(group(minions={"web1": GOOD, "web2": report}), "m1"), "minions")
    assert (text in reason.text, reason.unknown, reason.minions) == (True, unknown, ("web2",))


def test_a_minion_of_one_master_can_do_without_the_other() -> None:
    single = group(minions={"web1": GOOD, "web2": MinionReport(BOTH[:1], "str")})
    assert judge(single, "m2") == []
    assert judge(single, "m1") != []


@pytest.mark.parametrize(
    ("connected", "text", "unknown"),
    [
        (False, "they are not connected to m2: they hear no job of it", False),
        (None, "whether they are connected to m2 is not known", True),
    ],
)
def test_a_hot_minion_must_be_with_the_other_master_already(
    connected: bool | None, text: str, unknown: bool
) -> None:
    masters = (BOTH[0], BOTH[1]._replace(connected=connected))
    deaf = MinionReport(masters, "list")
    reason = the(judge(group(minions={"web1": GOOD, "web2": deaf}), "m1"), "minions")
    assert (reason.text, reason.unknown, reason.minions) == (text, unknown, ("web2",))
    assert judge(group(minions={"web1": GOOD, "web2": deaf}), "m2") == [], "m1 is left to it"
    moving = MinionReport(masters, "failover")
    assert judge(group(minions={"web1": GOOD, "web2": moving}), "m1") == [], "it connects then"


@pytest.mark.parametrize(
    ("way", "text", "unknown"),
    [
        ({"answers": False}, "they do not reach m2", False),
        ({"answers": False, "publishes": False}, "they do not reach m2", False),
        (
            {"publishes": False},
            "they do not reach the publisher of m2: no job of it would come",
            False,
        ),
        ({"answers": None}, "whether they reach m2 is not known", True),
        ({"publishes": None}, "whether they reach m2 is not known", True),
    ],
)
@pytest.mark.parametrize("kind", ["failover", "list"])
def test_a_minion_must_reach_the_other_master(
    kind: str, way: dict[str, bool | None], text: str, unknown: bool
) -> None:
    cut = MinionReport((BOTH[0], BOTH[1]._replace(**way)), kind)
    reason = the(judge(group(minions={"web1": GOOD, "web2": cut}), "m1"), "minions")
    assert (reason.text, reason.unknown, reason.minions) == (text, unknown, ("web2",))
    assert judge(group(minions={"web1": GOOD, "web2": cut}), "m2") == [], "m1 is left to it"


def test_different_keys_need_minions_that_verify() -> None:
    assert the(judge(group(signed=True), "m1"), "minions").count == 2
    verifying = {name: replace(each, verifies=True) for name, each in group().minions.items()}
    assert judge(group(signed=True, minions=verifying), "m1") == []


def test_those_that_are_left_must_have_room() -> None:
    def many(number: int, **room: Any) -> GroupFacts:
        ids = [f"web{i}" for i in range(number)]
        table = dict.fromkeys(ids, ACCEPTED)
        rooms = {
            "m1": Capacity(5, 100_000),
            "m2": Capacity(**{"workers": 5, "open_files": 100_000, **room}),
        }
        return group(keys={"m1": table, "m2": table}, minions=dict.fromkeys(ids, GOOD), room=rooms)

    assert judge(many(1000), "m1") == []
    reason = the(judge(many(1001), "m1"), "capacity")
    assert reason.text == "m2 has 5 worker threads; 1001 minions need 6"
    assert judge(many(1000, open_files=4000), "m1") == []
    assert judge(replace(many(1001), per_worker=201), "m1") == []
    assert judge(many(1000, max_minions=1000), "m1") == []
    full = the(judge(many(1000, max_minions=999), "m1"), "capacity")
    assert full.text == "m2 lets in 999 minions of 1000"
    files = many(1000, open_files=3999)
    assert the(judge(files, "m1"), "capacity").text == (
        "m2 may have 3999 files open; 1000 minions need 4000"
    )
    assert judge(files, "m2") == []


def test_all_minions_need_room_whoever_is_asked_about() -> None:
    assert judge(group(number=1000), "m1") == []
    reason = the(judge(group(number=1001), "m1"), "capacity")
    assert reason.text == "m2 has 5 worker threads; 1001 minions need 6"


# -- what minions say

FINDING = {
    "code": "HA201",
    "severity": "error",
    "title": "t",
    "detail": "d",
    "fix": "f",
    "why": "w",
}
SAID = {
    "lint": {"findings": [FINDING, {**FINDING, "severity": "info"}], "unknown": {}},
    "masters": [
        {
            "address": "10.0.0.1",
            "port": 4506,
            "connected": True,
            "publishes": True,
            "ping": {"answers": True, "milliseconds": 2.0},
        },
        {
            "address": "m9",
            "port": 4506,
            "connected": False,
            "publishes": False,
            "ping": {"answers": False, "milliseconds": None, "note": "timed out"},
        },
        {"address": "m8", "port": 4506, "connected": None},
    ],
    "current_master": {
        "type": "failover",
        "address": "10.0.0.1",
        "port": 4506,
        "connected": True,
    },
    "verify_master_pubkey_sign": True,
}


def lookup(host: str, port: int) -> set[str]:
    return {("10.0.0.1", 4506): {"m1"}}.get((host, port), set())


def test_what_a_minion_says() -> None:
    (found,) = reports.read({"web1": reports.shorten(SAID)}, lookup).values()
    masters = (
        KnownMaster(("m1",), "10.0.0.1:4506", True, True, True),
        KnownMaster((), "m9:4506", False, False, False),
        KnownMaster((), "m8:4506"),
    )
    assert found == MinionReport(masters, "failover", True, (("HA201", "t (d)", "f"),))


@pytest.mark.parametrize(
    ("current", "places"),
    [
        ({"address": "10.0.0.9", "port": 4516, "connected": True}, {("10.0.0.9", 4516)}),
        ({"address": "[FD00::1]", "port": 4506, "connected": True}, {("fd00::1", 4506)}),
        ({"address": "Salt", "port": 4506, "connected": True}, {("salt", 4506)}),
        ({"address": "10.0.0.9", "port": 4516, "connected": None}, set()),
        (
            {"address": "10.0.0.9", "port": 4516, "connected": True, "note": "subscribed to m1"},
            set(),
        ),
    ],
)
def test_where_a_master_is_for_its_minions(
    current: dict[str, Any], places: set[tuple[str, int]]
) -> None:
    said = {**SAID, "current_master": {"type": "failover", **current}}
    assert reports.met({"web1": reports.shorten(said)}) == places


def test_who_is_where() -> None:
    """By their addresses, and by what the minions say that are with them, who know better."""

    def at(host: str, port: int = 4506) -> dict[str, Any]:
        return {"web": {"here": [host, port]}}

    masters = [
        MinionEndpoint("m1", "10.0.0.1"),
        MinionEndpoint("m2", "10.0.0.2"),
        MinionEndpoint("m3", "10.0.0.2"),
    ]
    answers = {"m1": at("10.0.0.9", 4516), "m2": at("vip"), "m3": at("vip"), "m4": "no bus"}
    lookup = failover_safe._lookup(answers, masters)
    assert lookup("10.0.0.1", 4506) == {"m1"}
    assert lookup("10.0.0.9", 4516) == {"m1"}, "behind a port map"
    assert lookup("10.0.0.9", 4526) == set()
    assert lookup("10.0.0.2", 4506) == {"m2", "m3"}, "two of them call themselves so"
    assert lookup("vip", 4506) == {"m2", "m3"}
    moved = failover_safe._lookup({"m1": at("10.0.0.2")}, masters)
    assert moved("10.0.0.2", 4506) == {"m1"}
    assert failover_safe._lookup({"m1": {"web": {"here": [1]}}}, masters)("10.0.0.1", 4506)


def test_a_name_that_leads_to_several_masters_leads_to_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = {"salt": frozenset({"10.0.0.1", "10.0.0.2"}), "m2": frozenset({"10.0.0.2"})}
    monkeypatch.setattr(binding, "resolved", lambda host: addresses.get(host, frozenset()))
    masters = [MinionEndpoint("m1", "10.0.0.1"), MinionEndpoint("m2", "m2")]
    lookup = failover_safe._lookup({"m1": {"web": {"here": ["salt", 4506]}}}, masters)
    assert lookup("salt", 4506) == {"m1", "m2"}
    assert lookup("M2", 4506) == {"m2"}


def test_this_master_is_known_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here that is often a loopback address, and nobody may be connected to this master."""
    here = dict.fromkeys(("m1", "m1.example.org"), frozenset({"127.0.1.1"}))
    monkeypatch.setattr(binding, "resolved", lambda host: here.get(host, frozenset()))
    monkeypatch.setattr("socket.gethostname", lambda: "m1")
    monkeypatch.setattr("socket.getfqdn", lambda: "M1.example.org")
    masters = [MinionEndpoint("m1", "10.0.0.1"), MinionEndpoint("m2", "10.0.0.2")]
    lookup = failover_safe._lookup({}, masters, "m1")
    assert (lookup("m1.example.org", 4506), lookup("m1", 4506)) == ({"m1"}, {"m1"})


@pytest.mark.parametrize(
    ("health", "notes"),
    [
        ({"ready": True, "healthy": True, "draining": False, "reason": ""}, []),
        (
            {"ready": False, "healthy": False, "draining": False, "reason": "event bus: timed out"},
            ["does not serve: event bus: timed out"],
        ),
        (
            {
                "ready": False,
                "healthy": None,
                "draining": False,
                "reason": "starting: not asked yet",
            },
            ["is not ready: starting: not asked yet"],
        ),
        # That is among the notes of the summary already.
        ({"ready": False, "healthy": True, "draining": True, "reason": "draining: …"}, []),
        (None, []),
    ],
)
def test_a_master_that_does_not_serve_is_no_place_to_go_to(health: Any, notes: list[str]) -> None:
    assert failover_safe._notes(MasterSummary.read({"health": health})) == notes


@pytest.mark.parametrize(
    "said",
    [
        "The minion function caused an exception",
        {**SAID, "lint": "'ha.lint' is not available."},
        {**SAID, "lint": {"kind": "error", "error": "no such file"}},
        {**SAID, "lint": {"findings": [], "unknown": {"pki": "not permitted"}}},
        {**SAID, "masters": "'ha.masters' is not available."},
        {},
    ],
)
def test_what_a_minion_cannot_say_is_a_problem(said: Any) -> None:
    (found,) = reports.read({"web1": reports.shorten(said)}, lookup).values()
    assert found.problem


@pytest.mark.parametrize(
    "said",
    [
        {**SAID, "lint": {"findings": ["x"]}},
        {**SAID, "lint": {"findings": [{"severity": "error"}]}},
        {**SAID, "lint": {"findings": 7}},
        {**SAID, "lint": {"findings": [], "unknown": [1]}},
        {**SAID, "masters": [7]},
        {**SAID, "masters": SAID["masters"] * 100},
        {**SAID, "masters": [{"address": "m1", "port": "none"}]},
        {**SAID, "masters": [{"address": "m1", "port": float("inf")}]},
    ],
)
def test_nonsense_is_a_problem_of_the_minion_that_talks_it(said: Any) -> None:
    raw = {"evil": reports.shorten(said), "web1": reports.shorten(SAID)}
    found = reports.read(raw, lookup)
    assert found["evil"].problem
    assert not found["web1"].problem


def test_an_answer_is_cut_to_size() -> None:
    long = "x" * 1_000_000
    finding = {**FINDING, "code": long, "title": long, "fix": long}
    said = {
        **SAID,
        "lint": {"findings": [finding] * 10_000, "unknown": {}},
        "masters": [{"address": long, "port": long, "connected": long, "ping": {long: long}}],
        "current_master": {
            **SAID["current_master"],
            "type": long,
            "address": long,
            "port": long,
        },
    }
    assert len(repr(reports.shorten(said))) < 20_000
    unknown = {**SAID, "lint": {"findings": [], "unknown": {long: long}}}
    for other in (long, [long], {"lint": long}, {**SAID, "masters": long}, unknown):
        assert len(repr(reports.shorten(other))) < 1_000


def test_a_peer_that_talks_nonsense() -> None:
    for raw in ([], None, 7, "web1"):
        with pytest.raises(InvalidRecord, match="makes no sense"):
            reports.read(raw, lookup)
    told = {"web1": {}, "web2": {"masters": [[1]], "type": "", "verifies": 1}, "web3": None}
    assert all(each.problem for each in reports.read(told, lookup).values())


def test_a_minion_that_talks_nonsense_hides_no_other() -> None:
    endless = {"here": ["10.0.0.9", float("inf")]}
    there = {"here": ["10.0.0.9", 4516]}
    assert reports.met({"web1": endless, "web2": there, "web3": 7}) == {("10.0.0.9", 4516)}
    told = {"masters": [["10.0.0.9", float("inf"), True, True, True]], "type": "", "verifies": 1}
    assert reports.read({"web1": told}, lookup)["web1"].problem


def test_how_it_reads() -> None:
    reason = UnsafeReason(
        "minions", "text", "do this", minions=("a", "b", "c", "d", "e", "f"), count=6
    )
    lines = _failover.safe(
        {
            "masters": [
                {"name": "m1", "safe": True, "reasons": []},
                {"name": "m2", "safe": False, "reasons": [reason.data()]},
                {"name": "m3", "safe": False, "reasons": [reason.data() | {"unknown": True}]},
            ],
            "minions": {"accepted": 6, "answered": 5},
        },
        Screen(80, {}),
    )
    assert lines == [
        "without m1: safe",
        "without m2: NO, not all would go on",
        "  minions  6 minions (a, b, c, d, e and 1 more): text",
        "      → do this",
        "without m3: NO, it is not known whether all would go on",
        "  minions  6 minions (a, b, c, d, e and 1 more): text",
        "      → do this",
        "5 of 6 accepted minions answered",
    ]
