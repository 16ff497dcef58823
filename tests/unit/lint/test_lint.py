"""Each rule of ``ha.lint``: files that fire exactly it, and the mended ones that fire nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import salt.config
import yaml

from saltext_ha.common.errors import ConfigError, HaError, InvalidRecord
from saltext_ha.lint import ask, check, collect, page, sources, wire
from saltext_ha.lint.model import INFO, MASTER, MINION, Hit, HostFacts, Member
from saltext_ha.lint.rules import CODES, RULES
from saltext_ha.lint.rules.master import no_signature
from saltext_ha.output import ha as outputter
from saltext_ha.runners import ha as runner
from tests.unit.lint.linting import (
    BASES,
    CASES,
    GROUPS,
    LAST,
    NEWEST,
    Case,
    configured,
    facts_of_text,
    hits,
    inspect,
    master,
    members,
    minion,
    salt_is,
)

pytestmark = pytest.mark.core

ALONE = [case for case in CASES if "group" not in case]
BY_CODE = {rule.code: rule for rule in RULES}
REPOSITORY = Path(__file__).parents[3]


def role_of(case: Case) -> str:
    return MASTER if case["base"] in ("master", "cluster") else MINION


def write(root: Path, case: Case, fixed: bool = False) -> Path:
    """The configuration of *case* as files; the main one."""
    role = role_of(case)
    changes = {**case.get("config", {}), **(case.get("fixed", {}) if fixed else {})}
    config = {"root_dir": str(root), "id": "web1" if role == MINION else "m1"}
    config = {**config, **BASES[case["base"]], **changes}
    text = yaml.safe_dump({k: v for k, v in config.items() if v is not None}, sort_keys=False)
    path = root / role
    path.write_text(case["text"] if "text" in case and not fixed else text)
    folder = root / f"{role}.d"
    folder.mkdir(exist_ok=True)
    included = case.get("included")
    if fixed:
        included = case.get("fixed_included", included)
    for name, values in (("a", included), ("b", case.get("included_too"))):
        if values is not None:
            (folder / f"{name}.conf").write_text(yaml.safe_dump(values))
    if not fixed or "default_include" in changes:
        for name in case.get("unread", []):
            (folder / name).write_text("timeout: 7\n")
    pki = root / "etc/salt/pki" / role
    pki.mkdir(parents=True, exist_ok=True)
    files = {**case.get("files", {}), **(case.get("fixed_files", {}) if fixed else {})}
    for name, content in files.items():
        (pki / name).write_text(content)
    return path


def facts_of(
    root: Path, case: Case, monkeypatch: pytest.MonkeyPatch, fixed: bool = False
) -> HostFacts:
    known = {
        host: None if ips is None else frozenset(ips)
        for host, ips in case.get("addresses", {}).items()
    }
    monkeypatch.setattr(collect, "addresses", lambda masters: known)  # the name service
    path = write(root, case, fixed)
    pki_dir = root / "etc/salt/pki" / role_of(case)
    running = {"conf_file": str(path), "pki_dir": str(pki_dir), "id": "web1"}
    major, _, minor = str(case.get("salt", NEWEST[0])).partition(".")
    version = (int(major), int(minor or LAST))
    salt_is(version[0], monkeypatch)
    found = collect.of_minion(running) if role_of(case) == MINION else collect.of_master(running)
    told = {}
    for address, port in case.get("told", {}).items():
        host, _, request = address.partition(":")
        told[host, int(request)] = port
    shared = case.get("fixed_shared" if fixed else "shared", case.get("shared", {}))
    owner = "" if fixed else case.get("state_owner", "")
    checkouts = case.get("checkouts", ())
    edited = () if fixed else case.get("edited", ())
    return dataclasses.replace(
        found,
        told=told,
        shared=shared,
        version=version,
        state_owner=owner,
        checkouts=checkouts,
        edited=edited,
    )


def title(case: Case) -> str:
    return f"{case['code']}-{CASES.index(case)}"


def test_every_rule_has_a_case() -> None:
    assert {case["code"] for case in CASES} == CODES
    assert len(RULES) == len(CODES), "a code stands twice"
    assert all(re.fullmatch(r"HA\d{3}", code) for code in CODES)


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_fires_exactly_it(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = inspect(facts_of(tmp_path, case, monkeypatch))
    assert {finding["code"] for finding in findings} == {case["code"]}
    for finding in findings:
        line = line_at(finding)
        if line and case["code"] != "HA001":
            # The option itself, an entry of it, or what makes a default that is not written matter.
            near = (finding["option"], "- ", "master_type", "cluster_id", "master:")
            assert line.lstrip().startswith(near), finding


def line_at(finding: check.Finding) -> str:
    if not finding["line"]:
        return ""
    lines = Path(finding["file"]).read_text().splitlines()
    return lines[finding["line"] - 1] if finding["line"] <= len(lines) else ""


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_mended_nothing_fires(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "included_too" in case:
        case = {key: value for key, value in case.items() if key != "included_too"}
        case["fixed_included"] = {**case["included"]}
    assert inspect(facts_of(tmp_path, case, monkeypatch, fixed=True)) == []


@pytest.mark.parametrize("case", ALONE, ids=title)
def test_only_on_the_releases_that_have_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_of(tmp_path, case, monkeypatch)
    rule = BY_CODE[case["code"]]
    for release in (3006, 3007, 3008):
        there = dataclasses.replace(facts, version=(release, facts.version[1]))
        fires = case["code"] in {finding["code"] for finding in inspect(there)}
        assert fires == rule.holds_on((release, 1)), release


@pytest.mark.parametrize("case", GROUPS, ids=title)
def test_masters_beside_each_other(case: Case) -> None:
    findings = check.compare(members(case["group"]))
    assert {finding["code"] for finding in findings} == {case["code"], *case.get("beside", ())}
    for finding in findings:
        assert finding["on"] in ("m1", "m2")
        written = finding["option"] in case["group"][int(finding["on"][1]) - 1]
        assert (finding["file"], finding["line"]) == (
            ("/etc/salt/master", 7) if written else ("", 0)
        )
    assert check.compare(members(case["fixed_group"])) == []
    assert check.compare(members(case["group"])[:1]) == [], "one master differs from nobody"


# -- where an option stands


def test_the_last_file_in_salts_order_holds(tmp_path: Path) -> None:
    main = tmp_path / "minion"
    main.write_text(
        "# first\nmaster: a\nlog_level: info\ninclude:\n  - extra/*.conf\n  - one.conf\n"
    )
    for name, text in {
        "minion.d/a.conf": "\nlog_level: debug\ntimeout: 1\n",
        "minion.d/b.conf": "timeout: 2\ninclude: ../nested.conf\n",
        "nested.conf": "\n\n\nretry_dns: 3\n",
        "extra/z.conf": "log_level: error\n",
        "one.conf": "master: [b,\n  c]\n",
        "minion.d/not.txt": "timeout: 9\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    read = sources.read(str(main), "minion.d/*.conf")
    places = {
        option: (str(Path(place.file).resolve().relative_to(tmp_path.resolve())), place.line)
        for option, place in read.places().items()
    }
    assert places == {
        "master": ("one.conf", 1),
        "log_level": ("extra/z.conf", 1),
        "include": ("minion.d/b.conf", 2),
        "timeout": ("minion.d/b.conf", 1),
        "retry_dns": ("nested.conf", 4),
    }
    assert read.places()["master"].items == (1, 2)
    assert read.problems == []
    options = collect.of_minion({"conf_file": str(main), "id": "x"}).options
    assert (options["timeout"], options["log_level"], options["retry_dns"]) == (2, "error", 3)
    assert options["master"] == ["b", "c"], "what Salt itself merges"


def test_a_proxy_minion_has_files_of_its_own_besides_those_of_all(tmp_path: Path) -> None:
    for name, text in {
        "proxy": f"root_dir: {tmp_path}\n",
        "proxy.d/masters.conf": "master: [10.0.0.1, 10.0.0.2]\nmaster_type: failover\n",
        "proxy.d/p1/own.conf": "timeout: 7\nverify_master_pubkey_sign: true\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    running = salt.config.proxy_config(str(tmp_path / "proxy"), minion_id="p1")
    facts = collect.of_minion({**running, "proxyid": "p1"})
    assert (facts.masters, facts.options["timeout"]) == (["10.0.0.1", "10.0.0.2"], 7)
    (found,) = hits(facts, "HA201")
    assert found["file"] == f"{tmp_path}/proxy.d/masters.conf"
    (found,) = hits(facts, "HA301")
    assert (found["file"], found["line"]) == (f"{tmp_path}/proxy.d/p1/own.conf", 2)
    assert found["detail"] == f"{running['pki_dir']}/master_sign.pub is not there"
    assert running["pki_dir"].endswith("pki/proxy")


@pytest.mark.parametrize(
    ("text", "line"),
    [("master: [a\n", 2), ("a: 1\nb: 2\na: 3\n", 3), ("just text\n", 1), ("master: \t- x", 1)],
)
def test_a_file_that_salt_cannot_read_is_a_finding(tmp_path: Path, text: str, line: int) -> None:
    facts = master(tmp_path, text)
    (finding,) = hits(facts, "HA001")
    assert (finding["file"], finding["line"]) == (f"{tmp_path}/master", line)


@pytest.mark.parametrize("role", [MASTER, MINION])
@pytest.mark.parametrize("option", ["hash_type", "fileserver_backend", "sock_dir"])
def test_a_value_that_salt_fails_on_is_a_finding(tmp_path: Path, role: str, option: str) -> None:
    """All that was below it is a comment now."""
    running = configured(tmp_path, role, "timeout: 7\n", a=f"log_level: info\n{option}:\n")
    facts = collect.of_minion(running) if role == MINION else collect.of_master(running)
    (finding,) = hits(facts, "HA001")
    assert (finding["file"], finding["line"]) == (f"{tmp_path}/{role}.d/a.conf", 2)
    assert f'opts["{option}"]' in finding["detail"]


def test_a_driver_that_salt_fails_in_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: Any) -> None:
        raise OSError("403: token hunter2")

    monkeypatch.setattr(salt.config, "apply_sdb", denied)
    (finding,) = hits(master(tmp_path, "timeout: 7\n"), "HA001")
    assert finding["file"] == f"{tmp_path}/master"
    assert finding["detail"].startswith("Salt fails with OSError, in ")
    assert "hunter2" not in str(finding)


def test_masters_in_one_file_are_all_there(tmp_path: Path) -> None:
    both = "master: [10.0.0.1, 10.0.0.2]\n"
    assert hits(minion(tmp_path, "include: minion.d/*.conf\n", a=both), "HA004") == []
    assert hits(minion(tmp_path, "", a=both, b="master: [10.0.0.2]\n"), "HA004") == []


def test_a_file_with_another_ending_is_read_where_it_is_included(tmp_path: Path) -> None:
    (tmp_path / "master.d").mkdir()
    for name in ("ha.yaml", "README", "old.conf.bak", "x.conf"):
        (tmp_path / "master.d" / name).write_text("timeout: 7\n")
    assert master(tmp_path, "include: master.d/ha.yaml\n").left_out == []


@pytest.mark.parametrize("option", ["default_include", "include"])
def test_an_empty_include_leads_nowhere(option: str, tmp_path: Path) -> None:
    folder = tmp_path / "salt"
    folder.mkdir()
    (tmp_path / "netplan.yaml").write_text("network: {}\n")
    facts = master(folder, f"{option}: ''\n")
    assert (facts.left_out, facts.problems) == ([], [])


def test_a_folder_that_may_not_be_listed_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "master.d"
    folder.mkdir()
    (folder / "site.conf").write_text("open_mode: true\n")

    def denying(function: Any) -> Any:
        def as_another_user(path: Any = ".", *args: Any) -> Any:  # root may list all
            if str(path) == str(folder):
                raise PermissionError(13, "Permission denied", str(folder))
            return function(path, *args)

        return as_another_user

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, denying(getattr(os, name)))
    facts = master(tmp_path, "default_include: master.d/*.conf\n")
    (finding,) = hits(facts, "HA001")
    assert (finding["file"], finding["detail"]) == (str(folder), "Permission denied")


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2 x", "{? [hunter2] : x}"])
def test_a_password_that_is_no_yaml_is_not_quoted(tmp_path: Path, value: str) -> None:
    facts = master(tmp_path, f"mine.password: {value}\n")
    (finding,) = hits(facts, "HA001")
    assert finding["line"] == 1
    assert finding["detail"]
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize(
    "line",
    ["publish_port: 4507\t# ours", "publish_port:\t4507", "publish_port: 4507\t", "x: [1,\t2]"],
)
def test_a_tab_that_salt_takes_makes_no_file_unreadable(tmp_path: Path, line: str) -> None:
    facts = master(
        tmp_path, f"# first\n{line}\nopen_mode: true\nengines:\n  - ha: {{}}\n  - logstash\n"
    )
    assert facts.problems == []
    (finding,) = check.inspect("m1", facts)
    assert (finding["code"], finding["line"]) == ("HA502", 3)
    assert facts.places["engines"].items == (5, 6)


@pytest.mark.parametrize(
    ("option", "main", "included", "lost"),
    [
        ("external_auth", "{pam: {alice: [.*]}}", "{pam: {bob: [test.*]}}", "pam: alice"),
        ("external_auth", "{pam: {alice: [.*, '@wheel']}}", "{pam: {alice: [.*]}}",
         "pam: alice: @wheel"),
        ("external_auth", "{pam: {alice: [.*]}}", "{pam: }", "pam: alice"),
        ("file_roots", "{base: [/srv/a, /srv/b]}", "{base: [/srv/c]}",
         "base: /srv/a, base: /srv/b"),
        ("ha", "{name: m1, trees: {s: {live: /s}}}", "{name: m1, trees: {t: {live: /t}}}",
         "trees: s"),
        ("my", "{api: {password: [hunter2]}}", "{api: {password: []}}",
         "api: password: 1 entry"),
        ("my", "{api: {password: [hunter2, hunter3]}}", "{api: {password: []}}",
         "api: password: 2 entries"),
        ("my", "{a: [{'https://hunter2@h/x': 1}]}", "{a: []}", "a: …"),
        ("my", "{a: {'https://hunter2@h/x': 1}}", "{a: {}}", "a: …"),
        ("my", "{a: ['https://u:hunter2@h/x']}", "{a: []}", "a: …"),
        ("ext_pillar", "[{git: [a, b]}, {cmd_yaml: x}]", "[{git: [a]}]", "git, cmd_yaml"),
        ("ext_pillar", "[{git: [a]}]", "[{git: x}]", "git"),
        ("ext_pillar", "[{cmd_yaml: a}, {cmd_yaml: b}]", "[{cmd_yaml: a}]", "cmd_yaml"),
        ("beacons", "{disk: [{/: 80%}, {/var: 70%}]}", "{disk: [{/: 90%}]}", "disk: /var"),
        ("beacons", "{load: [{a: {x: 1}}]}", "{load: [{a: {x: 2}}]}", "load: a"),
        ("my", "[{name: a, url: b}]", "[{name: c, url: b}]", "name and url"),
    ],
)  # fmt: skip
def test_what_is_lost_below_the_first_level(
    option: str, main: str, included: str, lost: str, tmp_path: Path
) -> None:
    facts = master(tmp_path, f"id: m1\n{option}: {main}\n", b=f"{option}: {included}\n")
    (found,) = hits(facts, "HA002")
    assert (found["line"], found["option"]) == (2, option)
    assert found["detail"] == f"{tmp_path}/master.d/b.conf:1 replaces it; lost: {lost}"


def test_what_include_names_replaces_what_the_folder_has(tmp_path: Path) -> None:
    (tmp_path / "late.conf").write_text("publisher_acl: {alice: [test.*]}\n")
    early = "timeout: 5\npublisher_acl: {bob: [test.*]}\n"
    facts = master(tmp_path, "id: m1\ninclude: late.conf\n", b=early)
    assert facts.options["publisher_acl"] == {"alice": ["test.*"]}, "what Salt itself merges"
    (found,) = hits(facts, "HA002")
    assert (found["file"], found["line"]) == (f"{tmp_path}/master.d/b.conf", 2)
    assert found["detail"] == f"{tmp_path}/late.conf:1 replaces it; lost: bob"


def test_a_single_master_in_a_later_file_takes_the_place_of_a_list(tmp_path: Path) -> None:
    """``salt-bootstrap -A`` writes such a file."""
    address = "master: 10.0.0.1\n"
    facts = minion(tmp_path, "", **{"50-ha": "master: [10.0.0.1, 10.0.0.2]\n", "99-one": address})
    assert facts.masters == ["10.0.0.1"], "what Salt itself merges"
    (found,) = hits(facts, "HA002")
    assert found["file"] == f"{tmp_path}/minion.d/50-ha.conf"
    assert found["detail"] == f"{tmp_path}/minion.d/99-one.conf:1 replaces it; lost: 10.0.0.2"
    assert hits(minion(tmp_path, "", **{"50-ha": "master: [10.0.0.2]\n"}), "HA002") == []


WRONG = ["true", "5", "text", "[5]", "[[x]]", "[{a: 1}]", "{a: 1}", "&a [*a]", "&a {a: *a}", ""]


@pytest.mark.parametrize(
    "text",
    [
        *(f"engines: [ha: {{}}]\nha: {{{key}: %s}}\n" for key in ("once", "masters", "trees")),
        *(f"engines: [ha: {{}}]\n{option}: %s\n" for option in ("reactor", "schedule")),
        *(f"engines: [ha: {{}}]\nha: {{trees: {{s: {{live: /s}}}}}}\n{option}: %s\n"
          for option in ("ext_pillar", "fileserver_backend", "my_option")),
        *(f"{option}: %s\n" for option in ("ha", "include", "default_include", "pki_dir")),
        *(f"cluster_id: c\n{option}: %s\n" for option in ("cluster_peers", "ha")),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_ends_in_an_answer(text: str, tmp_path: Path) -> None:
    for number, wrong in enumerate(WRONG):
        folder = tmp_path / str(number)
        folder.mkdir()
        facts = master(folder, f"id: m1\nroot_dir: {tmp_path}\n{text % wrong}")
        mine = collect.member("m1", facts)
        peer, *_ = wire.from_wire("m2", wire.to_wire(mine, check.inspect("m1", facts), {}))
        check.compare([mine, peer])


@pytest.mark.parametrize("option", ["include", "default_include"])
def test_an_include_that_salt_cannot_follow_is_a_finding(option: str, tmp_path: Path) -> None:
    facts = minion(tmp_path, f"master: 10.0.0.1\n{option}: true\n")
    (found,) = check.inspect("x", facts)
    assert (found["code"], found["file"]) == ("HA001", f"{tmp_path}/minion")
    assert found["detail"].endswith("takes a path or a list, not bool")


def test_a_mapping_that_contains_itself_in_two_files(tmp_path: Path) -> None:
    facts = minion(tmp_path, "master: 10.0.0.1\n", **dict.fromkeys("ab", "x: &a {x: *a}\n"))
    unknown: dict[str, str] = {}
    (found,) = check.inspect("x", facts, unknown)
    assert (found["code"], Path(found["file"]).name) == ("HA001", "b.conf")
    assert unknown.keys() == {"HA002"}


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
    assert "this rule failed (TypeError in test_lint.py:" in found["unknown"]["HA301"]
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


def test_no_file_at_all_is_an_error_and_no_clean_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        ask.minion({"conf_file": str(tmp_path / "minion"), "id": "x"})


def test_only_what_is_included_is_there(tmp_path: Path) -> None:
    """As where Salt came by pip, which brings no configuration file."""
    for kind in ("minion", "master"):
        (folder := tmp_path / f"{kind}.d").mkdir()
        (folder / "a.conf").write_text("open_mode: true\n")
    found = ask.minion({"conf_file": str(tmp_path / "minion"), "id": "web1"})
    assert [f["code"] for f in found["findings"]] == ["HA307"]
    found = ask.for_peer("m1", {"conf_file": str(tmp_path / "master"), "id": "m1"})
    assert "HA502" in {f["code"] for f in found["findings"]}


@pytest.mark.parametrize(
    "option", ["my_company_option", "auth_retries", "mysql.hosts", "maestro", "roles", "app_port"]
)
def test_an_option_of_somebody_else_is_no_misspelling(tmp_path: Path, option: str) -> None:
    facts = minion(tmp_path, f"master: 10.0.0.1\n{option}: 1\n")
    assert check.inspect("x", facts) == []


# -- what is recommended elsewhere


def test_what_guides_on_the_web_recommend(tmp_path: Path) -> None:
    """Two masters in containers on one host, failover by publish ports."""
    facts = minion(
        tmp_path,
        "master:\n  - 192.168.1.81:4505\n  - 192.168.1.81:4507\nmaster_type: failover\n"
        "master_alive_interval: 30\nrandom_master: true\n",
    )
    found = {(f["code"], f["line"]) for f in check.inspect("x", facts)}
    serious = {("HA101", 2), ("HA101", 3), ("HA104", 3), ("HA213", 5)}
    assert found == {*serious, ("HA204", 4), ("HA209", 6), ("HA218", 4)}
    # Mended in its first line only: the second entry is dead all the same.
    for first in ("192.168.1.81", "192.168.1.81:4506"):
        facts = minion(tmp_path, f"master:\n  - {first}\n  - 192.168.1.81:4507\n")
        (found_there,) = hits(facts, "HA101")
        assert found_there["line"] == 3
        assert "its request port is 4508" in found_there["detail"]
    facts = minion(tmp_path, "master: ['192.168.1.81:4505', '192.168.1.81:4506']\n")
    named = [finding["detail"] for finding in hits(facts, "HA101")]
    assert named == ["192.168.1.81:4505: 4505 is the publish port"]
    facts = minion(tmp_path, "master: 192.168.1.81,192.168.1.81:4507\n")  # bootstrap-salt -A
    assert [f["code"] for f in check.inspect("x", facts)] == ["HA106"]


# -- what our own documentation recommends


def documented() -> Iterator[tuple[str, str, str]]:
    """(page, role, text) of every configuration in the documentation; each YAML there is one."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    for source in pages:
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", source.read_text(), re.S | re.M):
            lines = block.splitlines()
            indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
            text = "\n".join(line[indent:] for line in lines) + "\n"
            document = yaml.safe_load(text)
            options = set(document)
            if options & {"services", "scrape_configs"} or is_sls(document):
                continue  # of docker compose, of Prometheus, states
            unknown = options - collect.KNOWN - {"ha", "ha_masters"}
            # Older releases do not know those of a cluster.
            assert all(o.startswith("cluster_") for o in unknown), f"{source.name}: what is this?"
            yield source.name, MINION if "master" in options else MASTER, text


