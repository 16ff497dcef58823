"""What ``ha.deploy``, ``ha.rollback`` and ``ha.deployments`` show: whole tables, as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from saltext_ha.output import ha
from tests.unit.output.conftest import shows

VERSION = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def row(path: str, size: int = 0, kind: str = "file") -> dict[str, Any]:
    return {"path": path, "kind": kind, "size": size}


def tree(**changes: Any) -> dict[str, Any]:
    return {
        "tree": "states", "secret": False, "source": "/srv/git (git 0123abcd4567 main)",
        "version": VERSION, "number": None, "current": 7, "same": False, "files": 1200,
        "size": 3_400_000, "counts": {"added": 2, "changed": 1, "removed": 1},
        "added": [row("new", kind="folder"), row("new.sls", 12)], "changed": [row("top.sls", 2100)],
        "removed": [row("old.sls", 5)],
        "diff": ["--- a/top.sls", "+++ b/top.sls", "@@ -1 +1 @@", "-one", "+two\x1b[31m"],
        "conflict": "", "edits": {}, **changes,
    }  # fmt: skip


def deploy(*trees: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "kind": "deploy", "test": False, "trees": list(trees), "masters": {"m1": "", "m2": ""},
        "left_out": [], "adopt": {}, "unknown": {}, "retcode": 0, **changes,
    }  # fmt: skip


def test_a_plan() -> None:
    shows(
        deploy(tree(), test=True, left_out=["m3"]),
        """
        tree states from /srv/git (git 0123abcd4567 main): 1 200 files, 3.4 MB
          + new/
          + new.sls  12 B
          ~ top.sls  2.1 kB
          - old.sls
          --- a/top.sls
          +++ b/top.sls
          @@ -1 +1 @@
          -one
          +two?[31m
          2 added, 1 changed, 1 removed
        m3 is left out; it follows as soon as it can
        planned; nothing was changed (test=True)
        """,
    )


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (True, "what is live on m1, m2 was put there by hand: it needs adopt=True, and is kept"),
        (False, "what was live on m1, m2 before is kept beside"),
    ],
)
def test_what_was_live_before(test: bool, said: str) -> None:
    text = ha.output(deploy(tree(number=1), test=test, adopt={"states": ["m1", "m2"]}))
    assert f"\ntree states: {said}" in text


def test_what_is_replaced_of_another_master() -> None:
    text = ha.output(
        deploy(tree(replaces="deployment 7, made on m2 by root from /srv/git"), test=True)
    )
    assert "3.4 MB\n  replaces deployment 7, made on m2 by root from /srv/git\n  + new/\n" in text


def test_a_plan_that_is_long_says_how_much_more_there_is() -> None:
    many = [row(f"{number:04}.sls", 1) for number in range(1000)]
    text = ha.output(
        deploy(
            tree(added=many, counts={"added": 5000, "changed": 0, "removed": 0}, diff=[]), test=True
        )
    )
    assert "  + 0019.sls  1 B\n  + … 4 980 more added\n" in text
    assert "0020.sls" not in text


def test_differences_have_colours_where_the_terminal_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ha, "__opts__", {"color": True}, raising=False)
    lines = ha.output(deploy(tree(), test=True)).splitlines()
    painted = {line for line in lines if "\x1b[" in line}
    for text in ("-one", "+two", "@@ -1 +1 @@"):
        assert any(text in line for line in painted), text
    assert not any("\x1b[31m" in line and "two" in line for line in lines)


def test_what_was_done() -> None:
    shows(
        deploy(tree(number=8)),
        """
        tree states from /srv/git (git 0123abcd4567 main): 1 200 files, 3.4 MB
          + new/
          + new.sls  12 B
          ~ top.sls  2.1 kB
          - old.sls
          deployment 8: 2 added, 1 changed, 1 removed
        live on m1, m2
        """,
    )


def nothing(**changes: Any) -> dict[str, Any]:
    none: dict[str, Any] = {"added": [], "changed": [], "removed": []}
    counts = dict.fromkeys(none, 0)
    return tree(**{**none, "counts": counts, "diff": [], "files": 1, "size": 5, **changes})


def test_where_there_is_nothing_to_do() -> None:
    shows(
        deploy(nothing(same=True)),
        """
        tree states from /srv/git (git 0123abcd4567 main): 1 file, 5 B
          nothing changes
        nothing to do: live on m1, m2 already
        """,
    )


def test_edits_conflicts_and_masters_that_are_late() -> None:
    shows(
        deploy(
            nothing(
                number=9,
                conflict="different versions",
                edits={"m2": {"count": 6, "paths": ["a", "b", "c", "d", "e", "f\n"]}},
            ),
            masters={"m1": "", "m2": "No space left on device", "m3": "is no peer any more"},
            retcode=2,
        ),
        """
        tree states from /srv/git (git 0123abcd4567 main): 1 file, 5 B
          conflict: different versions
          edited by hand on m2: 6 files (a, b, c, d, e); the folder is kept beside
          deployment 9: nothing changes
        m2: No space left on device
        m3: is no peer any more
        live on m1
        """,
    )


def entry(number: int, live_on: list[str], **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "version": VERSION, "at": 0.0, "by": "root", "on": "m1",
        "source": "/srv/git", "message": "", "files": 1200, "size": 1, "live_on": live_on,
        **changes,
    }  # fmt: skip


def deployments(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    shown = {
        "tree": "states", "live": "/srv/salt", "source": "", "secret": False, "current": 2,
        "conflict": "", "deployments": list(entries), "masters": {}, "edits": {}, **changes,
    }  # fmt: skip
    return {"kind": "deployments", "trees": [shown], "unknown": {}, "retcode": 0}


def test_deployments() -> None:
    text = ha.output(deployments(entry(10, []), entry(2, ["m1", "m2"], message="nginx 1.28")))
    head, column, first, told, second, more = text.splitlines()
    assert head == "tree states: /srv/salt"
    assert column.split() == ["No", "When", "By", "Files", "Version", "Live", "on"]
    assert first.split()[0] == "10"
    assert first.endswith("root on m1  1 200  0123456789ab  -")
    assert told == "      /srv/git"
    assert second.split()[:2] == ["2", "*"]
    assert second.endswith("0123456789ab  m1, m2")
    assert more == "      /srv/git: nginx 1.28"


def test_no_version_of_a_secret_tree_is_shown() -> None:
    text = ha.output(deployments(entry(2, ["m1"], version=""), secret=True))
    assert text.splitlines()[2].endswith("1 200           m1")


def test_what_is_odd_about_deployments() -> None:
    text = ha.output(
        deployments(conflict="different versions", edits={"m2": {"count": 1, "paths": ["top.sls"]}})
    )
    assert "nothing was deployed yet: salt-run ha.deploy test=True" in text
    assert "  conflict: different versions" in text
    again = "salt-run ha.rollback 2 tree=states serves the deployed ones, and keeps these beside"
    assert f"  edited by hand on m2: 1 file (top.sls): {again}" in text
    of_two = ha.output(deployments(current=None, edits={"m2": {"count": 1, "paths": ["top.sls"]}}))
    assert of_two.endswith("  edited by hand on m2: 1 file (top.sls)")


def test_a_master_that_serves_no_deployment_is_named() -> None:
    """The exit code is 1 because of it."""
    where = {"m1": 2, "m2": "not configured", "m3": "a folder of its own", "m4": "unknown"}
    lines = ha.output(deployments(entry(2, ["m1"]), masters=where)).splitlines()
    assert lines[-2:] == [
        "  m2 lacks it: ha: trees: has no states there, or salt-master was not restarted",
        "  m3 serves a folder of its own: its note in salt-run ha.status says why",
    ]
    assert "not configured" not in ha.output(deployments(masters={"m2": "not configured"}))


def test_a_change_that_no_diff_shows_is_that_of_permissions() -> None:
    changed = {**row("check.sh", 5), "mode": "644 → 755"}
    assert "  ~ check.sh  5 B  mode 644 → 755\n" in ha.output(deploy(tree(changed=[changed])))


def test_a_live_folder_that_is_not_compared_is_told() -> None:
    told = "not compared with what is live here, to which no ha.rollback leads back: /srv/salt: why"
    assert f"  {told}\n" in ha.output(deploy(tree(unread="/srv/salt: why")))
    assert "not compared" not in ha.output(deploy(tree(unread="")))


def test_what_becomes_open_to_other_users_is_told() -> None:
    told = "  what is live here is closed to other users, and this tree is open to them: secret: "
    assert told in ha.output(deploy(tree(opens=True)))
    assert "secret: true" not in ha.output(deploy(tree(opens=False)))


def test_owners_of_the_source_are_named_in_a_plan() -> None:
    said = "owned by deploy, 12345 in the source; on the masters by the user of salt-master"
    assert said in ha.output(deploy(tree(owners=["deploy", "12345"]), test=True))
    assert "owned by" not in ha.output(deploy(tree(owners=[]), test=True))


def test_deployments_stand_in_the_history() -> None:
    line = {
        "id": "", "tree": "states", "at": 1.7e9, "on": "m1", "by": "root", "what": "deployed 7",
        "state": None, "fingerprint": None, "why": "/srv/git (git 0123 main): nginx",
        "decisions": [],
        "received": 1.7e9, "from": "m1",
    }  # fmt: skip
    key = {**line, "id": "web1", "tree": "", "what": "accepted", "why": ""}
    shows(
        {"kind": "history", "writes": [line, key], "more": False, "retcode": 0},
        """
        When (UTC)           Where  Who   What        Id           Fingerprint
        2023-11-14 22:13:20  m1     root  deployed 7  tree states  -
            /srv/git (git 0123 main): nginx
        2023-11-14 22:13:20  m1     root  accepted    web1         -
        """,
    )
