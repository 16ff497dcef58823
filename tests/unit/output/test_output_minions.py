"""What people see of minions: whole tables, as text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import salt.loader

from saltext_ha.output import _minions, ha
from saltext_ha.transport import identity
from saltext_ha.transport.peer import make_peer
from saltext_ha.transport.trust import Trust
from tests.unit.output.conftest import shows


def minion(name: str, state: str, *masters: str, **more: Any) -> dict[str, Any]:
    row = {"id": name, "state": state, "masters": list(masters), "seen": None, "by": "", "type": ""}
    return {**row, "note": "", "on": {}, **more}


MASTERS = [
    {"name": "m1", "self": True, "state": "running", "minions": 2, "connections": 12000,
     "listening": 7300.0},
    {"name": "m2", "self": False, "state": "unknown", "minions": None, "connections": None,
     "listening": None},
]  # fmt: skip


def test_minions() -> None:
    rows = [
        minion("db1", "unknown"),
        minion(
            "hot", "partly", "m1", seen=3.0, by="job", type="list", note="not heard lately on m2"
        ),
        minion("web1", "bound", "m1", seen=12.4, by="watchdog", type="failover"),
        minion("web2", "silent", seen=7300.0, by="auth"),
    ]
    shows(
        {
            "kind": "minions", "masters": MASTERS, "minions": rows, "live": False,
            "counts": {"unknown": 1, "bound": 1, "partly": 1, "silent": 1},
            "unknown": {"m2": "10.0.0.2:4530 timed out"}, "retcode": 2,
        },
        """
        Master  State    Minions  Connections  Listening for
        m1 *    running        2       12 000  2 h
        m2      unknown        ?            ?  ?
        m2 could not be asked: 10.0.0.2:4530 timed out
        Minion  State    On  Heard     By              Type
        db1     unknown  -   never     -               ?
        web2    silent   -   2 h ago   authenticated   ?
        hot     partly   m1  3 s ago   returned a job  list
        web1    bound    m1  12 s ago  its watchdog    failover
          hot: not heard lately on m2
        4 minions: 1 unknown, 1 silent, 1 partly, 1 bound
        """,
    )  # fmt: skip


def test_live_shows_which_saltext_ha_each_has() -> None:
    rows = [
        {**minion("db1", "silent"), "version": None},
        {**minion("old", "bound", "m1", seen=1.0, by="job"), "version": None},
        {**minion("web1", "bound", "m1", seen=1.0, by="job"), "version": "0.1.0"},
    ]
    lines = ha.output({"kind": "minions", "live": True, "minions": rows}).splitlines()
    shown = {line.split()[0]: line.split()[-1] for line in lines if " 1 s ago" in line}
    assert shown == {"old": "-", "web1": "0.1.0"}
    assert next(line for line in lines if line.startswith("db1")).endswith("?")


def test_minions_that_are_gone_are_counted() -> None:
    row = minion("web1", "bound", "m1", seen=700, by="job")
    for many, said in ((1, "1 minion of these is"), (3, "3 minions of these are")):
        masters = [{**MASTERS[0], "gone": many}]
        lines = ha.output({"kind": "minions", "masters": masters, "minions": [row]}).splitlines()
        assert lines[2] == (
            f"  m1: {said} not connected any more: moved or stopped, and not heard since; "
            "live=True asks"
        )


def test_nobody() -> None:
    data = {"kind": "minions", "masters": MASTERS[:1], "minions": [], "counts": {}, "unknown": {}}
    assert ha.output(data).splitlines()[-1] == "no accepted minion matches"
    data = {"kind": "reachability", "masters": ["m1"], "minions": [], "counts": {}, "unknown": {}}
    assert ha.output(data).splitlines()[-1] == "no accepted minion matches"


def test_of_very_many_those_in_trouble_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_minions, "LISTED", 2)
    rows = [minion(f"web{n}", "bound", "m1", seen=1, by="job") for n in range(5)]
    rows.append(minion("zoo", "silent", note="no answer within 5 s"))
    data = {"kind": "minions", "masters": [MASTERS[0]], "minions": rows, "counts": {"bound": 5}}
    lines = ha.output(data).splitlines()
    assert lines[3].startswith("zoo")
    assert "… 4 minions more (--out=json has all)" in lines
    found = {f"web{n}": ["m1"] for n in range(5)}
    data = {"kind": "where", "masters": ["m1", "m2"], "count": 5, "minions": found, "unknown": {}}
    assert ha.output(data).splitlines()[3] == "… 3 minions more (--out=json has all)"


def row(name: str, state: str, kind: str, note: str = "", **cells: Any) -> dict[str, Any]:
    answers = {
        name: {"state": "hears", "seconds": cell} if isinstance(cell, float) else
        {"state": cell, "seconds": None} for name, cell in cells.items()
    }  # fmt: skip
    return {"id": name, "state": state, "type": kind, "note": note, "answers": answers}


def test_where() -> None:
    data = {"kind": "where", "masters": ["m1", "m2"], "count": 5, "unknown": {}}
    late = ha.output({**data, "minions": {"fo1": ["m1"]}, "silent": ["fo1"]}).splitlines()
    assert late[-2] == "fo1     m1 · heard there last, does not answer now"
    text = ha.output({**data, "minions": {"fo1": ["m1"], "gone": []}})
    assert [line.split() for line in text.splitlines()[-3:]] == [
        ["fo1", "m1"],
        ["gone", "-"],
        ["3", "minions", "reached", "by", "all", "of", "m1,", "m2"],
    ]
    text = ha.output({**data, "minions": {}, "absent": ["nosuch"]})
    assert text.splitlines()[-2] == "no accepted key: nosuch"


def test_cmd() -> None:
    data = {
        "kind": "cmd",
        "returned": {"a": True, "b": "two\nlines", "c": {"x": 1}},
        "failed": {"b": 3},
        "missing": {"d": "m2", "w": "m1"},
        "running": {"w": "2026"},
        "unreachable": ["e"],
        "jobs": [{"m1": "2026", "m2": "2027"}],
        "targets": [{"m1": "*"}],
        "unknown": {"m3": "refused the connection"},
    }
    text = ha.output(data)
    assert "m3" in text
    for said in ("a:", "    True", "b: (exit code 3)", "    two\n    lines", "job 2027 on m2"):
        assert said in text
    assert "d: did not return to m2 in time, nor say that it still runs it" in text
    assert "w: still running on m1 (job 2026)" in text
    assert "e: no master reaches it, or it has no accepted key" in text
    assert "would be published" not in text
    planned = ha.output({**data, "test": True})
    assert "would be published on m1 for *" in planned
    nothing = ha.output({"kind": "cmd", "test": True, "targets": [{}]})
    assert nothing.strip() == "no minion with an accepted key matched"
    alone = {"kind": "cmd", "test": True, "targets": [{}], "unknown": {"m2": "timed out"}}
    assert ha.output(alone).splitlines()[-1] == "no minion with an accepted key matched"
    only = ha.output({"kind": "cmd", "test": True, "targets": [{"m1": "*"}]})
    assert only.splitlines()[-1] == (
        "planned; nothing was run (test=True); to run the function with a test=True of its own: "
        "kwarg='{test: True}'"
    )


def test_one_line_for_each_minion_that_did_not_return() -> None:
    """Who listens nowhere is asked all the same, by one master."""
    data = {
        "kind": "cmd",
        "missing": {"gone": "m1", "back": "m1"},
        "running": {"back": "2026"},
        "unreachable": ["back", "gone"],
    }
    assert ha.output(data).splitlines() == [
        "gone: no master reaches it; it did not return to m1 in time, nor say that it still runs "
        "it",
        "back: still running on m1 (job 2026)",
    ]


@pytest.mark.parametrize("findings", [[{"code": "HA218", "on": "web1"}], 7])
def test_the_findings_of_minions_are_the_table_of_lint(findings: Any) -> None:
    """Each by the id that the master knows, whatever it calls itself."""
    found = {"kind": "lint", "findings": findings, "asked": ["web1"], "counts": {"info": 1}}
    clean = {"kind": "lint", "findings": [], "asked": ["web9"], "counts": {}}
    text = ha.output({"kind": "cmd", "returned": {"web1": found, "web2": clean}})
    first = "web1: its answer makes no sense" if findings == 7 else "web1: 1 hint"
    assert [line for line in text.splitlines() if line.startswith("web")] == [
        first,
        "web2: no known traps",
    ]


@pytest.mark.parametrize("kind", ["cmd", "lookup_jid"])
def test_what_minions_return_is_shown_as_salt_shows_it(kind: str) -> None:
    """States as a summary, columns and nesting kept; nothing in it controls the terminal."""
    listing = "total 4\n-rw-r--r--  1 root  \x1b[31mred\n\tend"
    state = {"result": True, "comment": "Success!", "changes": {}, "name": "n", "__run_num__": 0}
    moved = {"kind": "current_master", "address": "10.0.0.1", "port": 4506, "connected": True}
    returned = {
        "a": listing,
        "b": {"outer": {"inner": [1, 2]}},
        "c": {"test_|-my id_|-n_|-nop": state},
        "d": moved,
        "e": "",
    }
    text = ha.output({"kind": kind, "jid": "2026", "returned": returned})
    for said in (
        "a:\n    total 4\n    -rw-r--r--  1 root  ?[31mred\n            end",
        "b:\n    ----------\n    outer:\n        ----------\n        inner:\n            - 1",
        "c:\n----------\n          ID: my id\n    Function: test.nop",
        "Succeeded: 1",
        "d: 10.0.0.1",
        "e:",
    ):
        assert said in text, text
    assert "{" not in text


def test_reachability() -> None:
    rows = [
        row("hot", "deaf", "list", "is deaf to m2", m1=0.0204, m2="silent", m3="unknown"),
        row("web1", "ok", "failover", m1="silent", m2=0.1, m3="unknown"),
        row("web2", "ok", "failover", m1=0.1, m2="no key", m3="unknown"),
        row("web3", "silent", "list", "hears no master", m1="silent", m2="silent", m3="unknown"),
    ]
    shows(
        {
            "kind": "reachability", "masters": ["m1", "m2", "m3"], "minions": rows, "timeout": 5,
            "strays": [{"published": "m1", "arrived": "m2", "count": 1, "ids": ["hot"]}],
            "counts": {"ok": 2, "deaf": 1, "silent": 1}, "unknown": {"m3": "refused"},
            "partial": True,
        },
        """
        m3 could not be asked: refused
        Minion  m1      m2      m3  Type      State
        web3    silent  silent  ?   list      silent
        hot     20 ms   deaf    ?   list      deaf
        web1    -       100 ms  ?   failover  ok
        web2    100 ms  no key  ?   failover  ok
          web3: hears no master
          hot: is deaf to m2
        1 answer to m1 came to m2: hot
        4 minions: 1 silent, 1 deaf, 2 ok · partial: not all masters could ask
        """,
    )  # fmt: skip


def test_moves() -> None:
    one = {"id": "web1", "from": "m1", "to": "m2", "moved": True, "planned": False, "note": ""}
    two = {**one, "id": "web2", "moved": False, "note": "did not answer"}
    shows(
        {
            "kind": "drain", "master": "m1", "test": False, "moves": [one, two], "unknown": {},
            "stay": [
                {"id": "hot", "why": "hot-hot", "goes_on": True},
                {"id": "hot2", "why": "hot-hot", "goes_on": True},
                {"id": "old", "why": "not installed", "goes_on": None},
                {"id": "one", "why": "it knows no other", "goes_on": False},
            ],
        },
        """
        Minion  From  To  Result  Note
        web2    m1    m2  failed  did not answer
        web1    m1    m2  moved
        1 minion would be lost with m1 · it knows no other
          one
        1 minion may be lost with m1 · not installed
          old
        2 minions will go on with other masters · hot-hot
          hot, hot2
        1 minion moved · 1 did not · 2 would or may be lost
        """,
    )  # fmt: skip
    shows(
        {
            "kind": "rebalance", "test": True, "unknown": {},
            "stay": [{"id": "hot", "why": "hot-hot"}],
            "moves": [{**one, "moved": False, "planned": True}],
            "spread": {"m1": {"before": 3, "after": 2}, "m2": {"before": 1, "after": 2}},
        },
        """
        Minion  From  To  Result
        web1    m1    m2  would move
        1 minion left alone · hot-hot
          hot
        m1: 3 → 2
        m2: 1 → 2
        1 minion would move
        """,
    )  # fmt: skip


LOST = [{"id": f"web{n:03}", "why": "it knows no other", "goes_on": False} for n in range(100)]
STRAY = {"count": 100, "published": "m1", "arrived": "m2", "ids": [row["id"] for row in LOST]}


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "drain", "master": "m1", "stay": LOST},
        {"kind": "cmd", "not_begun": [row["id"] for row in LOST]},
        {"kind": "reachability", "minions": [{"id": "a", "state": "ok"}], "strays": [STRAY]},
    ],
)
def test_no_id_below_a_table_is_cut_in_a_pipe(data: dict[str, Any]) -> None:
    assert "web098, web099" in ha.output(data)


@pytest.mark.usefixtures("terminal")
def test_ids_below_a_table_fit_a_terminal() -> None:
    lines = ha.output({"kind": "drain", "master": "m1", "stay": LOST}).splitlines()
    assert max(map(len, lines)) == 80


def test_why_a_minion_did_not_move_is_shown_in_full() -> None:
    why = "m2: the key of web1 is pending there, and Salt would wait for it for ever; m3: timed out"
    one = {"id": "web1", "from": "m1", "to": "m2", "moved": False, "planned": False, "note": why}
    shows(
        {"kind": "drain", "master": "m1", "test": False, "moves": [one], "unknown": {}},
        f"""
        Minion  From  To  Result
        web1    m1    m2  failed
          web1: {why}
        0 minions moved · 1 did not
        """,
    )


def test_a_plan_has_no_failure() -> None:
    one = {"id": "web1", "from": "m1", "to": "m2", "moved": False, "planned": False}
    shows(
        {
            "kind": "drain", "master": "m1", "test": True, "unknown": {},
            "moves": [{**one, "note": "did not answer"}],
        },
        """
        Minion  From  To  Result          Note
        web1    m1    m2  would not move  did not answer
        0 minions would move · 1 would not
        """,
    )  # fmt: skip


BOUND = {
    "kind": "current_master", "address": "10.0.0.2", "ip": "10.0.0.2", "port": 4506,
    "publish_port": 4505, "id": None, "type": "failover", "masters": ["10.0.0.1", "10.0.0.2"],
    "connected": True,
}  # fmt: skip


def test_the_current_master_is_a_line_for_each_minion() -> None:
    past = {"since": 1.0, "since_iso": "2026-03-01T14:05:09+0100", "switches": 2}
    ping = {"answers": True, "milliseconds": 3.1}
    shows({"web1": BOUND}, "web1: 10.0.0.2")
    shows({"web1": {**BOUND, "id": "m2", **past, "ping": ping}}, """
        web1: m2 (10.0.0.2) since 2026-03-01 14:05:09 · 2 changes of master within the hour · answers in 3.1 ms
    """)  # noqa: E501  # fmt: skip
    hot = {**BOUND, "address": "db.example", "port": 4516, "type": "list", "connected": False}
    shows({"web1": hot, "web2": BOUND}, """
        web1: db.example:4516 = 10.0.0.2 · hot-hot, one of 2 masters · not connected
        web2: 10.0.0.2
    """)  # fmt: skip
    silent = {"answers": False, "milliseconds": None, "note": "no answer within 3 s"}
    shows({"web1": {**BOUND, "ping": silent, "note": "it hangs"}}, """
        web1: 10.0.0.2 · it hangs · ping: no answer within 3 s
    """)  # fmt: skip
    nobody = {**BOUND, "address": None, "ip": None, "port": None, "connected": None}
    shows({"web1": {**nobody, "note": "no running minion"}}, """
        web1: no current master · no running minion
    """)  # fmt: skip
    assert "\n" not in ha.output({"web1": {**BOUND, "switches": "x", "ping": 1, "masters": 1}})


def test_a_master_of_the_group_knows_the_masters_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opts: dict[str, Any] = {
        "color": False,
        "id": "m1_master",
        "pki_dir": str(tmp_path),
        "sock_dir": "x",
    }
    opts["ha"] = {"name": "m1", "address": "10.0.0.1", "state_dir": str(tmp_path / "ha")}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)
    trust = Trust(tmp_path / "ha")
    trust.pin(
        make_peer(
            "m2",
            "https://10.0.0.2:4530",
            identity.load_or_create(tmp_path / "m2", "m2").certificate,
        )
    )
    shows({"web1": BOUND}, "web1: m2 (10.0.0.2)")
    shows({"web1": {**BOUND, "address": "db", "ip": "10.0.0.1"}}, "web1: m1 (db = 10.0.0.1)")
    shows({"web1": {**BOUND, "address": "db", "ip": "10.0.0.9"}}, "web1: db = 10.0.0.9")


def test_all_masters_of_a_minion_are_one_line() -> None:
    one = {"address": "10.0.0.1", "ip": "10.0.0.1", "port": 4506, "current": True}
    two = {**one, "address": "m2.example", "ip": "10.0.0.2", "current": False}
    rows = [{**one, "connected": True}, {**two, "connected": False}]
    shows({"web1": rows}, """
        web1: 10.0.0.1 current, connected · m2.example = 10.0.0.2 not connected
    """)  # fmt: skip
    good = {"answers": True, "milliseconds": 3.1}
    bad = {"answers": False, "milliseconds": None, "note": "no answer within 3 s"}
    pinged = [
        {**rows[0], "ping": good, "publishes": False},
        {**rows[1], "connected": None, "ping": bad, "note": "it hangs", "publishes": False},
    ]
    shows({"web1": pinged, "web2": [one | good, two | bad]}, """
        web1: 10.0.0.1 current, connected, answers in 3.1 ms, its publisher does not · m2.example = 10.0.0.2 connected: unknown (it hangs), does not answer (no answer within 3 s), nor does its publisher
        web2: 10.0.0.1 current, answers in 3.1 ms · m2.example = 10.0.0.2 does not answer (no answer within 3 s)
    """)  # noqa: E501  # fmt: skip
    unknown = {"answers": None, "milliseconds": None, "note": "its name does not resolve"}
    shows({"web1": [two | unknown]}, """
        web1: m2.example = 10.0.0.2 answers: unknown (its name does not resolve)
    """)  # fmt: skip


def test_where_a_minion_goes_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"from": "10.0.0.1", "to": "10.0.0.11", "result": True}
    answer["comment"] = "moves from 10.0.0.1 to 10.0.0.11 now"
    shows({"web1": answer}, "web1: moves from 10.0.0.1 to 10.0.0.11 now")
    opts = {"color": False, "ha_masters": {"m1": "10.0.0.1", "m2": "10.0.0.11"}}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)
    shows({"web1": answer}, "web1: moves from m1 (10.0.0.1) to m2 (10.0.0.11) now")
    nowhere = {"from": None, "to": "m9", "result": False, "comment": "'m9' is none of 10.0.0.1"}
    shows({"web1": nowhere}, "web1: 'm9' is none of 10.0.0.1")


def test_what_is_none_of_ours_is_shown_as_ever() -> None:
    for other in ("Minion did not return. [No response]", [], [{"address": 1}], {"from": 1}, None):
        text = ha.output({"web1": other})
        assert text == salt.loader.outputters(ha.__opts__)["nested"]({"web1": other})


def test_a_minion_that_was_told_them_knows_the_masters_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opts = {"color": False, "ha_masters": {"m2": "10.0.0.2:4506", "?": "a/b"}}
    monkeypatch.setattr(ha, "__opts__", opts, raising=False)
    shows({"local": BOUND}, "local: m2 (10.0.0.2)")
    opts["ha_masters"] = {"m2": "10.0.0.2:4506", "m3": "10.0.0.2:4516"}
    shows({"local": BOUND}, "local: 10.0.0.2")


def test_a_minion_of_several_masters_that_was_asked_by_none_of_them() -> None:
    """As by ``salt-call --local``: it is connected to all, and none of them is the current one."""
    note = "connected to a, b; none of these sent this job: see ha.masters"
    answer = {"kind": "current_master", "address": None, "type": "list", "masters": ["a", "b"]}
    text = f"local: no current master · hot-hot with 2 masters · {note}"
    assert ha.output({"local": {**answer, "connected": None, "note": note}}) == text


def test_the_version_on_a_minion_is_a_line() -> None:
    answer = {"kind": "version", "version": "1.2.3", "started": None, "process": None}
    text = "web1: saltext-ha 1.2.3 · "
    assert ha.output({"web1": answer}) == f"{text}no running minion"
    at = time.mktime((2026, 3, 1, 14, 5, 9, 0, 0, -1))
    runs = ha.output({"web1": {**answer, "started": at}})
    assert runs.startswith(f"{text}the minion runs since 2026-03-01 14:05:09")
    assert "restart" not in runs
    outdated = ha.output({"web1": {**answer, "outdated": True}})
    assert "its watchdog is older: restart the minion" in outdated