def is_sls(document: dict[str, Any]) -> bool:
    """Whether *document* declares states."""
    return any(
        "." in str(key) for value in document.values() if type(value) is dict for key in value
    )


@pytest.mark.parametrize(("source", "role", "text"), list(documented()))
def test_no_alarm_on_what_the_documentation_recommends(
    source: str, role: str, text: str, tmp_path: Path
) -> None:
    facts = facts_of_text(text, role, tmp_path)
    # That page is about what only 3008 has.
    for release in (3008,) if "cluster_id" in text else (3006, 3007, 3008):
        there = dataclasses.replace(facts, version=(release, LAST))
        # The watchdog is said to be better, and to be left out as well. Files that are named are
        # not here.
        found = [f for f in check.inspect("x", there) if f["code"] != "HA218"]
        assert [f for f in found if "cannot be read (No such file" not in f["detail"]] == []
    if role == MASTER and "cluster_id" not in text:  # whose members do not have the same
        both = [collect.member(n, facts_of_text(text, role, tmp_path, n)) for n in ("m1", "m2")]
        alarms = [f for f in check.compare(both) if f["severity"] != INFO]
        assert alarms == []


def test_the_documentation_has_such_configurations() -> None:
    found = list(documented())
    assert {name for name, *_ in found} >= {"README.md", "minions.md", "new-group.md"}
    roles = [role for _, role, _ in found]
    assert (roles.count(MASTER), roles.count(MINION)) >= (8, 3)


