"""What people see: whole tables, as text."""

import json
import sys
import time

import pytest
import salt.config
import salt.output

from saltext_ha.output import _explained, _text, ha
from tests.unit.output.conftest import shows

FP1 = "3a:9f:12:44:0b" + ":aa" * 27
FP2 = "77:01:c0:ff:ee" + ":bb" * 27
RUNNING = {"state": "running", "salt": "3008.3", "rejected": 0, "denied": 0, "note": ""}
NOTHING = dict.fromkeys(("salt", "accepted", "pending", "rejected", "denied", "digest", "behind"))


@pytest.fixture(autouse=True)
def _page(monkeypatch):
    monkeypatch.setattr(_explained, "page", lambda: "PAGE")


def status(**changes):
    masters = [
        {**RUNNING, "name": "m1", "self": True, "accepted": 10412, "pending": 3,
         "digest": "9f3c1e", "behind": 0, "seen": 1},
        {**RUNNING, "name": "m2", "self": False, "accepted": 10409, "pending": 6,
         "digest": "41aa07", "behind": 3, "seen": 2},
        {**NOTHING, "name": "m3", "self": False, "state": "unknown", "seen": 240,
         "note": "10.0.0.3:4530 timed out"},
    ]  # fmt: skip
    data = {
        "kind": "status", "group": "prod", "state": "degraded", "mode": "enforce", "tolerates": 0,
        "masters": masters, "conflicts": [], "held": [], "refused": {}, "notes": [],
    }  # fmt: skip
    return {**data, **changes}


def test_what_the_note_of_a_master_says_is_not_said_again():
    notes = "does not serve: request port: timed out", "drained: it is not ready for callers until"
    masters = [
        {**RUNNING, "name": name, "note": note}
        for name, note in zip(("m1", "m2"), notes, strict=True)
    ]
    reasons = [
        {"about": "m1", "kind": "serves", "text": "does not serve because of that"},
        {"about": "m2", "kind": "ready", "text": "is not ready for callers because of that"},
        {"about": "m2", "kind": "ready", "text": "is not ready for callers: starting"},
    ]
    said = ha.output(status(masters=masters, reasons=reasons))
    assert "because of that" not in said
    assert "m2: is not ready for callers: starting" in said


def test_status():
    shows(
        status(),
        """
        Group prod · DEGRADED · sync enforce · tolerates the loss of 0 masters
        Master  State    Salt    Accepted  Pending  Digest  Behind  Seen
        m1 *    running  3008.3    10 412        3  9f3c1e  -       1 s
        m2      running  3008.3    10 409        6  41aa07  3 keys  2 s
        m3      unknown  ?              ?        ?  ?       ?       4 m
          m3: 10.0.0.3:4530 timed out
        """,
    )


def test_keys_of_which_it_is_not_known_whether_they_are_the_same():
    unknown = {"kind": "behind", "text": "it is not known whether it has the same keys"}
    reasons = [
        {**unknown, "about": "m2", "states": ["unknown"]},
        {"kind": "behind", "text": "1 key not as on this master", "about": "m3",
         "states": ["degraded"]},
    ]  # fmt: skip
    masters = [
        {**RUNNING, "name": "m2", "digest": "41aa07", "seen": 2},
        {**RUNNING, "name": "m3", "digest": "9f3c1e", "behind": 1, "seen": 2},
    ]
    shows(
        status(state="degraded", masters=masters, reasons=reasons),
        """
        Group prod · DEGRADED · sync enforce · tolerates the loss of 0 masters
        Master  State    Salt    Accepted  Pending  Digest  Behind  Seen
        m2      running  3008.3         ?        ?  41aa07  ?       2 s
        m3      running  3008.3         ?        ?  9f3c1e  1 key   2 s
          m2: it is not known whether it has the same keys
        """,
    )


