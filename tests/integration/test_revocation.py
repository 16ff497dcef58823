"""A key that is revoked on one master is worth nothing on the other: with a real minion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group, log_lines, settled, shown, unseen


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    # The master looks for the file that rotates its AES key once an interval.
    with group(make_lab, "m1", "m2", config={"loop_interval": 2}) as lab:
        yield lab


@pytest.mark.core
def test_a_minion_whose_key_is_deleted_on_the_other_master_is_cut_off(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    web = lab.add_minion("web", [m2])
    other = lab.add_minion("other", [m2])
    for minion in (web, other):
        m1.plant("minions", minion.name, minion.pub)
        shown(minion.name, {"minions": minion.pub}, m1, m2)
    lab.start_all([web, other])
    both = {"web": True, "other": True}
    wait_for(lambda: m2.salt("*", "test.ping").data == both, SOON, "m2 reaches both")

    assert log_lines(web, "Executing command test.ping")
    before = rotations(lab)["m2"]
    m1.salt_key("-d", "web", "-y").check()
    shown("web", {}, m1, m2)
    wait_for(lambda: rotations(lab)["m2"] > before, SOON, "m2 is told to make a new AES key")
    rotate_file = Path(m2.opts["cachedir"]) / ".dfn"
    wait_for(lambda: not rotate_file.exists(), SOON, "m2 has made it")

    # Every minion hears of every job; with the former AES key, web would carry it out.
    m2.salt("*", "test.echo", "canary")
    wait_for(
        lambda: m2.salt("*", "test.ping").data == {"other": True}, SOON, "m2 reaches the other"
    )
    assert log_lines(other, "Executing command test.ping")
    # What it cannot read makes it authenticate anew, and nobody has accepted it.
    shown("web", {"minions_pre": web.pub}, m1, m2)
    assert not log_lines(web, "Executing command test.echo")

    m2.salt_key("-a", "web", "-y").check()
    shown("web", {"minions": web.pub}, m1, m2)
    wait_for(lambda: m2.salt("*", "test.ping").data == both, SOON, "m2 reaches both again")


def test_what_is_not_revoked_rotates_nothing(lab: Lab) -> None:
    """Not even where a replicated change is applied: every minion would authenticate anew."""
    m1, m2 = lab.masters.values()
    _, key = lab.key_pair()
    before = rotations(lab)
    m1.plant("minions_pre", "calm", key)
    shown("calm", {"minions_pre": key}, m1, m2)
    m1.salt_key("-a", "calm", "-y").check()
    shown("calm", {"minions": key}, m1, m2)
    settled(lab, m1, m2)
    assert rotations(lab) == before


def test_many_revocations_at_once_rotate_once_each_batch(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    names = [f"batch{number}" for number in range(8)]
    for name in names:
        m1.plant("minions", name, lab.key_pair()[1])
    wait_for(lambda: m2.keys()["minions"].keys() >= set(names), SOON, "all on m2")
    before = rotations(lab)["m2"]
    with unseen(m1):  # it takes a while on a busy machine, and is to be one batch
        m1.salt_key("-d", "batch*", "-y").check()
    for name in names:
        shown(name, {}, m1, m2)
    wait_for(lambda: rotations(lab)["m2"] > before, SOON, "m2 rotated its AES key")
    settled(lab, m1, m2)
    assert rotations(lab)["m2"] <= before + 2


def rotations(lab: Lab) -> dict[str, int]:
    """How often each master was told to make a new AES key and had not been told already."""
    return {
        name: len(log_lines(master, "Rotating AES key"))
        - len(log_lines(master, "AES key rotation already requested"))
        for name, master in lab.masters.items()
    }
