"""Where the rules of ``ha.lint`` have nothing to say, though much that they look for is there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.lint import check, collect, sources
from saltext_ha.lint.model import MASTER, MINION, HostFacts, Place, Setting
from saltext_ha.lint.rules import RULES
from tests.unit.lint.linting import (
    BASES,
    GROUPS,
    LAST,
    NEWEST,
    facts_of_text,
    hits,
    inspect,
    master,
    members,
)

pytestmark = pytest.mark.core

HERE = "10.0.0.1"
FINGER = ":".join(["aa"] * 32)


# Of all others, every supported release of Salt has the trap.
RELEASES = {
    "HA601": {3008},
    "HA219": {3007},
    "HA602": {3007, 3008},
    "HA603": {3008},
    "HA604": {3008},
    "HA605": {3006},
    "HA606": {3007},
    "HA607": {3007, 3008},
    "HA522": {3008},
    "HA608": {3008},
    "HA712": {3007, 3008},
}


def test_releases_without_the_trap() -> None:
    for rule in RULES:
        holds = {release for release in (3006, 3007, 3008) if rule.holds_on((release, 3))}
        assert holds == RELEASES.get(rule.code, {3006, 3007, 3008}), rule.code
        assert rule.holds_on((3009, 0)) is (3008 in holds), rule.code


def test_masters_beside_each_other_on_a_release_without_the_trap() -> None:
    (case,) = [case for case in GROUPS if case["code"] == "HA712"]
    for release in (3006, 3008):
        there = [dataclasses.replace(m, version=(release, LAST)) for m in members(case["group"])]
        assert ("HA712" in {f["code"] for f in check.compare(there)}) is (release == 3008)


def test_keys_that_are_no_texts(tmp_path: Path) -> None:
    text = f"master: {HERE}\n4506: x\nyes: x\n"
    assert check.inspect("x", facts_of_text(text, MINION, tmp_path)) == []


@pytest.mark.parametrize("role", [MASTER, MINION])
@pytest.mark.parametrize("content", ["", "# all of it is a comment\n", "defaults"])
def test_no_alarm_on_what_salt_is_installed_with(role: str, content: str, tmp_path: Path) -> None:
    """Where nobody wrote anything; and with what holds then written out."""
    path = tmp_path / role
    path.write_text(content)
    running = {"conf_file": str(path), "id": "x", "pki_dir": str(tmp_path)}
    collected = collect.of_minion if role == MINION else collect.of_master
    if content == "defaults":
        where = {"conf_file", "default_include", "id", "master"}
        options = {o: v for o, v in collected(running).options.items() if o not in where}
        path.write_text(json.dumps(options))
    facts = collected(running)
    assert check.inspect("x", facts) == []
    for release in (3006, 3007, 3008):
        assert check.inspect("x", dataclasses.replace(facts, version=(release, LAST))) == []


@pytest.mark.parametrize("how", ["disable", "func"])
def test_a_minion_that_takes_no_master_from_its_file(how: str, tmp_path: Path) -> None:
    text = f"master: no-such-master.invalid\nmaster_type: {how}\n"
    assert check.inspect("x", facts_of_text(text, MINION, tmp_path)) == []


@pytest.mark.parametrize(
    ("base", "config", "codes"),
    [
        ("hot", {"transport": "tcp"}, set()),
        ("hot", {"rejected_retry": True}, set()),
        ("hot", {"auth_tries": 3}, set()),
        ("hot", {"auth_safemode": True}, set()),
        ("hot", {"fileserver_backend": "roots"}, set()),  # its masters serve it
        ("single", {"always_verify_signature": True, "verify_master_pubkey_sign": True}, {"HA301"}),
        ("single", {"master_finger": "aa:bb", "hash_type": "sha3_256"}, set()),
        ("single", {"master_finger": FINGER, "verify_master_pubkey_sign": True}, {"HA301"}),
        ("failover", {"master_finger": FINGER}, set()),
        ("single", {"master_type": "distributed", "master_alive_interval": 30}, {"HA205"}),
        ("failover", {"master": [HERE], "ha": {}}, {"HA205"}),
        ("single", {"tcp_pub_port": 4510, "tcp_pull_port": 4510}, set()),
        (
            "single",
            {"ipc_mode": "tcp", "tcp_pub_port": [4510], "tcp_pull_port": [4510]},
            {"HA401"},
        ),
        ("failover", {"auth_tries": 0}, set()),
        ("failover", {"master_tries": 3}, set()),
        (
            "failover",  # Salt goes back to no master then
            {
                "engines": ["ha_watchdog"],
                "master_failback": True,
                "master_alive_interval": 0,
                "master_tries": -1,
            },
            set(),
        ),
        ("failover", {"random_master": True, "master_failback": True}, set()),
        ("failover", {"master": [HERE], "random_master": True}, {"HA205", "HA211"}),
        ("failover", {"master": [HERE], "retry_dns": 30}, {"HA205"}),
        ("failover", {"master": f"{HERE},10.0.0.2"}, {"HA106"}),
    ],
)
def test_a_rule_is_silent_where_its_reason_is_not_there(
    base: str, config: dict[str, Any], codes: set[str], tmp_path: Path
) -> None:
    text = yaml.safe_dump({**BASES[base], **config})
    assert {f["code"] for f in inspect(facts_of_text(text, MINION, tmp_path))} == codes


def test_two_masters_at_one_address_that_really_publish_on_two_ports(tmp_path: Path) -> None:
    masters = "master: [10.0.0.1, '10.0.0.1:4508']\nzmq_monitor: False\n"
    told = {("10.0.0.1", 4506): 4505, ("10.0.0.1", 4508): 4507}

    def codes(text: str, name: str, told: dict[tuple[str, int], int]) -> list[str]:
        facts = dataclasses.replace(facts_of_text(text, MINION, tmp_path, name), told=told)
        return [found["code"] for found in check.inspect("x", facts)]

    assert codes(masters, "x", told) == ["HA114"], "every answer goes to both"
    assert "HA104" in codes(f"{masters}master_type: failover\n", "y", told), "the watchdog looks"
    for known in told.items():  # of the other nobody knows
        assert codes(masters, "x", dict([known])) == ["HA114"]
    told["10.0.0.1", 4508] = 4505
    assert codes(masters, "x", told) == ["HA107"], "deaf to one of them: it answers one only"


def test_two_names_of_one_address_are_two_masters_for_salt(tmp_path: Path) -> None:
    text = "master: [m1.example, 'm2.example:4508']\nzmq_monitor: False\n"
    facts = facts_of_text(text, MINION, tmp_path)
    told = {("10.0.0.1", 4506): 4505, ("10.0.0.1", 4508): 4507}
    here = dict.fromkeys(("m1.example", "m2.example"), frozenset({"10.0.0.1"}))
    found = check.inspect("x", dataclasses.replace(facts, told=told, addresses=here))
    assert {f["code"] for f in found} <= {"HA109"}
    facts = facts_of_text(
        "master: [m1.example, 'm2.example:4508']\nmaster_alive_interval: 30\n",
        MINION,
        tmp_path,
        "y",
    )
    found = check.inspect("x", dataclasses.replace(facts, told=told, addresses=here))
    assert "HA104" in {f["code"] for f in found}, "Salt asks whether they are alive"


def test_masters_that_publish_where_salt_looks_for_it(tmp_path: Path) -> None:
    text = yaml.safe_dump({**BASES["failover"], "ha": {"lint": {"ignore": ["HA218"]}}})
    facts = facts_of_text(text, MINION, tmp_path)
    assert inspect(dataclasses.replace(facts, told={("10.0.0.1", 4506): 4505})) == []


def test_a_masters_key_that_the_minion_has_seen(tmp_path: Path) -> None:
    """Is held against a fingerprint that could be one."""
    for finger, codes in ("", set()), (FINGER, set()), ("bb:bb", {"HA303"}):
        text = f"master: {HERE}\nhash_type: sha256\nmaster_finger: '{finger}'\n"
        facts = dataclasses.replace(facts_of_text(text, MINION, tmp_path), fingerprint=FINGER)
        assert {f["code"] for f in check.inspect("x", facts)} == codes


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("auto_accept: true\n", set()),
        ("master_use_pubkey_signature: true\n", {"HA505"}),
        ("gitfs_global_lock: false\n", set()),
        ("rest_cherrypy: {port: 8000}\n", set()),
        ("ha: {lint: {ignore: [HA501]}}\n", set()),
        ("reactor: [{salt/presence/change: [/a.sls]}]\n", set()),
        ("engines: [ha: {}, reactor: {}]\nreactor: [of another kind]\n", {"HA524"}),
        ("cluster_isolated_filesystem: true\n", set()),
    ],
)
def test_a_master_of_no_group(text: str, codes: set[str], tmp_path: Path) -> None:
    facts = master(tmp_path, text)
    for release in (3006, 3007, 3008):
        there = dataclasses.replace(facts, version=(release, LAST))
        assert {f["code"] for f in check.inspect("x", there)} == codes, release


@pytest.mark.parametrize(
    "changes",
    [
        {
            "cluster_isolated_filesystem": None,
            "ha": {"name": "m1", "state_dir": "/var/lib/salt-ha"},
        },
        dict.fromkeys(("id", "interface"), "m1.example.com") | {"cluster_peers": ["m2"]},
    ],
)
def test_a_member_of_a_cluster_that_is_as_it_should_be(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    options = {**BASES["cluster"], "root_dir": str(tmp_path), **changes}
    facts = master(tmp_path, yaml.safe_dump(options))
    assert check.inspect("x", dataclasses.replace(facts, version=NEWEST)) == []


@pytest.mark.parametrize(
    ("main", "included"),
    [
        ("10.0.0.1", [HERE, "10.0.0.2"]),
        ([HERE, "10.0.0.2"], "10.0.0.2"),
        (HERE, {"a": "b"}),
        ({"a": "b"}, HERE),
    ],
)
def test_an_option_of_another_kind_replaces_no_list(main: Any, included: Any) -> None:
    place = Place("f", 1)
    settings = [
        Setting("grains", main, place, sources.MAIN),
        Setting("grains", included, place, sources.INCLUDED),
    ]
    options = {"grains": included, "master": HERE}
    facts = HostFacts(MINION, NEWEST, options, settings=settings, merged=options)
    assert "HA002" not in {f["code"] for f in check.inspect("x", facts)}


def wide(folder: Path, main: str, **included: str) -> list[str]:
    """What HA002 finds on a master with these files: the main one, and those of ``master.d``."""
    (folder / "srv").mkdir()
    found = hits(master(folder, main, **included), "HA002")
    return [f["detail"].partition("lost: ")[2] for f in found]


def test_a_pattern_that_salt_expands_is_not_lost(tmp_path: Path) -> None:
    roots = f"file_roots: {{base: ['{tmp_path}/sr*']}}\n"
    assert wide(tmp_path, main=roots, a=f"{roots}timeout: 5\n") == []


def test_what_files_of_one_folder_say_together_is_not_lost(tmp_path: Path) -> None:
    acl = "publisher_acl: {%s}\n"
    main = acl % "alice: [test.*], bob: [test.ping, test.echo]"
    one, two = acl % "bob: [test.ping]", acl % "alice: [test.*], bob: [test.echo]"
    assert wide(tmp_path, main=main, a=one, b=two) == []


def test_another_single_value_in_a_mapping_is_meant(tmp_path: Path) -> None:
    main = "ha: {name: m1, port: 4530}\nengines: [ha: {}]\n"
    assert wide(tmp_path, main=main, a="ha: {name: m1, port: 4531}\n") == []
    both = "external_auth: {pam: {alice: %s}}\n"
    other = tmp_path / "other"
    other.mkdir()
    assert wide(other, main=both % "[test.*]", a=both % "test.*") == []


@pytest.mark.parametrize(
    ("main", "included"),
    [
        ("{disk: [{/: 80%}]}", "{disk: [{/: 90%}]}"),
        ("{disk: [{/: 80%}, {interval: 5}]}", "{disk: [{interval: 60}, {/: 80%}]}"),
        ("{disk: [{/: 80%}, {interval: 5}]}", "{disk: [{interval: , /: 90%}]}"),
    ],
)
def test_another_single_value_in_a_list_of_mappings_is_meant(
    main: str, included: str, tmp_path: Path
) -> None:
    """``beacons.save`` writes such a file."""
    assert wide(tmp_path, main=f"beacons: {main}\n", a=f"beacons: {included}\n") == []


def test_files_that_include_others_each_in_their_turn() -> None:
    settings = [
        Setting(option, [layer], Place(layer, 1), layer)
        for layer in (sources.MAIN, sources.INCLUDED)
        for option in ("include", "beacons")
    ]
    options = {"include": [sources.INCLUDED], "beacons": [sources.INCLUDED], "master": HERE}
    facts = HostFacts(MINION, NEWEST, options, settings=settings, merged=options)
    found = check.inspect("x", facts)
    assert [f["option"] for f in found if f["code"] == "HA002"] == ["beacons"]


@pytest.mark.parametrize(("first", "fires"), [(["10.0.0.1"], True), ("10.0.0.1", False)])
def test_only_lists_of_masters_are_merged(first: Any, fires: bool) -> None:
    settings = [
        Setting("master", value, Place(file, 1), sources.INCLUDED)
        for file, value in (("a", first), ("b", ["10.0.0.2"]))
    ]
    merged = [*first, "10.0.0.2"] if isinstance(first, list) else ["10.0.0.2"]
    facts = HostFacts(MINION, NEWEST, {"master": merged}, settings=settings)
    assert ("HA004" in {f["code"] for f in check.inspect("x", facts)}) is fires
    others = [dataclasses.replace(setting, option="beacons") for setting in settings]
    facts = dataclasses.replace(facts, settings=others)
    assert "HA004" not in {f["code"] for f in check.inspect("x", facts)}


def test_a_list_of_masters_in_one_included_file_is_no_merged_one() -> None:
    settings = [
        Setting("master", [HERE], Place(layer, 1), layer)
        for layer in (sources.MAIN, sources.INCLUDED)
    ]
    facts = HostFacts(MINION, NEWEST, {"master": [HERE]}, settings=settings)
    assert "HA004" not in {f["code"] for f in check.inspect("x", facts)}


@pytest.mark.parametrize(
    ("live", "more"),
    [("master.d", ""), ("shared", "include: shared/*.conf\n"), ("x", "include: [y.conf, x/*]\n")],
)
def test_a_tree_of_configuration_is_read(live: str, more: str, tmp_path: Path) -> None:
    tree = f"ha: {{name: m1, trees: {{conf: {{live: {tmp_path}/{live}}}}}}}\n"
    assert hits(master(tmp_path, f"{tree}{more}"), "HA801") == []


@pytest.mark.parametrize(
    ("ignore", "found"),
    [
        ("[]", 1),
        ("[/pillar/]", 1),  # only at the top
        ("[/all/pillar]", 0),
        ("[pillar/]", 0),
        ("[all]", 0),
        ("[p*]", 0),
    ],
)
def test_what_is_secret_is_in_no_other_tree_if_that_ignores_it(
    ignore: str, found: int, tmp_path: Path
) -> None:
    open_tree = f"{{source: /git, live: /srv/a, ignore: {ignore}}}"
    secret = "{source: /git/all/pillar, live: /srv/b, secret: true}"
    text = f"ha: {{name: m1, trees: {{s: {open_tree}, p: {secret}, c: {{live: /srv/c}}}}}}\n"
    assert len(hits(master(tmp_path, text), "HA805")) == found


@pytest.mark.parametrize(
    ("roots", "more", "found"),
    [
        ("{base: [TOP/clone, TOP/plain]}", "", ["clone"]),
        ("{base: [TOP/clone], dev: [TOP/clone]}", "", ["clone"]),
        ("{__env__: [TOP/envs/__env__]}", "", ["envs/dev"]),
        ("{base: [TOP/worktree, TOP/gone]}", "", []),
        ("{base: [TOP/clone]}", "fileserver_backend: [minionfs]\n", []),
        ("[TOP/clone]", "", []),
    ],
)
def test_a_checkout_is_one_whose_git_folder_minions_may_read(
    roots: str, more: str, found: list[str], tmp_path: Path
) -> None:
    for clone in ("clone", "envs/dev"):
        (tmp_path / clone / ".git").mkdir(parents=True)
        (tmp_path / clone / ".git" / "config").touch()
    (tmp_path / "plain").mkdir()
    (tmp_path / "worktree").mkdir()
    (tmp_path / "worktree" / ".git").write_text("gitdir: elsewhere\n")
    text = f"file_roots: {roots.replace('TOP', str(tmp_path))}\n{more}"
    details = [finding["detail"] for finding in hits(master(tmp_path, text), "HA806")]
    assert details == [f"{tmp_path}/{name}" for name in found]