def test_one_master_by_name_and_by_address(tmp_path: Path) -> None:
    """As the name service of this host has it."""
    text = "master: [127.0.0.1, localhost]\nretry_dns: 30\nzmq_monitor: False\n"
    facts = facts_of_text(text, MINION, tmp_path)
    assert {f["code"] for f in check.inspect("x", facts)} == {"HA105", "HA109"}


def test_the_page_is_current() -> None:
    written = (REPOSITORY / "docs/lint.md").read_text(encoding="utf-8")
    assert written == page.page(), "python -m saltext_ha.lint.page > docs/lint.md"


# -- the facts


def test_names_are_looked_up() -> None:
    entries = ["localhost", "no-such-host.invalid:4506", "10.0.0.1", "a,b", "[::1]:4506"]
    found = collect.addresses(entries)
    assert set(found) == {"localhost", "no-such-host.invalid"}
    assert found["no-such-host.invalid"] is None
    assert found["localhost"] is not None
    assert found["localhost"] & {"127.0.0.1", "::1"}


def test_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Part(NamedTuple):
        mountpoint: str
        fstype: str

    mounts = [("/", "ext4"), (str(tmp_path), "nfs4"), (str(tmp_path / "own"), "xfs")]
    mounts.append((str(tmp_path / "gluster"), "fuse.glusterfs"))
    monkeypatch.setattr(
        collect.psutil, "disk_partitions", lambda all: [Part(*mount) for mount in mounts]
    )
    folders = {"cachedir": str(tmp_path / "cache/master"), "pki_dir": str(tmp_path / "own/pki")}
    assert collect._on_network(folders) == {"cachedir": "nfs4"}
    assert collect._on_network({"pki_dir": f"{tmp_path}/gluster"}) == {"pki_dir": "fuse.glusterfs"}


