"""Mistakes, conflicts and losses in a group of three: what each of the masters shows and does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, wait_for
from tests.integration.bus import heard, tags
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    Three,
    files_of,
    group,
    plant,
    replica_files,
    rm,
    row,
    settled,
    shown,
    three_level,
    well,
)

ACTS = ["pending", "accepted", "rejected", "deleted"]
KEY_FOLDERS = ("minions", "minions_pre", "minions_rejected", "minions_denied")


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", "m3", ha={"hold_minimum": 5}) as lab:
        yield lab


@pytest.fixture
def masters(lab: Lab) -> Three:
    return three_level(lab)


@pytest.fixture(scope="module")
def web(lab: Lab) -> dict[str, str]:
    """Twelve keys accepted on all three; who deletes them has to restore them."""
    masters = lab.masters.values()
    keys = {f"web{number:02}": lab.key_pair()[1].strip() for number in range(12)}
    for minion_id, key in keys.items():
        lab.masters["m1"].plant("minions", minion_id, key)
    wait_for(lambda: all(accepted(m) >= keys.items() for m in masters), SOON, "on all three")
    return keys


def accepted(master: Master) -> set[tuple[str, str]]:
    return {(name, key.strip()) for name, key in master.keys()["minions"].items()}


def history(master: Master, minion_id: str) -> list[tuple[str, str]]:
    """What was done and on which master, newest first."""
    writes = master.control("history", {"glob": minion_id})["writes"]
    return [(write["what"], write["on"]) for write in writes]


def test_reactors_of_the_others_hear_events_of_their_own(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    with ExitStack() as stack:
        one, *others = (stack.enter_context(heard(master)) for master in masters)
        plant(lab, "minions_pre", "event1", *masters)
        m1.salt_key("-a", "event1", "-y").check()
        shown("event1", {"minions": files_of(m1, "event1")["minions"]}, m2, m3)
        m1.salt_key("-r", "event1", "--include-accepted", "-y").check()
        wait_for(lambda: all("event1" in m.keys()["minions_rejected"] for m in masters), SOON, "r")
        m1.salt_key("-d", "event1", "-y").check()
        expected = [f"salt/ha/key/{act}" for act in ACTS]
        for events in others:
            wait_for(lambda events=events: expected[-1] in tags(events, "event1"), SOON, "deleted")
        wait_for(lambda: len(tags(one, "event1")) >= 3, SOON, "Salt's own")
    # What Salt fires is fired where it was done, and what ha fires where it arrived.
    assert tags(one, "event1") == ["salt/key"] * 3
    for master, events in zip((m2, m3), others, strict=True):
        assert tags(events, "event1") == expected
        assert {data["master"] for tag, data in events if "/key/" in tag} == {master.name}


def test_a_conflict_is_seen_and_ended_on_all(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    first, second = (lab.key_pair()[1].strip() for _ in range(2))
    m3.suspend()
    try:
        m1.plant("minions", "both1", first)
        shown("both1", {"minions": first}, m1, m2)
        m3.plant("minions", "both1", second)
    finally:
        m3.resume()
    for master in masters:
        wait_for(lambda m=master: m.control("status")["conflicts"], SOON, f"seen on {master.name}")
    shown("both1", {"minions": first}, m1, m2, timeout=0)
    shown("both1", {"minions": second}, m3, timeout=0)
    # m2 took no part in it.
    check = m2.salt_run("ha.check_consistency")
    (difference,) = check.data["sections"]["keys"]["differences"]
    assert (check.returncode, difference["path"]) == (1, "both1")
    assert "ha.resolve both1" in difference["fix"]
    rows = m2.control("keys", {"glob": "both1"})["keys"]
    keep = next(row["fingerprint"] for row in rows if row["states"]["m3"] == "accepted")
    m2.salt_run("ha.resolve", "both1", keep).check()
    shown("both1", {"minions": second}, *masters)
    well(*masters)
    for master in masters:
        assert [what for what, _ in history(master, "both1") if "conflict" in what] == [
            "conflict over",
            "conflict",
        ]


def test_pausing_one_and_all(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    m3.salt_run("ha.pause").check()
    key = plant(lab, "minions", "paused1", m1, m2)
    assert files_of(m3, "paused1") == {}
    wait_for(lambda: row(m1, m3)["note"].startswith("paused"), SOON, "m1 says so")
    m2.salt_run("ha.pause", all=True).check()
    m1.salt_key("-d", "paused1", "-y").check()
    other = lab.key_pair()[1].strip()
    m1.plant("minions", "paused2", other)
    wait_for(lambda: (row(m1, m2)["behind"], row(m1, m3)["behind"]) == (2, 1), SOON, "two lag")
    plan = m3.salt_run("ha.sync", test=True).data["changes"]
    assert {(c["master"], c["id"], c["to"]) for c in plan if c["id"] == "paused1"} == {
        ("m2", "paused1", "deleted")
    }
    assert {c["master"] for c in plan if c["id"] == "paused2"} == {"m2", "m3"}
    shown("paused1", {"minions": key}, m2, timeout=0)
    shown("paused2", {}, m2, m3, timeout=0)
    m3.salt_run("ha.resume", all=True).check()
    shown("paused1", {}, *masters)
    shown("paused2", {"minions": other}, *masters)
    well(*masters)


def shows_held(master: Master, about: Master) -> None:
    """What ``ha.status`` and ``ha.check_consistency`` of *master* say of keys held on *about*."""
    status = master.salt_run("ha.status")
    (held,) = status.data["held"]
    assert (status.returncode, status.data["state"], held["master"]) == (1, "degraded", about.name)
    check = master.salt_run("ha.check_consistency")
    (difference,) = [
        d for d in check.data["sections"]["keys"]["differences"] if d["path"] == "held"
    ]
    assert (check.returncode, difference["values"][about.name]) == (1, held["keys"])
    assert {count for name, count in difference["values"].items() if name != about.name} == {0}
    assert "ha.refill" in difference["fix"]
    assert "ha.release" in difference["fix"]


def test_all_key_files_removed_on_one_are_held_and_come_back(
    web: dict[str, str], masters: Three
) -> None:
    m1, m2, m3 = masters
    m1.salt_key("-d", "web00", "-y").check()
    m3.salt_key("-r", "web01", "--include-accepted", "-y").check()
    shown("web00", {}, *masters)
    shown("web01", {"minions_rejected": web["web01"]}, *masters)
    well(m1, m3)  # and compared: what is not known yet has another exit status
    before = accepted(m1)
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(heard(master)) for master in masters)
        rm(m2)
        wait_for(lambda: "salt/ha/held" in dict(two), SOON, "it is told")
    assert "salt/ha/held" not in {**dict(one), **dict(three)}
    assert not accepted(m2)
    for master in (m1, m3):
        assert accepted(master) == before
        shows_held(master, m2)
    m2.salt_run("ha.refill").check()
    wait_for(lambda: accepted(m2) == accepted(m1), SOON, "m2 is filled again")
    # And from a third master what was deleted and rejected, here and there.
    m3.salt_run("ha.restore", "web*", since="10m").check()
    wait_for(lambda: all(accepted(m) >= web.items() for m in masters), SOON, "all are back")
    well(*masters)
    assert history(m1, "web01")[:2] == [("accepted", "m3"), ("rejected", "m3")]


def test_all_keys_deleted_by_salt_key_are_deleted_and_can_be_restored(
    web: dict[str, str], masters: Three
) -> None:
    m1, m2, m3 = masters
    m3.salt_key("-r", "web01", "--include-accepted", "-y").check()
    shown("web01", {"minions_rejected": web["web01"]}, *masters)
    m2.salt_key("-D", "-y").check()
    wait_for(lambda: not any(accepted(m) for m in masters), SOON, "deleted everywhere")
    assert not any(m.control("status")["held"] for m in masters)
    m3.salt_run("ha.restore", "web*", since="10m").check()
    wait_for(lambda: all(accepted(m) >= web.items() for m in masters), SOON, "restored")
    # -D takes rejected keys, too.
    assert history(m1, "web01")[:3] == [("accepted", "m3"), ("deleted", "m2"), ("rejected", "m3")]
    well(*masters)


def test_all_key_files_removed_on_one_and_released(web: dict[str, str], masters: Three) -> None:
    m1, m2, m3 = masters
    rm(m2)
    wait_for(lambda: m3.control("status")["held"], SOON, "m3 shows it")
    number = m2.salt_run("ha.release", test=True).check().data["deletes"]
    m2.salt_run("ha.release", deletes=number).check()
    wait_for(lambda: not (accepted(m1) | accepted(m3)), SOON, "deleted everywhere")
    assert m1.salt_run("ha.history", "web05").data["writes"][0]["on"] == "m2"
    m3.salt_run("ha.restore", "web*", since="10m").check()
    wait_for(lambda: all(accepted(m) >= web.items() for m in masters), SOON, "restored")
    assert history(m1, "web05")[:2] == [("accepted", "m3"), ("deleted", "m2")]
    well(*masters)


class Backup:
    """What a backup of a running master's keys, and of what ha knows of them, has in it."""

    def __init__(self, master: Master, folder: Path) -> None:
        self._master = master
        self._folder = folder / master.name
        for name in KEY_FOLDERS:
            if (master.pki_dir / name).exists():
                shutil.copytree(master.pki_dir / name, self._folder / name, symlinks=True)
        for path in replica_files(master):
            shutil.copy2(path, self._folder)

    def restore_keys(self) -> None:
        """
        Take the folders away, and copy those of the backup one key after the other, the signature
        first: nothing that comes after it is an acceptance.
        """
        for name in KEY_FOLDERS:
            there, former = (self._master.pki_dir / each for each in (name, f"{name}.former"))
            if there.exists():
                there.rename(former)  # at once: half emptied, it would have lost single keys
            if (self._folder / name).exists():
                there.mkdir()
                for path in sorted((self._folder / name).iterdir()):
                    shutil.copy2(path, there, follow_symlinks=False)
                    time.sleep(0.3)
            shutil.rmtree(former, ignore_errors=True)

    def restore_replica(self) -> None:
        for path in replica_files(self._master):
            path.unlink()
        for path in self._folder.glob("replica.db*"):
            shutil.copy2(path, self._master.pki_dir / "ha")


