"""Tables with the names that hosts have: a long domain that all masters share."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from saltext_ha.output import ha

M1, M2, M3 = MASTERS = [f"salt-master-{number}.dc1.example.com" for number in (1, 2, 3)]
MINIONS = [f"web-{number:02}.prod.dc1.example.com" for number in (1, 2)]
FP = "3a:9f:12:44:0b" + ":ab" * 27
AT = 1_700_000_000

KEYS = {
    "kind": "keys", "masters": MASTERS,
    "keys": [{"id": each, "fingerprint": FP, "same": True,
              "states": dict.fromkeys(MASTERS, "accepted")} for each in MINIONS],
}  # fmt: skip
REACHABILITY = {
    "kind": "reachability", "masters": MASTERS, "counts": {"ok": 2},
    "minions": [{"id": each, "state": "ok", "type": "list",
                 "answers": {name: {"state": "hears", "seconds": 0.012} for name in MASTERS}}
                for each in MINIONS],
}  # fmt: skip
STATUS = {
    "kind": "status", "group": "g", "state": "ok",
    "masters": [{"name": name, "self": name == M1, "state": "running", "salt": "3008.4",
                 "accepted": 10412, "pending": 3, "digest": "3a9f12", "behind": 0, "bound": 3471,
                 "seen": 0.0} for name in MASTERS],
}  # fmt: skip
DRAIN = {
    "kind": "drain", "master": M1,
    "moves": [{"id": each, "from": M1, "to": to, "moved": True}
              for each, to in zip(MINIONS, (M2, M3), strict=True)],
}  # fmt: skip
WHERE = {
    "kind": "where", "masters": MASTERS, "count": 2,
    "minions": dict.fromkeys(MINIONS, MASTERS[:2]),
}  # fmt: skip
SEEN = {
    "kind": "minions", "counts": {"bound": 2},
    "masters": [{"name": name, "self": name == M1, "state": "running", "minions": 1,
                 "connections": 1, "listening": 4000.0} for name in MASTERS],
    "minions": [{"id": each, "state": "bound", "masters": [name], "seen": 3.0, "by": "watchdog",
                 "type": "failover"} for each, name in zip(MINIONS, MASTERS, strict=False)],
}  # fmt: skip
DEPLOYMENTS = {
    "kind": "deployments",
    "trees": [{"tree": "states", "live": "/srv/salt", "current": 2, "deployments": [
        {"number": 2, "at": AT, "by": "alice.smith", "on": M1, "files": 120, "version": "dead",
         "live_on": MASTERS, "source": "/srv/src"}]}],
}  # fmt: skip
LEADER = {
    "kind": "leader", "leader": M1, "store": "group",
    "masters": [{"name": name, "leads": name == M1, "follows": M1,
                 "reactor": {"configured": True, "reacts": True}} for name in MASTERS],
    "runs": [{"name": "nightly-backup", "function": "state.orchestrate", "on": M1,
              "state": "done", "ago": 40.0, "seconds": 3.1}],
}  # fmt: skip


def shown(data: dict[str, Any]) -> list[str]:
    return str(ha.output(data)).splitlines()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("data", [KEYS, REACHABILITY, DRAIN, WHERE, SEEN])
def test_ids_of_minions_are_whole(data: dict[str, Any]) -> None:
    text = ha.output(data)
    assert all(each in text for each in MINIONS)
    assert max(map(len, text.splitlines()[:-1])) <= 80


@pytest.mark.usefixtures("terminal")
def test_the_domain_of_masters_is_left_out_where_a_table_is_too_wide() -> None:
    assert shown(DRAIN)[:3] == [
        "Minion                       From           To             Result",
        "web-01.prod.dc1.example.com  salt-master-1  salt-master-2  moved",
        "web-02.prod.dc1.example.com  salt-master-1  salt-master-3  moved",
    ]
    assert shown(WHERE)[1] == "web-01.prod.dc1.example.com  salt-master-1, salt-master-2"


@pytest.mark.usefixtures("terminal")
def test_a_column_for_each_master_shows_where_their_names_differ() -> None:
    assert shown(KEYS)[:2] == [
        "Id                           Fingerprint       …1        …2        …3",
        "web-01.prod.dc1.example.com  3a:9f:12:44:0b:…  accepted  accepted  accepted",
    ]
    assert shown(REACHABILITY)[:2] == [
        "Minion                       …1     …2     …3     Type  State",
        "web-01.prod.dc1.example.com  12 ms  12 ms  12 ms  list  ok",
    ]


@pytest.mark.usefixtures("terminal")
def test_deployments_name_who_made_them_and_where_they_are_live() -> None:
    assert shown(DEPLOYMENTS)[2].endswith("  alice.smith on …1    120  dead     …1, …2, …3")


@pytest.mark.usefixtures("terminal")
def test_tables_about_masters_keep_their_names_but_for_the_domain() -> None:
    names = [line.split("  ")[0] for line in shown(STATUS)[2:5]]
    assert names == ["salt-master-1 *", "salt-master-2", "salt-master-3"]
    assert shown(LEADER)[5].startswith("Reactor of     Reacts  Waiting")


def test_in_a_pipe_names_of_masters_are_whole() -> None:
    for data in (KEYS, REACHABILITY, DRAIN, WHERE, SEEN, DEPLOYMENTS, STATUS, LEADER):
        text = ha.output(data)
        assert M1 in text
        assert "…1" not in text


def test_a_table_that_fits_shows_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert all(name in shown(KEYS)[0] for name in MASTERS)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("masters", "headings"),
    [
        (["salt.ams.example.com", "salt.fra.example.com"], ["…ams", "…fra"]),
        (["salt-fra.example.com", "salt-frb.example.com"], ["…fra", "…frb"]),
        (["saltmaster01.example.com", "saltmaster02.example.com"], ["…01", "…02"]),
        (["salt.example.com", "salt-2.example.com"], ["salt", "salt-2"]),
        (["salt-master.example.com", "salt-master-2.example.org"], ["….example.com", None]),
    ],
)
def test_names_of_masters_stay_distinct(masters: list[str], headings: list[str | None]) -> None:
    minion = {"id": "w" * 60, "state": "ok", "type": "list", "answers": {}}
    data = {"kind": "reachability", "masters": masters, "minions": [minion]}
    found = shown(data)[0].split()[1:3]
    assert len(set(found)) == 2
    assert all(name in (None, shown) for name, shown in zip(headings, found, strict=True))


@pytest.mark.usefixtures("terminal")
def test_keys_of_many_masters_keep_their_ids() -> None:
    masters = [f"m{number}" for number in range(1, 6)]
    same = dict.fromkeys(masters, "accepted")
    states = [same, {**same, "m2": "pending", "m4": None, "m5": "unknown"}]
    keys = [
        {"id": minion, "fingerprint": FP, "same": each == same, "states": each}
        for minion, each in zip(MINIONS, states, strict=True)
    ]
    found = shown({"kind": "keys", "masters": masters, "keys": keys})
    assert [line.split()[0] for line in found[:3]] == ["Id", *MINIONS]
    assert found[1].endswith(":…  accepted")
    assert found[2].endswith(":…  differs")
    note = "accepted, but pending on m2, absent on m4, unknown on m5"
    assert found[3] == f"  {MINIONS[1]}: {note}"


@pytest.mark.usefixtures("terminal")
def test_addresses_have_no_domain() -> None:
    moves = [{"id": "w" * 60, "from": "10.0.0.1", "to": "10.1.0.1", "moved": True}]
    assert "…0.0.1  …1.0.1" in shown({"kind": "drain", "moves": moves})[1]


@pytest.mark.usefixtures("terminal")
def test_a_minion_on_a_master_keeps_its_id() -> None:
    moves = [{**DRAIN["moves"][0], "id": M1}, DRAIN["moves"][1]]
    assert shown({**DRAIN, "moves": moves})[1].startswith(f"{M1}  salt-master-1  ")


@pytest.mark.usefixtures("terminal")
def test_this_master_is_marked_where_its_name_is_cut() -> None:
    long = [{**row, "name": f"{place}{'m' * 40}"} for place, row in enumerate(STATUS["masters"])]
    rows = shown({**STATUS, "masters": long})[2:5]
    assert [row.split("  ")[0][-3:] for row in rows] == ["… *", "mm…", "mm…"]


def test_a_master_that_answers_is_called_running_everywhere() -> None:
    peer = {"name": M2, "url": "https://m2:4530", "fingerprint": FP, "state": "up", "seen": 1.0}
    data = {"kind": "peers", "self": {}, "peers": [peer]}
    assert shown(data)[-1].split()[-3] == "running"
