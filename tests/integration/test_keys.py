"""Keys that change on one master change on the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from salt.utils.crypt import pem_finger

from lab import Lab, Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, files_of, group, plant, row, settled, shown, unseen, well

Pair = tuple[Lab, Master, Master]
BOTH_WAYS = pytest.mark.parametrize("way", [("m1", "m2"), ("m2", "m1")], ids="->".join)
Way = tuple[str, str]


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2") as lab:
        yield lab


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return lab, lab.masters["m1"], lab.masters["m2"]


def along(lab: Lab, way: Way) -> tuple[Master, Master, str]:
    """Where it happens, where it is to arrive, and the end of the minion's id."""
    here, there = (lab.masters[name] for name in way)
    return here, there, f"at-{here.name}"


@pytest.mark.core
@BOTH_WAYS
def test_accepting(lab: Lab, way: Way) -> None:
    here, there, suffix = along(lab, way)
    key = plant(lab, "minions_pre", f"accept-{suffix}", here, there)
    here.salt_key("-a", f"accept-{suffix}", "-y").check()
    shown(f"accept-{suffix}", {"minions": key}, here, there)


@pytest.mark.core
@BOTH_WAYS
def test_rejecting(lab: Lab, way: Way) -> None:
    here, there, suffix = along(lab, way)
    key = plant(lab, "minions_pre", f"reject-{suffix}", here, there)
    here.salt_key("-r", f"reject-{suffix}", "-y").check()
    shown(f"reject-{suffix}", {"minions_rejected": key}, here, there)


@pytest.mark.core
@BOTH_WAYS
def test_deleting(lab: Lab, way: Way) -> None:
    here, there, suffix = along(lab, way)
    plant(lab, "minions", f"delete-{suffix}", here, there)
    here.salt_key("-d", f"delete-{suffix}", "-y").check()
    shown(f"delete-{suffix}", {}, here, there)


def test_a_key_that_is_decided_on_where_it_never_knocked(pair: Pair) -> None:
    lab, m1, m2 = pair
    key = plant(lab, "minions_pre", "elsewhere", m1, m2)
    m2.salt_key("-a", "elsewhere", "-y").check()
    shown("elsewhere", {"minions": key}, m1, m2)
    m1.salt_key("-r", "elsewhere", "--include-accepted", "-y").check()
    shown("elsewhere", {"minions_rejected": key}, m1, m2)
    m2.salt_key("-a", "elsewhere", "--include-rejected", "-y").check()
    shown("elsewhere", {"minions": key}, m1, m2)


def test_accepting_all_at_once(pair: Pair) -> None:
    lab, m1, m2 = pair
    keys = {f"all-{number}": lab.key_pair()[1] for number in range(20)}
    for minion_id, key in keys.items():
        m1.plant("minions_pre", minion_id, key)
    for minion_id, key in keys.items():
        shown(minion_id, {"minions_pre": key}, m1, m2)
    m2.salt_key("-a", "all-*", "-y").check()
    for minion_id, key in keys.items():
        shown(minion_id, {"minions": key}, m1, m2)


@BOTH_WAYS
def test_a_file_copied_and_removed_by_hand(lab: Lab, way: Way) -> None:
    here, there, suffix = along(lab, way)
    plant(lab, "minions", f"hand-{suffix}", here, there)
    # A file that goes in the instant in which the engine puts it there may come back.
    settled(lab, here, there)
    (there.pki_dir / "minions" / f"hand-{suffix}").unlink()
    shown(f"hand-{suffix}", {}, here, there)


def test_a_key_that_knocks_again_after_it_was_deleted_stays_pending(pair: Pair) -> None:
    lab, m1, m2 = pair
    key = plant(lab, "minions", "again", m1, m2)
    m1.salt_key("-d", "again", "-y").check()
    shown("again", {}, m1, m2)
    m2.plant("minions_pre", "again", key)
    shown("again", {"minions_pre": key}, m1, m2)
    settled(lab, m1, m2)
    shown("again", {"minions_pre": key}, m1, m2, timeout=0)