def test_backups_that_are_restored_undo_no_decision(
    lab: Lab, masters: Three, tmp_path: Path
) -> None:
    m1, m2, m3 = masters
    plant(lab, "minions", "old-deleted", *masters)
    rejected = plant(lab, "minions", "old-rejected", *masters)
    pending = plant(lab, "minions_pre", "old-pending", *masters)
    settled(lab, *masters)
    second, third = Backup(m2, tmp_path), Backup(m3, tmp_path)
    m1.salt_key("-d", "old-deleted", "-y").check()
    m2.salt_key("-r", "old-rejected", "--include-accepted", "-y").check()
    m3.salt_key("-a", "old-pending", "-y").check()
    expected: dict[str, dict[str, Any]] = {
        "old-deleted": {},
        "old-rejected": {"minions_rejected": rejected},
        "old-pending": {"minions": pending},
    }

    def hold() -> None:
        settled(lab, *masters)
        for minion_id, files in expected.items():
            shown(minion_id, files, *masters)

    hold()
    m3.kill()  # the signature in the folder is renewed every hour, and when the engine starts
    m3.start()
    hold()
    third.restore_keys()
    hold()
    # m2 as a whole is as it was, of m3 only what it knew.
    for master in (m2, m3):
        master.kill()
    second.restore_keys()
    second.restore_replica()
    third.restore_replica()
    lab.start_all([m2, m3])
    hold()
    for master in masters:
        new = f"new-of-{master.name}"
        others = [other for other in masters if other is not master]
        expected[new] = {"minions": plant(lab, "minions", new, master, *others)}
    hold()
    well(*masters)