def test_status_with_everything():
    data = status(
        state="ok",
        tolerates=1,
        conflicts=[{"id": "db02", "keys": {"m1": FP1, "m2": FP2, "m3": None}}],
        held=[{"master": "m2", "keys": 512}],
        refused={"not a minion id": 1200, "hung up during the handshake": 7},
        refusals=[
            {
                "reason": "not a minion id",
                "from": "10.0.0.9",
                "times": 1200,
                "first": time.time() - 900,
                "last": time.time() - 125,
            },
        ],
        notes=["paused on m2"],
    )
    data["masters"] = [{**data["masters"][0], "rejected": 2, "bound": 6120, "note": "old"}]
    shows(
        data,
        """
        Group prod · OK · sync enforce · tolerates the loss of 1 master
        Master  State    Salt    Accepted  Pending  Rejected  Digest  Behind  Bound  Seen
        m1 *    running  3008.3    10 412        3         2  9f3c1e  -       6 120  1 s
          m1: old
        1 conflict: different keys accepted for one id
          db02   m1 3a:9f:12:44:0b:…   m2 77:01:c0:ff:ee:…   m3 -
          → salt-run ha.resolve db02 3a:9f:12:44:0b:… or 77:01:c0:ff:ee:…
        keys held back on 1 master
          m2: 512 keys vanished there at once, or revoked ones came back;
              nothing of it has reached the others
          → bring its key folder back; or there, with test=True first:
              salt-run ha.refill    write back what the group knows
              salt-run ha.release   believe the folder: what is missing goes on all masters
        refused from peers
          1 200 × not a minion id, from 10.0.0.9, 2 m ago
        paused on m2
        → PAGE#refused-from-peers
        """,
    )


def test_status_with_nothing_known():
    shows(
        {"kind": "status", "masters": [{"name": "m1"}]},
        """
        Group ? · UNKNOWN
        Master  State    Salt  Accepted  Pending  Digest  Behind  Seen
        m1      unknown  ?            ?        ?  ?       ?       never
        """,
    )
    shows({"kind": "status", "group": "g", "state": "ok"}, "Group g · OK\nno masters")


def keys(*entries, **more):
    return {"kind": "keys", "masters": ["m1", "m2"], "keys": list(entries), **more}


def key(name, one, two, **more):
    same = one == two
    states = {"m1": one, "m2": two}
    return {"id": name, "fingerprint": FP1, "states": states, "same": same, "conflict": False,
            **more}  # fmt: skip


def test_keys():
    shows(
        keys(
            key("web07", "accepted", "pending"),
            key("web08", "accepted", "accepted"),
            key("db02", "accepted", None, conflict=True),
            key("db03", "denied", "unknown", fingerprint=None),
        ),
        """
        Id     Fingerprint       m1        m2        Note
        web07  3a:9f:12:44:0b:…  accepted  pending
        web08  3a:9f:12:44:0b:…  accepted  accepted
        db02   3a:9f:12:44:0b:…  accepted  -         conflict
        db03   ?                 denied    ?
        4 keys · 2 not the same everywhere · 1 not known to be the same everywhere · 1 conflict
        """,
    )


def test_one_key_shows_its_whole_fingerprint():
    shows(
        keys(key("web07", "accepted", "accepted")),
        f"""
        Id     Fingerprint       m1        m2
        web07  3a:9f:12:44:0b:…  accepted  accepted
        1 key · all the same
        {FP1}
        """,
    )


def test_no_keys():
    shows(keys(), "no keys")
    shows(keys(match="*"), "no keys")
    shows(keys(match="web*"), "no key matches web*")
    shows(keys(match=""), 'no key matches ""')


def test_keys_of_a_master_that_could_not_be_asked():
    shows(
        keys(key("web07", "accepted", "unknown"), unknown={"m2": "10.0.0.2:4530 timed out"}),
        f"""
        Id     Fingerprint       m1        m2
        web07  3a:9f:12:44:0b:…  accepted  ?
        m2 could not be asked: 10.0.0.2:4530 timed out
        1 key · 1 not known to be the same everywhere
        {FP1}
        """,
    )
    gone = "m2 could not be asked: 10.0.0.2:4530 timed out"
    shows(keys(unknown={"m2": "10.0.0.2:4530 timed out"}), f"{gone}\nno keys")


def test_wide_and_combining_characters_keep_columns_aligned():
    shows(
        keys(
            key("データベース", "accepted", "pending"),
            key("cafe\u0301", "accepted", "pending"),
            key("x" * 5, "accepted", "pending"),
        ),
        """
        Id            Fingerprint       m1        m2
        データベース  3a:9f:12:44:0b:…  accepted  pending
        cafe\u0301          3a:9f:12:44:0b:…  accepted  pending
        xxxxx         3a:9f:12:44:0b:…  accepted  pending
        3 keys · 3 not the same everywhere
        """,
    )


