"""Three masters, and one of them away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Lab, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    Three,
    group,
    peers,
    plant,
    row,
    settled,
    shown,
    three_level,
)


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", "m3", joined=False) as lab:
        m1, m2, m3 = lab.masters.values()
        lab.form_group([m1, m2])
        lab.form_group([m2, m3])
        yield lab


@pytest.fixture
def masters(lab: Lab) -> Three:
    return three_level(lab)


def test_who_joins_through_one_is_known_to_all(masters: Three) -> None:
    for master in masters:
        others = {other.name for other in masters if other is not master}
        answer = peers(master)
        assert {peer["name"]: peer["state"] for peer in answer["peers"]} == dict.fromkeys(
            others, "up"
        )
    # Of those that are ready: they say so with their next answer to each other.
    m1 = masters[0]
    wait_for(lambda: m1.control("status")["tolerates"] == 2, SOON, "two may be lost")


def test_a_change_on_any_reaches_all(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    key = plant(lab, "minions_pre", "three", m3, m1, m2)
    m1.salt_key("-a", "three", "-y").check()
    shown("three", {"minions": key}, *masters)
    m2.salt_key("-d", "three", "-y").check()
    shown("three", {}, *masters)


def test_one_that_was_away_hears_of_what_the_others_decided(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    deleted = plant(lab, "minions", "away-deleted", *masters)
    pending = plant(lab, "minions_pre", "away-accepted", *masters)
    m1.suspend()
    try:
        m3.salt_key("-d", "away-deleted", "-y").check()
        m2.salt_key("-a", "away-accepted", "-y").check()
        shown("away-deleted", {}, m2, m3)
        shown("away-accepted", {"minions": pending}, m2, m3)
        shown("away-deleted", {"minions": deleted}, m1, timeout=0)
        wait_for(lambda: row(m2, m1)["state"] == "unknown", SOON, "m2 misses m1")
        wait_for(lambda: row(m2, m3)["state"] == "running", SOON, "m2 has m3")
        wait_for(lambda: m2.control("status")["tolerates"] == 1, SOON, "one may be lost")
    finally:
        m1.resume()
    shown("away-deleted", {}, *masters)
    shown("away-accepted", {"minions": pending}, *masters)


def test_what_two_know_arrives_though_the_one_who_did_it_is_gone(lab: Lab, masters: Three) -> None:
    m1, m2, m3 = masters
    key = plant(lab, "minions_pre", "handed-on", *masters)
    m1.kill()
    m3.salt_key("-a", "handed-on", "-y").check()
    shown("handed-on", {"minions": key}, m2, m3)
    m3.kill()
    m1.start()
    shown("handed-on", {"minions": key}, m1, m2)
    m3.start()
    settled(lab, *masters)
    shown("handed-on", {"minions": key}, *masters, timeout=0)


def test_a_deletion_and_an_acceptance_that_did_not_know_of_each_other(
    lab: Lab, masters: Three
) -> None:
    """The revocation wins everywhere, whoever comes back first."""
    m1, m2, m3 = masters
    key = plant(lab, "minions_pre", "race", *masters)
    m3.stop()
    m1.salt_key("-d", "race", "-y").check()
    shown("race", {}, m1, m2)
    # salt-key on m3 while its engine is away: it knew the key as pending.
    (m3.pki_dir / "minions_pre" / "race").unlink()
    m3.plant("minions", "race", key)
    m3.start()
    shown("race", {}, *masters)
    settled(lab, *masters)
    shown("race", {}, *masters, timeout=0)
