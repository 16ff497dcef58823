"""What masters tell each other for ``ha.lint``, and what differs between them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.lint import ask, check, collect, wire
from saltext_ha.lint.model import MASTER, Member
from tests.unit.lint.linting import configured, facts_of_text, peer

pytestmark = pytest.mark.core


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


def test_an_event_that_one_master_lists_twice_is_on_one_master(tmp_path: Path) -> None:
    twice = "reactor: [{site/up: [/srv/a.sls]}, {site/up: [/srv/b.sls]}]\n"
    texts = {"m1": twice, "m2": "reactor: [{site/down: [/srv/a.sls]}]\n"}
    found = [
        collect.member(name, facts_of_text(text, MASTER, tmp_path, name))
        for name, text in texts.items()
    ]
    assert check.compare(found) == []


def test_a_master_that_reacts_beside_the_leader(tmp_path: Path) -> None:
    reacts = "reactor: [{site/up: [/srv/a.sls]}]\n"
    texts = {"m1": f"{reacts}ha: {{once: {{reactor: true}}}}\n", "m2": reacts}
    m1, m2 = (
        collect.member(name, facts_of_text(text, MASTER, tmp_path, name))
        for name, text in texts.items()
    )
    for other in (m2, m1):
        there, *_ = wire.from_wire(other.name, wire.to_wire(other, [], {}))
        (found,) = check.compare([m1 if other is m2 else m2, there])
        assert (found["code"], found["on"], found["detail"]) == ("HA714", "m2", "m1 has it")


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