@pytest.mark.parametrize("user", ["root", "salt"])
def test_masters_that_really_share_folders_are_found_out(tmp_path: Path, user: str) -> None:
    """Salt's packages have ``user: salt``."""
    key = f".{user}_key"
    for folder, name in (("cache", key), ("pki", "master.pem"), ("other", key)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("x")
    (tmp_path / "mounted").symlink_to(tmp_path / "cache")

    def master(name: str, cachedir: str, pki_dir: str) -> Member:
        path = tmp_path / name
        text = f"id: {name}\ncachedir: {tmp_path}/{cachedir}\npki_dir: {pki_dir}\nuser: {user}\n"
        path.write_text(text)
        return collect.member(name, collect.of_master({"conf_file": str(path)}))

    pki = str(tmp_path / "pki")
    shared = [master("m1", "cache", pki), master("m2", "mounted", "/nowhere")]
    findings = check.compare(shared)
    assert {(f["code"], f["on"], f["line"]) for f in findings} == {
        ("HA705", "m1", 2),
        ("HA705", "m2", 2),
    }
    apart = [master("m1", "cache", pki), master("m2", "other", pki)]
    assert {f["code"] for f in check.compare(apart)} == {"HA706"}


@pytest.mark.parametrize("kind", ["ext4", "fuse.fuse-overlayfs", "nfs4", "virtiofs", ""])
def test_machines_of_one_disk_image_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Their files have the same numbers and times. What several hosts may mount may be shared."""
    (tmp_path / ".root_key").write_text("x")
    monkeypatch.setattr(collect, "_kind", lambda folder: kind)
    monkeypatch.setattr(collect, "BOOT", tmp_path / "boot_id")
    members = []
    for name in ("m1", "m2"):
        (tmp_path / "boot_id").write_text(f"{name}\n")
        path = tmp_path / name
        path.write_text(f"id: {name}\ncachedir: {tmp_path}\npki_dir: /nowhere\nuser: root\n")
        members.append(collect.member(name, collect.of_master({"conf_file": str(path)})))
    found = {f["code"] for f in check.compare(members)}
    assert found == (set() if kind.endswith(("ext4", "overlayfs")) else {"HA705"})


def test_containers_of_one_image_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the image brought has the same numbers and times in each, on a device of its own."""
    monkeypatch.setattr(collect, "_kind", lambda folder: "overlay")
    seen, marks = list(tmp_path.stat()), set()
    for device in (39, 39, 41):
        seen[2] = device
        status = os.stat_result(seen)
        monkeypatch.setattr(Path, "stat", lambda path, status=status: status)
        marks.add(collect._mark(tmp_path / "minions_autosign"))
    assert len(marks) == 2


def test_what_masters_have_in_their_files_is_compared(tmp_path: Path) -> None:
    found = []
    for name, seed in (("m1", "10.0.0.1"), ("m2", "10.0.0.2")):
        job = {"nightly": {"function": "test.ping", "hours": 24}}
        text = yaml.safe_dump({"ha": {"masters": [seed]}, "schedule": job})
        found.append(collect.member(name, facts_of_text(text, MASTER, tmp_path, name)))
    assert {f["code"] for f in check.compare(found)} == {"HA707", "HA711"}


@pytest.mark.parametrize(
    "text",
    [
        "schedule: {nightly: {function: test.ping, hours: 24, enabled: false}}",
        "schedule: {enabled: false, nightly: {function: test.ping, hours: 24}}",
        "schedule: {splay: 5, skip_during_range: {start: 8am, end: 9am}}",
        "schedule: {nightly: {func: ha.once, args: [nightly], hours: 24}}",
        "schedule: {nightly: {fun: ha.once, args: [nightly], hours: 24}}",
        "schedule: {sync: {function: saltutil.sync_all, minutes: 30}}",
        "schedule: {fetch: {function: fileserver.update, minutes: 5}}",
    ],
)
def test_what_no_master_runs_or_one_of_them_is_no_job_on_several(text: str, tmp_path: Path) -> None:
    found = [
        collect.member(name, facts_of_text(f"{text}\n", MASTER, tmp_path, name))
        for name in ("m1", "m2")
    ]
    assert check.compare(found) == []


def test_a_master_that_reacts_beside_the_leader(tmp_path: Path) -> None:
    reacts = "reactor: [{site/up: [/srv/a.sls]}]\n"
    texts = {"m1": f"{reacts}ha: {{once: {{reactor: true}}}}\n", "m2": reacts}
    m1, m2 = (
        collect.member(name, facts_of_text(text, MASTER, tmp_path, name))
        for name, text in texts.items()
    )
    for peer in (m2, m1):
        there, *_ = wire.from_wire(peer.name, wire.to_wire(peer, [], {}))
        (found,) = check.compare([m1 if peer is m2 else m2, there])
        assert (found["code"], found["on"], found["detail"]) == ("HA714", "m2", "m1 has it")


def test_an_event_that_one_master_lists_twice_is_on_one_master(tmp_path: Path) -> None:
    twice = "reactor: [{site/up: [/srv/a.sls]}, {site/up: [/srv/b.sls]}]\n"
    texts = {"m1": twice, "m2": "reactor: [{site/down: [/srv/a.sls]}]\n"}
    found = [
        collect.member(name, facts_of_text(text, MASTER, tmp_path, name))
        for name, text in texts.items()
    ]
    assert check.compare(found) == []


def test_what_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "pki").write_text("no folder")
    text = f"master: [10.0.0.1, 10.0.0.2]\npki_dir: {tmp_path}/pki\n"
    running = configured(tmp_path, MINION, f"{text}verify_master_pubkey_sign: true\n")
    found = ask.minion(running, only="HA301")
    assert (found["findings"], found["retcode"]) == ([], 2)
    assert f"{tmp_path}/pki/master_sign.pub" in found["unknown"]


