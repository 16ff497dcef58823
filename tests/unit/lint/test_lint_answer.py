"""The answer of ``ha.lint``: what was chosen, what is unknown, exit codes, and how it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.lint import ask, check, collect, wire
from saltext_ha.lint.model import MASTER, MINION, Hit
from saltext_ha.lint.rules import RULES
from saltext_ha.output import ha as outputter
from saltext_ha.runners import ha as runner
from tests.unit.lint.linting import answer, configured, peer

pytestmark = pytest.mark.core


def test_exit_codes() -> None:
    assert (answer()["retcode"], answer()["status"]) == (0, "clean")
    assert (answer("HA708")["retcode"], answer("HA708")["status"]) == (0, "clean"), "only a hint"
    assert (answer("HA501")["retcode"], answer("HA501")["status"]) == (1, "findings")
    assert answer("HA502")["retcode"] == 1
    unknown = answer("HA502", unknown={"m2": "timed out"})
    assert (unknown["retcode"], unknown["status"]) == (2, "unknown")
    assert answer(unknown={"m2": "timed out"})["retcode"] == 2, "unknown is never clean"


def test_only_and_ignore() -> None:
    both = ("HA502", "HA501")
    assert [f["code"] for f in answer(*both, only=frozenset({"HA501"}))["findings"]] == ["HA501"]
    left = answer(*both, ignore=frozenset({"HA502"}))
    assert ([f["code"] for f in left["findings"]], left["ignored"]) == (["HA501"], 1)
    assert [f["code"] for f in answer(*both)["findings"]] == ["HA502", "HA501"], "errors first"


def test_of_a_file_that_cannot_be_read_no_rule_says_that_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "minion"
    running = configured(tmp_path, MINION, "master: [10.0.0.1\n")
    found = ask.minion(running, only="HA307")
    assert (found["findings"], found["retcode"], found["status"]) == ([], 2, "unknown")
    assert found["unknown"].keys() == {f"web1: {path}"}
    named = ask.minion(running, only="HA001")
    assert ([f["code"] for f in named["findings"]], named["unknown"]) == (["HA001"], {})
    everything = ask.minion(running)
    assert ("HA001" in {f["code"] for f in everything["findings"]}, everything["unknown"]) == (
        True,
        {},
    )
    assert ask.minion(running, ignore="HA001")["retcode"] == 0
    path.write_text("master: 10.0.0.1\n")
    assert ask.minion(running, only="HA307")["retcode"] == 0


def test_codes_are_read_as_people_write_them() -> None:
    for written in ("HA101,ha103", "HA101 HA103", ["HA101", "HA103"]):
        assert check.codes(written, "only") == {"HA101", "HA103"}
    assert check.codes("", "only") == check.codes(None, "only") == frozenset()
    for wrong in ("HA999", "all", 7, {"HA101": 1}):
        with pytest.raises(HaError, match="only"):
            check.codes(wrong, "only")
    with pytest.raises(HaError, match="ha: lint"):
        check.configured({"ha": {"lint": ["HA101"]}})
    with pytest.raises(HaError, match="HA999"):
        check.configured({"ha": {"lint": {"ignore": ["HA999"]}}})


def test_a_rule_that_fails_is_unknown_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(facts: object) -> Iterator[Hit]:
        yield Hit("open_mode", "half of it")
        raise TypeError("hunter2")

    broken = [
        dataclasses.replace(rule, check=fails) if rule.code in ("HA301", "HA501", "HA707") else rule
        for rule in RULES
    ]
    monkeypatch.setattr(check, "RULES", broken)
    running = configured(tmp_path, MINION, "master: 10.0.0.1\nopen_mode: true\n")
    found = ask.minion(running)
    assert [f["code"] for f in found["findings"]] == ["HA307"]
    assert found["unknown"].keys() == {"HA301"}
    assert "this rule failed (TypeError in test_lint_answer.py:" in found["unknown"]["HA301"]
    assert "hunter2" not in str(found)
    assert (found["status"], found["retcode"]) == ("unknown", 2)
    for asked in ({"only": "HA307"}, {"ignore": "HA301"}):
        assert ask.minion(running, **asked)["unknown"] == {}
    with pytest.raises(TypeError):
        check.inspect("web1", collect.of_minion(running))
    running = configured(tmp_path, MASTER, f"root_dir: {tmp_path}\nid: m1\n")
    answers = {"m2": ask.for_peer("m2", running)}
    found = ask.group("m1", running, answers, {}, {})
    assert found["unknown"].keys() == {"HA501", "HA707", "m2: HA501"}
    found = ask.group("m1", running, answers, {}, {"ignore": ["HA501"]})
    assert found["unknown"].keys() == {"HA707"}
    ignoring = f"root_dir: {tmp_path}\nid: m1\nha: {{lint: {{ignore: [HA501]}}}}\n"
    running = configured(tmp_path, MASTER, ignoring)
    assert ask.for_peer("m2", running)["unknown"] == {}


def test_a_rule_that_is_not_about_these_files_finds_nothing_in_them(tmp_path: Path) -> None:
    """It is not clean: nobody looked."""
    of_minion = configured(tmp_path, MINION, "master: 10.0.0.1\n")
    with pytest.raises(HaError, match=r"HA501, HA701: about masters; ask  salt-run ha\.lint"):
        ask.minion(of_minion, only="HA001,HA501,HA701")
    running = configured(tmp_path, MASTER, f"root_dir: {tmp_path}\nid: m1\n")
    with pytest.raises(HaError, match=r"HA101: about minions; ask  salt MINION ha\.lint"):
        ask.master(running, only="HA001,HA101,HA701")
    with pytest.raises(HaError, match="HA101: about minions"):
        ask.group("m1", running, {}, {}, {"only": ["HA101"]})
    # Who ignores both leaves out both.
    assert ask.minion(of_minion, ignore="HA501")["retcode"] == 0


def test_a_minion_ignores_what_its_configuration_says(tmp_path: Path) -> None:
    text = "master: 10.0.0.1\nopen_mode: true\n"
    running = configured(tmp_path, MINION, text)
    assert ask.minion(running)["retcode"] == 1
    assert ask.minion(running, ignore="HA307")["retcode"] == 0
    configured(tmp_path, MINION, f"{text}ha: {{lint: {{ignore: [HA307]}}}}\n")
    found = ask.minion(running)
    assert (found["retcode"], found["ignored"], found["findings"]) == (0, 1, [])


def test_a_master_without_its_engine_leaves_the_others_unknown(tmp_path: Path) -> None:
    path = tmp_path / "master"
    running = configured(tmp_path, MASTER, f"root_dir: {tmp_path}\nid: m1\nopen_mode: true\n")
    runner.__opts__ = {**running, "sock_dir": str(tmp_path)}
    runner.__context__ = {}
    found = runner.lint()
    assert (found["retcode"], runner.__context__["retcode"]) == (2, 2)
    assert "engine of this master is not running" in found["unknown"]["other masters"]
    assert [f["code"] for f in found["findings"]] == ["HA502"]
    # A broken ha: mapping is what lint is for, and must not stop it.
    runner.__opts__ = {**running, "sock_dir": str(tmp_path), "ha": {"zzz": 1}}
    assert "zzz" in runner.lint()["unknown"]["other masters"]
    for wrong in ("true", "5", "[5]"):
        path.write_text(f"root_dir: {tmp_path}\nid: m1\nha: {wrong}\n")
        assert runner.lint()["unknown"].keys() == {"other masters"}
    assert "no rule HA999" in runner.lint(only="HA999")["error"]


def test_what_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("no folder")
    text = f"master: [10.0.0.1, 10.0.0.2]\npki_dir: {tmp_path}/pki\n"
    running = configured(tmp_path, MINION, f"{text}verify_master_pubkey_sign: true\n")
    found = ask.minion(running, only="HA301")
    assert (found["findings"], found["retcode"]) == ([], 2)
    assert f"{tmp_path}/pki/master_sign.pub" in found["unknown"]


def test_how_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputter, "__opts__", {"color": False}, raising=False)
    sent = peer()
    _, findings, unknown = wire.from_wire("m2", {**sent, "findings": sent["findings"] * 2})
    data = check.answer(findings, check.Choice(), ["m2"], unknown)
    assert outputter.output(data) == (
        "master key could not be looked at: why\n"
        "HA502 error  m2  f:1  open_mode\n    t · d\n    w\n    → f\n"
        "HA502 error  m2  f:1  open_mode\n    t · d\n"
        "m2: 2 errors"
    )
    clean = check.answer([], check.Choice(), ["web1"], {})
    some = check.answer([], check.Choice(frozenset({"HA101", "HA103"})), ["web1"], {})
    assert outputter.output(some) == "web1: none of HA101, HA103"
    # As salt and salt-call hand it over: by minion.
    assert outputter.output({"web1": clean, "web2": clean}) == (
        "web1: no known traps\nweb2: no known traps"
    )
