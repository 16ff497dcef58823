"""``ha.install_minions``: minions that have nothing of ours get it, over Salt itself."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import Master, Minion
from saltext_ha.common import version
from tests import salt_venv
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, answers, meet
from tests.integration.watching import supervised

# Another release of Salt for one of the minions, where it is installed: make test-all.
OLDER = Path(__file__).parents[2] / ".venv-3006" / "bin" / "python"
VERSION = version.ours()


@dataclass
class Site:
    """Two masters; a minion on each, with a Python of its own, and one that does not run."""

    m1: Master
    m2: Master
    near: Minion
    far: Minion
    python: dict[str, Path]


@pytest.fixture(scope="module")
def site(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("venvs")
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, ha=QUICK) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        older = OLDER if OLDER.exists() else None
        python = {
            "near": salt_venv.make(folder / "near"),
            "far": salt_venv.make(folder / "far", older),
        }
        # What a fork server has imported would not be what is installed meanwhile.
        near = lab.add_minion("near", [m1], python=python["near"], forked=False)
        far = lab.add_minion("far", [m2], python=python["far"], forked=False)
        supervised(near)
        away = lab.key_pair()[1]
        for master in (m1, m2):
            for name, key in (("near", near.pub), ("far", far.pub), ("away", away)):
                master.plant("minions", name, key)
        lab.start_all()
        meet(lab)
        answers(m1, near)
        answers(m2, far)
        yield Site(m1, m2, near, far, python)


def rows(answer: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in answer.data["minions"]}


def has(python: Path) -> bool:
    done = subprocess.run([python, "-I", "-c", "import saltext_ha"], capture_output=True)
    return done.returncode == 0


def left_behind(minion: Minion) -> list[str]:
    return [p.name for p in Path(minion.opts["cachedir"]).iterdir() if "saltext-ha" in p.name]


def test_first_it_only_says_what_it_would_do(site: Site) -> None:
    answer = site.m1.salt_run("ha.install_minions", "near,far", tgt_type="list", test=True)
    found = rows(answer)
    assert {row["result"] for row in found.values()} == {"would be installed"}, answer
    assert answer.returncode == 0
    assert not any(map(has, site.python.values()))


def test_minions_get_it_wherever_they_are(site: Site) -> None:
    answer = site.m1.salt_run("ha.install_minions", "near,far,away", tgt_type="list", timeout=200)
    found = rows(answer)
    assert {i: row["result"] for i, row in found.items()} == {
        "near": "installed",
        "far": "installed",
        "away": "no answer",
    }, answer
    assert answer.returncode == 2
    assert found["near"]["before"] is None
    assert found["near"]["now"] == VERSION
    assert all(map(has, site.python.values()))
    assert "sent part 1 of" in answer.stderr
    for minion in (site.near, site.far):
        assert not left_behind(minion)
    told = site.m1.salt_run("ha.cmd", "near,far", "ha.current_master", tgt_type="list")
    assert set(told.data["returned"]) == {"near", "far"}
    assert not told.data["failed"]


def test_a_second_time_it_is_already_there(site: Site) -> None:
    answer = site.m2.salt_run("ha.install_minions", "near")
    assert rows(answer)["near"]["result"] == "already there", answer
    assert answer.returncode == 0
    assert "sent part" not in answer.stderr


def test_another_version_is_replaced_and_the_minion_restarted(site: Site) -> None:
    (info,) = site.python["near"].parents[1].glob("lib/*/site-packages/saltext_ha-*.dist-info")
    text = (info / "METADATA").read_text("utf-8")
    (info / "METADATA").write_text(text.replace(f"\nVersion: {VERSION}", "\nVersion: 0.0.1"))
    answer = site.m1.salt_run("ha.install_minions", "near", timeout=200)
    row = rows(answer)["near"]
    assert (row["result"], row["before"], row["now"]) == ("installed", "0.0.1", VERSION), answer
    assert row["restarted"] is True
    assert answer.returncode == 0
    told = site.m1.salt_run("ha.cmd", "near", "ha.version")
    assert told.data["returned"]["near"]["version"] == VERSION


def test_without_pip_it_says_so_and_nothing_is_left(site: Site) -> None:
    (pip,) = site.python["far"].parents[1].glob("lib/*/site-packages/pip")
    pip.rename(pip.with_name("hidden"))
    try:
        answer = site.m1.salt_run("ha.install_minions", "far", force=True, timeout=200)
    finally:
        pip.with_name("hidden").rename(pip)
    row = rows(answer)["far"]
    assert row["result"] == "failed", answer
    assert "No module named pip" in row["problem"]
    assert answer.returncode == 1
    assert not left_behind(site.far)
    assert has(site.python["far"])