LONG = keys(key("w" * 200, "accepted", "pending"), key("字" * 100, "accepted", None))


def test_long_ids_are_cut_to_fit_the_terminal(terminal):
    text = ha.output(LONG)
    assert all(_text.display_width(line) <= 80 for line in text.splitlines())
    assert text.count("…") == 4  # two ids, two fingerprints


def test_no_id_is_cut_in_a_pipe():
    """``salt-run ha.keys | grep ID`` finds it, whatever its length; but arguments may be huge."""
    text = ha.output(LONG)
    assert "w" * 200 in text
    assert "字" * 100 in text
    text = ha.output(keys(key("w" * 10_000, "accepted", "pending")))
    assert "w" * (_text.WIDEST - 1) + "…  3a" in text


def test_keys_whose_fingerprints_begin_alike_are_not_shown_alike():
    alike = [FP1, FP1.replace("0b:aa", "0b:ab")]
    rows = [{**key("web1", "accepted", "denied"), "fingerprint": each} for each in alike]
    first, second = ha.output(keys(*rows)).splitlines()[1:3]
    assert first != second
    changes = [{"master": "m2", "id": "web1", "from": f"accepted {each}", "to": "deleted"}
               for each in alike]  # fmt: skip
    first, second = ha.output({"kind": "sync", "changes": changes}).splitlines()[1:3]
    assert first != second
    states = dict(zip(("from", "to"), (f"accepted {each}" for each in alike), strict=True))
    data = {"kind": "sync", "changes": [{"master": "m2", "id": "web1", **states}]}
    _, shown = ha.output(data).splitlines()[1].split("accepted ", 1)
    before, after = shown.split("accepted ")
    assert before.strip() != after.strip()


def test_columns_that_are_shown_whole_are_so_without_an_edge_too():
    screen = _text.Screen(edge=False)
    shown = _text.table(screen, ["Id"], [["w" * 300]], whole=["Id"])
    assert shown[1] == "w" * 300


def test_plain_ids_are_not_looked_at_character_by_character(monkeypatch):
    """A table of twenty thousand keys took ten seconds."""
    monkeypatch.setattr(_text, "unicodedata", None)
    columns = ["Id", "State"]
    rows = [["web1.example.com", "accepted"], ["web2", "pending"]]
    assert _text.table(_text.Screen(width=24), columns, rows, whole=columns) == [
        "Id                State",
        "web1.example.com  accepted",
        "web2              pending",
    ]


def test_names_that_begin_alike_are_not_shown_alike():
    """As ids of machines are, also beside others."""
    alike = [f"web-frontend-production-europe-west-{number:02}" for number in (1, 2)]
    more = [f"db-replica-of-{place}-with-a-very-long-name" for place in ("berlin", "bern")]
    screen = _text.Screen(width=30)
    shown = _text.table(screen, ["Id", "State"], [[name, "ok"] for name in (*alike, "x", *more)])
    assert shown == [
        "Id                       State",
        "…duction-europe-west-01  ok",
        "…duction-europe-west-02  ok",
        "x                        ok",
        "db-replica-of-berlin-w…  ok",
        "db-replica-of-bern-wit…  ok",
    ]
    wide = [["字" * 30 + end, "ok"] for end in "ab"]
    assert [row.split()[0][-1] for row in _text.table(screen, ["Id", "State"], wide)[1:]] == [
        "a",
        "b",
    ]


def test_control_characters_do_not_reach_the_terminal():
    text = ha.output(
        keys(key("a\x1b[2Jb\u202ec\nd", "accepted", "pending"), unknown={"m2": "\x07"})
    )
    assert "a?[2Jb?c d" in text
    assert not set(text) & set("\x1b\u202e\x07")


def test_sync_plan():
    changes = [
        {"master": "m2", "id": "web07", "from": f"pending {FP1}", "to": f"accepted {FP1}"},
        {"master": "m2", "id": "web09", "from": "absent", "to": f"rejected {FP2}"},
    ]
    data = {"kind": "sync", "test": True, "changes": changes, "unreachable": {"m3": "timed out"}}
    shows(
        data,
        """
        Master  Id     From                      To
        m2      web07  pending 3a:9f:12:44:0b:…  accepted 3a:9f:12:44:0b:…
        m2      web09  absent                    rejected 77:01:c0:ff:ee:…
        2 changes planned; nothing was changed (test=True)
        m3 could not be reached: timed out
        """,
    )
    assert "1 change made" in ha.output({**data, "test": False, "changes": changes[:1]})


