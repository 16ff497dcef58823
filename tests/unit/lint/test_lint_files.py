"""Which files ``ha.lint`` takes for a configuration, and what it says of broken ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import salt.config
import salt.fileserver

from saltext_ha.common.errors import ConfigError
from saltext_ha.lint import ask, check, collect, sources, wire
from saltext_ha.lint.model import MASTER, MINION
from tests.unit.lint.linting import configured, hits, master, minion

pytestmark = pytest.mark.core


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


@pytest.mark.parametrize(("backend", "served"), [("roots", False), ("[roots]", True)])
def test_salt_serves_nothing_with_a_text_as_backend(
    tmp_path: Path, backend: str, served: bool
) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv" / "top.sls").write_text("{}\n")
    text = f"fileserver_backend: {backend}\nfile_roots: {{base: [{tmp_path / 'srv'}]}}\n"
    running = configured(tmp_path, MASTER, text, cachedir=f"cachedir: {tmp_path / 'cache'}\n")
    server = salt.fileserver.Fileserver(salt.config.master_config(running["conf_file"]))
    assert server.file_list({"saltenv": "base"}) == (["top.sls"] if served else [])
    assert bool(hits(collect.of_master(running), "HA008")) is not served


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