def test_a_deleted_key_stays_away(pair: Pair) -> None:
    lab, m1, m2 = pair
    plant(lab, "minions", "gone", m1, m2)
    m2.salt_key("-d", "gone", "-y").check()
    shown("gone", {}, m1, m2)
    settled(lab, m1, m2)
    shown("gone", {}, m1, m2, timeout=0)


def test_a_second_key_that_knocks_is_denied_everywhere_and_replaces_nothing(pair: Pair) -> None:
    lab, m1, m2 = pair
    key = plant(lab, "minions", "twice", m1, m2)
    _, other = lab.key_pair()
    m2.plant("minions_denied", "twice", other)
    shown("twice", {"minions": key, "minions_denied": other}, m1, m2)
    m1.salt_key("-d", "twice", "-y").check()
    wait_for(
        lambda: (
            not files_of(m1, "twice").get("minions") and not files_of(m2, "twice").get("minions")
        ),
        SOON,
        "the accepted key is gone on both",
    )


def test_another_key_pending_beside_an_accepted_one_ends_as_denied(pair: Pair) -> None:
    lab, m1, m2 = pair
    key = plant(lab, "minions", "beside", m1, m2)
    _, other = lab.key_pair()
    # m2 lost the accepted file and, before anybody looked, another key knocked there.
    m1.plant("minions_denied", "beside", other)
    shown("beside", {"minions": key, "minions_denied": other}, m1, m2)
    settled(lab, m1, m2)
    shown("beside", {"minions": key, "minions_denied": other}, m1, m2, timeout=0)


def test_two_keys_of_one_id_accepted_independently_are_a_conflict(pair: Pair) -> None:
    lab, m1, m2 = pair
    first, second = lab.key_pair()[1], lab.key_pair()[1]
    well(m1)  # and compared: what is not known yet has another exit status
    # Each master finds its own before it hears of the other.
    with unseen(m1, m2):
        m1.plant("minions", "torn", first)
        m2.plant("minions", "torn", second)

    conflicts = wait_for(lambda: m1.control("status")["conflicts"], SOON, "a conflict on m1")
    assert [conflict["id"] for conflict in conflicts] == ["torn"]
    assert {text.split()[0] for text in conflicts[0]["keys"].values()} == {"accepted"}
    assert len(set(conflicts[0]["keys"].values())) == 2
    wait_for(lambda: m2.control("status")["conflicts"] == conflicts, SOON, "the same on m2")
    settled_status = m1.salt_run("ha.status")
    assert settled_status.returncode == 1
    assert settled_status.data["state"] == "degraded"

    keys = m2.salt_run("ha.keys", "torn")
    assert keys.returncode == 1
    assert [(r["conflict"], r["same"]) for r in keys.data["keys"]] == [(True, False)] * 2
    check = m1.salt_run("ha.check_consistency")
    assert check.returncode == 1
    found = check.data["sections"]["keys"]["differences"]
    (difference,) = (entry for entry in found if entry["severity"] == "drift")
    assert difference["path"] == "torn"
    assert set(difference["values"]) == {"m1", "m2"}

    # Nobody overwrote anything.
    assert files_of(m1, "torn")["minions"] == first.strip()
    assert files_of(m2, "torn")["minions"] == second.strip()

    m1.salt_key("-d", "torn", "-y").check()
    shown("torn", {}, m1, m2)
    wait_for(lambda: not m1.control("status")["conflicts"], SOON, "the conflict is over")
    wait_for(lambda: row(m1, m2)["behind"] == 0, SOON, "m2 has all of it")


def test_the_command_keys_names_the_state_on_every_master(pair: Pair) -> None:
    lab, m1, m2 = pair
    plant(lab, "minions_pre", "listed", m1, m2)
    answer = m1.salt_run("ha.keys", "listed").check().data
    assert answer["masters"] == ["m1", "m2"]
    (entry,) = answer["keys"]
    assert entry["states"] == {"m1": "pending", "m2": "pending"}
    assert entry["same"] is True
    # As key.finger on the minion says; salt-key -f of 3008.3 hashes the lines around it, too.
    assert entry["fingerprint"] == pem_finger(str(m2.pki_dir / "minions_pre" / "listed"))