def test_sync_with_nothing_to_do():
    shows({"kind": "sync", "test": False, "changes": []}, "nothing to change")


def test_sync_that_leaves_something_does_not_say_that_nothing_is_to_change():
    left = "m2: 1 not changed: its mode is paused"
    data = {"kind": "sync", "test": False, "changes": [], "notes": [left]}
    shows(data, f"no key was changed\n{left}")
    data = {"kind": "sync", "test": False, "changes": [], "unreachable": {"m3": "timed out"}}
    shows(data, "no key was changed\nm3 could not be reached: timed out")


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def line(at, on, by, what, name="web07", fp=FP1, why=""):
    return {"id": name, "at": at, "on": on, "by": by, "what": what, "state": what,
            "fingerprint": fp, "why": why, "decisions": []}  # fmt: skip


def history(*lines, more=False):
    return {"kind": "history", "writes": list(lines), "more": more}


def test_history_of_one_minion(berlin):
    met = "rejected on m2 by bob and accepted on m1 by alice, neither knowing of the other"
    shows(
        history(
            line(1769900000.9, "m1", "", "rejected holds", why=f"{met}: rejected holds"),
            line(1769899000, "m2", "bob", "rejected"),
            line(1769898000, "m1", "root", "accepted", why="ha.restore"),
            line(1769897000, "m1", "minion", "pending"),
        ),
        """
        web07
        When (CET)           Where  Who     What            Fingerprint
        2026-01-31 23:53:20  m1     -       rejected holds  3a:9f:12:44:0b:…
            rejected on m2 by bob and accepted on m1 by alice, neither knowing of the
            other: rejected holds
        2026-01-31 23:36:40  m2     bob     rejected        3a:9f:12:44:0b:…
        2026-01-31 23:20:00  m1     root    accepted        3a:9f:12:44:0b:…
            ha.restore
        2026-01-31 23:03:20  m1     minion  pending         3a:9f:12:44:0b:…
        """,
    )


def test_history_says_where_a_claim_is_not_what_was_seen(berlin):
    at = 1790000000
    rows = [
        {**line(at, "m2", "web1", "accepted"), "received": at + 2, "from": "m2"},
        {**line(at - 31536000, "m1", "web1", "accepted"), "received": at, "from": "m3"},
        {**line(at, "m2", "web1", "pending"), "received": None, "from": None},
    ]
    shown = ha.output(history(*rows)).splitlines()[2:]
    assert [text[:19].strip() for text in shown[:2]] == [
        "2026-09-21 16:13:22",
        "2026-09-21 16:13:20",
    ]
    assert shown[2:] == [
        "    says it was made 2025-09-21 16:13:20 CEST, came from m3",
        shown[3],
        "1 line of an older release: when and from whom that came is unknown",
    ]


def test_history_of_many_cuts_ids_rather_than_times(berlin, terminal):
    shows(
        history(
            line(1769900000, "m1", "DOMAIN\\alice", "accepted", "web07.example.com"),
            line(1769900000, "m2", "", "conflict over", "db02.example.com", None),
            more=True,
        ),
        """
        When (CET)           Where  Who           What           Id            Fingerprint
        2026-01-31 23:53:20  m1     DOMAIN\\alice  accepted       web07.examp…  3a:9f:12:44:0b:…
        2026-01-31 23:53:20  m2     -             conflict over  db02.exampl…  -
        the last 2 lines; limit=N shows more
        """,
    )


def test_history_over_the_change_of_the_clock_says_which_hour_is_meant(berlin):
    text = ha.output(
        history(line(1792890000, "m1", "a", "deleted"), line(1792886400, "m1", "a", "x"))
    )
    assert "2026-10-25 02:00:00 CET " in text
    assert "2026-10-25 02:00:00 CEST" in text


@pytest.mark.parametrize("at", [None, "x", float("inf"), float("nan"), -1e300, 1e15])
def test_history_by_a_clock_out_of_its_mind(at):
    assert "?  " in ha.output(history(line(at, "m1", "a\nb\x1b[2J", "accepted"))).splitlines()[2]


