"""
One group of masters with different releases of Salt, as in the middle of an upgrade: whichever is
asked, the answer is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    PATIENT,
    SOON,
    add_master_with_trees,
    answers,
    level,
    plant,
    shown,
    write_sources,
)

HERE = Path(__file__).parents[2]
# Venvs with another Salt: make test has the last (lab/pythons.py), make test-all the others.
OTHERS = {"m3006": (".venv-3006",), "m3007": (".venv-3007", ".venv-3.10")}
PYTHONS = {
    **{
        master: HERE / venv / "bin" / "python"
        for master, venvs in OTHERS.items()
        for venv in [each for each in venvs if (HERE / each / ".installed").exists()][:1]
    },
    "own": Path(sys.executable),
}
pytestmark = pytest.mark.skipif(
    len(PYTHONS) == 1, reason="needs another Salt, as make test installs for Python 3.10"
)

ANOTHER_DEFAULT = "gpg_decrypt_must_succeed"
"""False by default in 3006, and True since 3007: these masters do render another pillar."""
NEW = "web\U0001fae0"
"""With a character of Unicode 14: Python 3.11 knows it, 3.10 does not."""


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """A master of each release, and a hot minion of each."""
    with make_lab() as lab:
        for name, python in PYTHONS.items():
            add_master_with_trees(lab, name, python=python)
        first, *others = masters = list(lab.masters.values())
        first.share_master_key(*others)
        write(lab, "0")
        for master in masters:
            lab.add_minion(f"w-{master.name}", masters, python=PYTHONS[master.name])
        for minion in lab.minions.values():
            first.plant("minions", minion.name, minion.pub)
        lab.start_all()
        lab.form_group()
        wait_for(lambda: all(map(level, masters)), SOON, "all are level")
        for minion in lab.minions.values():
            minion.wait_ready()
        for master in masters:
            answers(master, *lab.minions.values())
        yield lab


def write(lab: Lab, number: str) -> None:
    """Another content of the sources of both trees."""
    files = {
        "states/top.sls": "base: {'*': [web]}\n",
        "states/web.sls": "web:\n  test.show_notification:\n"
        f"    - text: {number} {{{{ pillar.n }}}}\n",
        "pillar/top.sls": "base: {'*': [who]}\n",
        "pillar/who.sls": f"n: 'n{number}'\n",
    }
    write_sources(lab, files)


@pytest.fixture
def masters(lab: Lab) -> list[Master]:
    return list(lab.masters.values())


def said(answer: Any) -> dict[str, str]:
    """The comment of each minion's only state."""
    return {each: next(iter(value.values()))["comment"] for each, value in answer.items()}


def test_only_their_releases_differ(masters: list[Master]) -> None:
    for master in masters:
        found = master.salt_run("ha.check_consistency", timeout=180).data
        assert not found["unknown"], found["unknown"]
        differ = {name for name, each in found["sections"].items() if each["status"] != "same"}
        # The folders of the trees are each master's own in this lab.
        paths = {
            each["path"] for name in differ for each in found["sections"][name]["differences"]
            if not each["path"].startswith("ha:trees:")
        }  # fmt: skip
        assert paths <= {"salt", "python", ANOTHER_DEFAULT}, f"{master.name}: {sorted(paths)}"


def test_a_key_is_decided_on_each_and_shown_on_all(lab: Lab, masters: list[Master]) -> None:
    for master in masters:
        name = f"key-{master.name}"
        key = plant(lab, "minions_pre", name, *masters)
        master.salt_key("-a", name, "-y").check()
        shown(name, {"minions": key}, *masters)
        master.salt_key("-r", name, "-y", "--include-accepted").check()
        shown(name, {"minions_rejected": key}, *masters)
        master.salt_key("-d", name, "-y").check()
        shown(name, {}, *masters)


def test_an_id_that_not_all_their_pythons_can_print(lab: Lab, masters: list[Master]) -> None:
    """What a stranger calls itself must not keep masters apart."""
    plant(lab, "minions_pre", NEW, masters[-1], *masters[:-1])
    wait_for(lambda: all(map(level, masters)), SOON, "all are level")
    masters[0].salt_run("ha.keys").check()
    masters[0].salt_key("-d", NEW, "-y").check()
    shown(NEW, {}, *masters)


def test_each_deploys_and_takes_back(lab: Lab, masters: list[Master]) -> None:
    for number, master in enumerate(masters, 1):
        write(lab, str(number))
        master.salt_run("ha.deploy", message="ü", timeout=180).check()
        for other in masters:
            told = other.salt("*", "state.apply", PATIENT).check().data
            assert set(said(told).values()) == {f"{number} n{number}"}, other.name
    masters[0].salt_run("ha.rollback", timeout=180).check()
    assert set(said(masters[-1].salt("*", "state.apply", PATIENT).data).values()) == {
        f"{len(masters) - 1} n{len(masters) - 1}"
    }


def test_a_job_of_each_is_found_on_all(lab: Lab, masters: list[Master]) -> None:
    minions: dict[str, Minion] = lab.minions
    for master in masters:
        word = f"of-{master.name}"
        done = master.salt_run("ha.cmd", "*", "test.echo", word, timeout=180).check().data
        assert done["returned"] == dict.fromkeys(minions, word)
        (jid,) = done["jobs"][0].values()
        for other in masters:
            wait_for(
                lambda o=other, j=jid: o.salt_run("ha.lookup_jid", j).returncode == 0,  # type: ignore[misc]
                SOON,
                "all returns are in the job caches",
            )
            assert other.salt_run("ha.lookup_jid", jid).data["returned"] == done["returned"]