# -- the answer


def answer(*codes: str, **more: Any) -> dict[str, Any]:
    findings = [
        {"code": code, "severity": BY_CODE[code].severity, "on": "m1", "file": "f", "line": 1}
        for code in codes
    ]
    choice = check.Choice(more.get("only", frozenset()), more.get("ignore", frozenset()))
    return check.answer(findings, choice, ["m1"], more.get("unknown", {}))


def test_exit_codes() -> None:
    assert (answer()["retcode"], answer()["status"]) == (0, "clean")
    assert (answer("HA708")["retcode"], answer("HA708")["status"]) == (0, "clean"), "only a hint"
    assert (answer("HA501")["retcode"], answer("HA501")["status"]) == (1, "findings")
    assert answer("HA502")["retcode"] == 1
    unknown = answer("HA502", unknown={"m2": "timed out"})
    assert (unknown["retcode"], unknown["status"]) == (2, "unknown")
    assert answer(unknown={"m2": "timed out"})["retcode"] == 2, "unknown is never clean"


def test_what_was_edited_since_the_start_does_not_hold_yet(tmp_path: Path) -> None:
    path = tmp_path / "master"

    def write(ha: str) -> dict[str, Any]:
        path.write_text(f"root_dir: {tmp_path}\nid: m1\nengines: [ha: {{}}]\nha: {ha}\n")
        return dict(salt.config.master_config(str(path)))

    started = write("{mode: enforce, sync_interval: 3, status: {port: 4600}}")
    now = write("{mode: observe, sync_interval: 3.0, trees: {x: {live: /srv/x}}}")
    (hit,) = hits(collect.of_master(started), "HA525")
    assert hit["detail"] == "mode, status, trees"
    assert not hits(collect.of_master(now), "HA525")
    # One of runs of salt-run, and of an engine that would not start, say nothing of it.
    assert not hits(collect.of_master({"conf_file": str(path)}), "HA525")
    write("{mode: nonsense}")
    assert not hits(collect.of_master(started), "HA525")


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