def test_no_history():
    shows(history(), "nothing is recorded of that")


def test_peers():
    me = {"name": "m1", "url": "https://10.0.0.1:4530", "fingerprint": FP1}
    peers = [
        {"name": "m2", "url": "https://10.0.0.2:4530", "fingerprint": FP2, "state": "up",
         "seen": 2.6, "note": ""},
        {"name": "m3", "url": "https://[fd00::3]:4530", "fingerprint": FP2, "state": None,
         "seen": None, "note": "x" * 200},
    ]  # fmt: skip
    shows(
        {"kind": "peers", "self": me, "peers": peers},
        f"""
        This master: m1  https://10.0.0.1:4530
        certificate  {FP1}
        Peer  URL                     Certificate       State    Seen
        m2    https://10.0.0.2:4530   77:01:c0:ff:ee:…  running  2 s
        m3    https://[fd00::3]:4530  77:01:c0:ff:ee:…  unknown  never
          m3: {"x" * 200}
        """,
    )
    shows(
        {"kind": "peers", "self": me, "peers": []},
        f"""
        This master: m1  https://10.0.0.1:4530
        certificate  {FP1}
        no peers; salt-ha invite here, then salt-ha join --token-file - on the other master
        """,
    )


def test_peers_that_this_master_has_joined_with_were_introduced_by_nobody():
    """The JSON has this master's own name there: as if it had let in the one that invited it."""
    me = {"name": "m3", "url": "https://10.0.0.3:4530", "fingerprint": FP1}
    peers = [
        {"name": name, "url": f"https://10.0.0.{number}:4530", "fingerprint": FP2, "state": "up",
         "seen": 2.6, "note": "", "introducer": introducer}
        for number, (name, introducer) in enumerate((("m1", "m3"), ("m2", "m1"), ("m4", None)), 1)
    ]  # fmt: skip
    shows(
        {"kind": "peers", "self": me, "peers": peers},
        f"""
        This master: m3  https://10.0.0.3:4530
        certificate  {FP1}
        Peer  URL                    Certificate       Introduced by  State    Seen
        m1    https://10.0.0.1:4530  77:01:c0:ff:ee:…  -              running  2 s
        m2    https://10.0.0.2:4530  77:01:c0:ff:ee:…  m1             running  2 s
        m4    https://10.0.0.3:4530  77:01:c0:ff:ee:…  ?              running  2 s
        """,
    )


def test_invite_keeps_path_and_command_whole_on_lines_of_their_own():
    path = "/etc/" + "a" * 300
    data = {"kind": "invite", "invitation": "3f", "token_file": path, "expires_in": 600,
            "notes": ["once"], "command": f"ssh m1 cat {path} | salt-ha join"}  # fmt: skip
    lines = ha.output(data).splitlines()
    assert lines == [
        "Invitation 3f, for one use within 10 m", "Its token is in", path,
        "On the new master:", f"ssh m1 cat {path} | salt-ha join", "once",
    ]  # fmt: skip


def test_join():
    data = {"kind": "join", "group": "prod", "members": ["m1", "m2"], "notes": ["restart it"]}
    shows(data, "Joined group prod: m1, m2\nrestart it")


@pytest.mark.parametrize("extra", [{"kind": "error"}, {}])
def test_errors(extra):
    shows({"error": "no engine\nstart it", **extra}, "error: no engine\n  start it")


def check(**sections):
    names = ["m1", "m2"]
    return {"kind": "consistency", "status": "differ", "masters": names, "unknown": {},
            "sections": sections}  # fmt: skip


def part(*differences, status=None, unknown=None, **more):
    status = status or ("differ" if differences else "same")
    return {"status": status, "differences": list(differences), "unknown": unknown or {}, **more}


def differ(path, values, fix="salt-run ha.sync", severity="drift"):
    return {"path": path, "values": values, "fix": fix, "severity": severity}