def test_two_of_three_lose_their_replicas(lab: Lab, masters: Three) -> None:
    """One file is gone and one is damaged; the third master knows what was decided meanwhile."""
    m1, m2, m3 = masters
    plant(lab, "minions", "lost-deleted", *masters)
    rejected = plant(lab, "minions", "lost-rejected", *masters)
    pending = plant(lab, "minions_pre", "lost-pending", *masters)
    for master in (m2, m3):
        master.kill()
        for path in replica_files(master):
            path.unlink()
    (m3.pki_dir / "ha" / "replica.db").write_bytes(b"no database at all" * 1000)
    m1.salt_key("-d", "lost-deleted", "-y").check()
    m1.salt_key("-r", "lost-rejected", "--include-accepted", "-y").check()
    m1.salt_key("-a", "lost-pending", "-y").check()
    new = lab.key_pair()[1].strip()
    m2.plant("minions", "lost-new", new)

    lab.start_all([m2, m3])
    settled(lab, *masters)
    expected: list[tuple[str, dict[str, str]]] = [
        ("lost-deleted", {}),
        ("lost-rejected", {"minions_rejected": rejected}),
        ("lost-pending", {"minions": pending}),
        ("lost-new", {"minions": new}),
    ]
    for minion_id, files in expected:
        shown(minion_id, files, *masters)
    wait_for(lambda: "damaged" in row(m1, m3)["note"], SOON, "m1 says so")
    assert list((m3.pki_dir / "ha").glob("replica.db.damaged-*"))