def test_nothing_secret_is_shown_or_sent(tmp_path: Path) -> None:
    running = configured(
        tmp_path,
        MASTER,
        f"root_dir: {tmp_path}\nid: m1\n"
        "gitfs_remotes: ['https://u:hunter2@example.com/x.git']\n"
        "ext_pillar: [{vault: {token: hunter2}}]\n"
        "schedule: {job: {function: cmd.run, args: [hunter2]}}\n"
        "reactor: [{salt/auth: [hunter2.sls]}]\n",
        a="gitfs_remotes: []\next_pillar: []\n",
    )
    facts = collect.of_master(running)
    assert {f["code"] for f in check.inspect("m1", facts)} == {"HA002"}
    assert "hunter2" not in json.dumps(check.inspect("m1", facts))
    sent = json.dumps(ask.for_peer("m1", running))
    assert "hunter2" not in sent
    assert "salt/auth" in sent


# -- between masters


def peer() -> dict[str, Any]:
    (member,) = members([{"publish_port": 4507, "schedule": ["nightly"], "ha": {"masters": []}}])
    finding = {**answer("HA502")["findings"][0], "option": "open_mode", "title": "t", "detail": "d"}
    finding |= {"why": "w", "fix": "f", "versions": "all"}
    return wire.to_wire(member, [finding], {"master key": "why"})