def test_consistency():
    auth = {"m1": [".*", "@runner"], "m2": {"absent": True}}
    file = {"m2": {"file": {"ops": ["test.*"]}, "running": {"absent": True}}}
    secret = {"m1": {"secret": "#1"}, "m2": {"secret": "#2"}}
    data = check(
        keys=part(
            differ("web07", {"m1": f"accepted {FP1}", "m2": "absent"}),
            differ("db02", {"m1": f"accepted {FP1}", "m2": f"accepted {FP2}"}, "salt-run ha.x"),
            counts={"differ": 2, "of": 10412},
        ),
        master_key=part(),
        access=part(
            differ("external_auth:pam:alice", auth, "edit it"),
            differ("open_mode", {"m1": True, "m2": False}, "make it the same " * 4),
            differ("external_auth:ldap:password", secret, ""),
        ),
        versions=part(differ("python", {"m1": "3.11", "m2": "3.9"}, "", "note"), status="same"),
        running=part(differ("publisher_acl", file, "restart salt-master on m2")),
        clock=part(),
    )
    shows(
        data,
        """
        keys      2 differ of 10 412
          web07   m1 accepted 3a:9f:12:44:0b:…   m2 absent   → salt-run ha.sync
          db02    m1 accepted 3a:9f:12:44:0b:…   m2 accepted 77:01:c0:ff:ee:…
              → salt-run ha.x
        access    3 differ
          external_auth:pam:alice       m1 [.*, @runner]   m2 absent   → edit it
          open_mode                     m1 true   m2 false
              → make it the same make it the same make it the same make it the same
          external_auth:ldap:password   m1 secret #1   m2 secret #2
        versions  1 note
          python   m1 3.11   m2 3.9
        running   1 differs
          m2 publisher_acl: the file says {ops: [test.*]}, the running master nothing
              → restart salt-master on m2
        master key, clock: same
        """,
    )


def test_what_each_running_master_lacks_is_a_line_for_each_value():
    def lacks(live: str) -> dict[str, str]:
        return {"file": live, "running": "absent"}

    apart = {"m1": lacks("/srv/one/salt"), "m2": lacks("/srv/two/salt")}
    alike = dict.fromkeys(("m1", "m2"), lacks("/srv/salt"))
    fix = "restart salt-master on m1 and m2"
    shows(
        check(running=part(differ("ha:trees:a:live", apart, fix), differ("live", alike, ""))),
        """
        running   2 differ
          m1 ha:trees:a:live: the file says /srv/one/salt, the running master nothing
          m2 ha:trees:a:live: the file says /srv/two/salt, the running master nothing
              → restart salt-master on m1 and m2
          m1, m2 live: the file says /srv/salt, the running master nothing
        """,
    )


def test_a_long_path_is_shown_to_its_end():
    path = "gitfs:https://git.example.org/operations/states.git:feature/x"
    values = {"m1": "85c6f5", "m2": "2c6378"}
    data = check(roots=part(differ(path, values, "fix"), differ("file_roots:dev", values, "")))
    shows(
        data,
        f"""
        roots     2 differ
          {path}
              m1 85c6f5
              m2 2c6378
              → fix
          file_roots:dev   m1 85c6f5   m2 2c6378
        """,
    )


def test_consistency_all_the_same():
    data = check(keys=part(), master_key=part(), access=part())
    shows(data, "m1, m2: all the same (keys, master key, access)")


def test_a_master_alone_has_nothing_to_be_compared_with():
    shows(
        {**check(keys=part(), running=part()), "masters": ["m1"]},
        """
        m1: all the same (keys, running)
        m1 is alone in its group: there is no other master to compare it with
        """,
    )


def test_consistency_with_a_master_that_could_not_be_asked():
    gone = {"m3": "10.0.0.3:4530 timed out"}
    values = {"m1": 1, "m2": 2, "m3": {"unknown": "10.0.0.3:4530 timed out"}}
    data = check(
        keys=part(status="unknown", unknown=gone),
        access=part(differ("token_expire", values, "edit"), unknown=gone),
        running=part(status="unknown", unknown={**gone, "m2": "/etc/salt/master: broken"}),
        clock=part(status="unknown", unknown=gone),
    )
    data.update(masters=["m1", "m2", "m3"], unknown=gone)
    shows(
        data,
        """
        m3 could not be asked: 10.0.0.3:4530 timed out
        access    1 differs
          token_expire   m1 1   m2 2   m3 unknown   → edit
        running   unknown
          m2 unknown: /etc/salt/master: broken
        keys, clock: same on m1, m2, unknown on m3
        """,
    )