def test_what_a_master_tells_survives_the_way() -> None:
    sent = json.loads(json.dumps(peer()))
    member, (finding,), unknown = wire.from_wire("m2", sent)
    assert member.name == "m2"
    assert member.options["publish_port"] == 4507
    assert member.options["schedule"] == ["nightly"]
    assert finding["on"] == "m2", "whatever it calls itself"
    assert unknown == {"master key": "why"}


@pytest.mark.parametrize(
    "change",
    [
        {"version": None}, {"version": ["x"]}, {"options": []}, {"places": {"a": [1]}},
        {"options": {"schedule": 7}}, {"options": {"ha": []}}, {"findings": [{}]},
        {"findings": 3}, {"marks": None}, {"unknown": 1}, {"findings": [{"severity": "fatal"}]},
    ],
)  # fmt: skip
def test_nonsense_from_a_peer_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        wire.from_wire("m2", {**peer(), **change})


def test_a_severity_that_is_none_is_refused() -> None:
    told = peer()
    told["findings"][0]["severity"] = "fatal"
    with pytest.raises(InvalidRecord, match="severity"):
        wire.from_wire("m2", told)


def test_a_peer_that_talks_nonsense_is_unknown(tmp_path: Path) -> None:
    running = configured(tmp_path, MASTER, f"root_dir: {tmp_path}\nid: m1\n")
    found = ask.group("m1", running, {"m2": peer(), "m3": {}}, {"m4": "timed out"}, {})
    assert found["asked"] == ["m1", "m2"]
    assert set(found["unknown"]) == {"m2: master key", "m3", "m4"}
    assert {f["code"] for f in found["findings"]} == {"HA701", "HA502"}
    assert found["retcode"] == 2
    only = ask.group("m1", running, {"m2": peer()}, {}, {"only": ["HA701"]})
    assert {f["code"] for f in only["findings"]} == {"HA701"}