def test_clocks_notes_and_what_is_left_out():
    ahead = {"m1": {"offset": 0.0, "error": 0.0}, "m2": {"offset": 3600.04, "error": 0.0015}}
    denied = differ("denied", {"m1": 1, "m2": 0}, "look", "note")
    data = check(
        keys=part(denied, status="same", counts={"differ": 0, "of": 9}),
        roots=part(
            differ("file_roots:base:top.sls", {"m1": "content #1", "m2": "content #2"}, "copy"),
            counts={"differ": 1001, "of": 20000},
            left_out=1000,
            ignored=2,
        ),
        clock=part(differ("clock", ahead, "NTP")),
    )
    shows(
        data,
        """
        keys      1 note
          denied   m1 1   m2 0   → look
        roots     1 001 differ of 20 000
          file_roots:base:top.sls   m1 content #1   m2 content #2   → copy
          … 1 000 more (--out=json has up to 1000)
        clock     1 differs
          clock   m1 +0.0 s   m2 +3600.0 s (± 1.5 ms)   → NTP
        2 differences ignored (ha: consistency: ignore)
        """,
    )


def test_the_status_tells_of_drift():
    at = time.time() - 300
    drift = {"status": "differ", "at": at, "counts": {"access": 1, "roots": 12}, "unknown": {}}
    lines = ha.output(status(consistency=drift)).splitlines()
    assert "masters differ: 1 in access, 12 in roots, 5 m ago" in lines
    assert "  → salt-run ha.check_consistency" in lines
    for fine in (None, {**drift, "counts": {}}):
        assert ha.output(status(consistency=fine)) == ha.output(status())


def test_the_status_never_shows_an_old_comparison_as_a_fresh_one():
    old = {"status": "unknown", "at": time.time() - 300, "unknown": {}, "stale": "it failed"}
    for at, counts, line in (
        (old["at"], {"access": 1}, "compared 5 m ago, 1 in access; it failed"),
        (old["at"], {}, "compared 5 m ago, without a difference; it failed"),
        (0.0, {}, "not compared; it failed"),
    ):
        text = ha.output(status(consistency={**old, "at": at, "counts": counts}))
        assert f"unknown whether masters are the same: {line}" in text.splitlines()
        assert "masters differ: 1" not in text


def test_masters_with_the_same_value_stand_together():
    data = check(ports=part(differ("ret_port", {"m1": 4506, "m2": 4507, "m3": 4506}, "edit")))
    shows(data, "ports     1 differs\n  ret_port   m1, m3 4506   m2 4507   → edit")


def test_long_values_are_cut_where_they_differ():
    one, two = "L@" + "web," * 50 + "db1", "L@" + "web," * 50 + "db2"
    data = check(access=part(differ("nodegroups:all", {"m1": one, "m2": two}, "edit")))
    assert ha.output(data).splitlines()[1:] == [
        "  nodegroups:all   m1 …,web,web,web,db1   m2 …,web,web,web,db2   → edit"
    ]
    assert one in json.dumps(data)


def test_fingerprints_that_begin_alike_are_not_shown_alike():
    other = FP1[:-2] + "ab"
    data = check(keys=part(differ("db02", {"m1": f"accepted {FP1}", "m2": f"accepted {other}"})))
    assert "m1, m2" not in ha.output(data)
    conflict = [{"id": "db02", "keys": {"m1": FP1, "m2": other}}]
    assert FP1 in (text := ha.output(status(conflicts=conflict)))
    assert other in text


def test_many_differences_are_counted_not_scrolled():
    many = [differ(f"web{n}", {"m1": "accepted", "m2": "absent"}) for n in range(2000)]
    lines = ha.output(check(keys=part(*many))).splitlines()
    assert lines[0] == "keys      2 000 differ"
    assert lines[-1] == "  … 1 950 more (--out=json has all)"
    assert len(lines) == 52


def test_colour_does_not_move_columns():
    import salt.utils.color

    plain = ha.output(status())
    ha.__opts__ = {"color": True}
    painted = ha.output(status())
    assert str(salt.utils.color.get_colors(True)["YELLOW"]) + "DEGRADED" in painted
    strip = salt.output.string_format
    assert painted != plain
    assert strip(painted, "txt", {"output": "txt", **minimal()}).strip() == plain