# -- for people


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


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("app_tokens: [s3cr3t-one, s3cr3t-two]", "app_tokens: []"),
        ("app_tokens: {s3cr3t-one: alice}", "app_tokens: {}"),
        ("app: {tokens: {s3cr3t-one: {user: alice}}}", "app: {tokens: {}}"),
        ("gitfs_remotes: ['https://s3cr3t@git.example/r.git']", "gitfs_remotes: []"),
        ("schedule: {dump: {args: [dump -ps3cr3t]}}", "schedule: {dump: {args: [other]}}"),
    ],
)
def test_what_was_replaced_is_not_shown_when_it_may_be_secret(
    tmp_path: Path, written: str, instead: str
) -> None:
    text = f"default_include: minion.d/*.conf\n{written}\n"
    facts = minion(tmp_path, text, x=f"{instead}\n")
    found = check.inspect("x", facts)
    assert "HA002" in {one["code"] for one in found}
    assert "s3cr3t" not in str(found)


def test_where_salt_looks_for_a_signature_that_has_no_name(tmp_path: Path) -> None:
    """Salt 3006 and 3007 have a name for it; 3008 names it after the master."""
    path, pki_dir = tmp_path / "master", tmp_path / "etc/salt/pki/master"
    pki_dir.mkdir(parents=True)
    path.write_text(
        f"root_dir: {tmp_path}\nid: m1\nmaster_sign_pubkey: true\n"
        "master_use_pubkey_signature: true\n"
    )
    opts = salt.config.master_config(str(path))
    name = opts["master_pubkey_signature"] or f"{opts['id']}_pubkey_signature"

    def found() -> list[str]:
        facts = collect.of_master({"conf_file": str(path)})
        return [hit.detail for hit in no_signature(facts)]

    assert found() == [f"{pki_dir}/{name} is not there"]
    (pki_dir / name).write_text("signed")
    assert found() == []