def minimal():
    return salt.config.master_config(None)


def test_a_terminal_without_unicode(monkeypatch):
    class Ascii:
        encoding = "ascii"

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdout", Ascii())
    text = ha.output(status())
    assert text.splitlines()[0].startswith("Group prod - DEGRADED - sync")
    assert text.isascii()


@pytest.mark.parametrize("out", ["ha", None])
def test_through_salt(out):
    opts = minimal()
    if out is None:
        opts["output"] = "json"
    text = salt.output.out_format(status(), "ha", opts)
    if out is None:
        assert json.loads(text) == status()
    else:
        assert text.splitlines()[1].startswith("Master  State")


@pytest.mark.parametrize("data", [{"a": {"b": 1}}, ["a", "b"], "Exception occurred in runner", 7])
def test_anything_else_goes_to_nested(data):
    opts = minimal()
    nested = salt.output.out_format(data, "nested", minimal())
    assert salt.output.out_format(data, "ha", opts) == nested


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (60, "1 m"), (7300, "2 h"), (1e6, "11 d")]
)
def test_durations(seconds, text):
    assert _text.duration(seconds) == text


def test_join_plan():
    data = {
        "kind": "join_plan",
        "group": "prod",
        "test": True,
        "members": ["m1", "m3"],
        "problems": [],
        "key_problems": ["/etc/salt/pki/master/master.pem: another master key is here"],
        "changes": [
            {"master": "the group (m1)", "id": "web1", "from": "absent", "to": f"accepted {FP1}"},
            {"master": "m2", "id": "web2", "from": f"pending {FP1}, denied {FP2}", "to": "deleted"},
        ],
        "conflicts": [{"id": "db1", "keys": {"m2": f"accepted {FP1}"}}],
        "notes": ["m2: its ha engine does not run"],
    }
    text = ha.output(data)
    assert "Would join group prod: m1, m3" in text
    assert "would not be put in place: /etc/salt/pki/master/master.pem" in text
    assert "the group (m1)  web1" in text
    assert "2 changes planned; nothing was changed (test=True)" in text
    assert "1 conflict" in text
    assert "m2: its ha engine does not run" in text
    refused = ha.output({**data, "problems": ["m1 would refuse: the name is taken"]})
    assert "Could not join group prod" in refused
    assert "the name is taken" in refused


def removal(**more):
    key = {
        "id": "backdoor", "fingerprint": FP1, "what": "accepted", "received": 1790000000,
        "from": "m3", "at": 1758464000, "by": "alice", "on": "m1", "why": "", "state": "accepted",
        "to": "pending", "note": "",
    }  # fmt: skip
    other = {**key, "id": "web2", "on": "m3", "state": "rejected", "to": "",
             "note": "decided otherwise since"}  # fmt: skip
    member = {"name": "x1", "introducer": "m3", "added": "2026-09-21T14:00:00+00:00",
              "on": ["m1", "m2"], "fingerprint": FP1}  # fmt: skip
    return {"kind": "removal", "name": "m3", "test": True, "undo": True, "since": 1789900000,
            "members": [member], "keys": [key, other], "knocks": 0, "unknown": {},
            "notes": ["would remove m3 for good"], **more}  # fmt: skip


def test_what_a_removed_member_did(berlin):
    shows(
        removal(unknown={"m4": "it is down"}),
        """
        introduced by m3 since 2026-09-20 12:26:40; would be removed, too:
          x1  pinned 2026-09-21T14:00:00+00:00  on m1, m2
        Received             From  What      Id        Fingerprint       Now       Becomes
        2026-09-21 16:13:20  m3    accepted  backdoor  3a:9f:12:44:0b:…  accepted  pending
            says it was made on m1 by alice, 2025-09-21 16:13:20
        2026-09-21 16:13:20  m3    accepted  web2      3a:9f:12:44:0b:…  rejected  stays
            decided otherwise since
        2 keys decided about by m3 since 2026-09-20 12:26:40
        planned; nothing was changed (test=True)
        m4 could not be asked: it is down
        would remove m3 for good
        """,
    )
    text = ha.output(removal(test=False, undo=False, members=[], keys=[], since=None))
    assert text.splitlines() == [
        "would remove m3 for good",
        "no key is known that m3 decided about",
    ]
