"""A real failover minion moves: mine, grains and pillar are in the new master's cache at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import salt.cache

from lab import Master, Minion, wait_for
from tests.integration.bus import heard
from tests.integration.conftest import MakeLab
from tests.integration.group import LONG, PATIENT, QUICK, SOON, level, meet, row

pytestmark = pytest.mark.core


def cached(master: Master) -> set[str]:
    """Which of mine, grains and pillar of the minion are in the cache of that master."""
    cache = salt.cache.factory(dict(master.opts))
    data = cache.fetch("minions/web1", "data") or {}
    found = {
        "grains": data.get("grains") or cache.fetch("grains", "web1"),
        "pillar": data.get("pillar") or cache.fetch("pillar", "web1"),
        "mine": cache.fetch("minions/web1", "mine") or cache.fetch("mine", "web1"),
    }
    return {name for name, value in found.items() if value}


def test_what_the_new_master_knows_of_a_minion_that_moved(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        pillar = lab.root / "srv" / "pillar"
        pillar.mkdir(parents=True)
        (pillar / "top.sls").write_text("base: {'*': [web]}\n")
        (pillar / "web.sls").write_text("role: web\n")
        m1, m2 = (lab.add_master(name, ha=QUICK) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        hold = lab.root / "hold"
        mined = f"while test -e {hold}; do sleep 0.1; done; echo mined"
        config = {
            "mine_enabled": True,
            "mine_functions": {"cmd.shell": [mined]},
            "grains": {"rack": "r7"},
        }
        minion = lab.add_minion("web1", [m1, m2], type="failover", config=config)
        minion.plant_key()
        lab.start_all()
        meet(lab)
        minion.wait_ready()
        (here,) = minion.bound_to()
        first, other = (m1, m2) if here == "m1" else (m2, m1)
        everything = {"mine", "grains", "pillar"}
        wait_for(lambda: cached(first) == everything, SOON, "the first master has all")
        assert cached(other) == set()
        with heard(other, "salt/minion/web1/start") as events:
            first.kill()
            wait_for(lambda: events, LONG, "it has moved", poll=0.01)
            moved = time.monotonic()
            wait_for(lambda: cached(other) == everything, SOON, "the new master has all", poll=0.05)
            took = time.monotonic() - moved
        print(f"all there after {took:.1f} s")
        assert other.salt_run("cache.grains", "web1").check().data["web1"]["rack"] == "r7"
        assert other.salt_run("cache.pillar", "web1").check().data["web1"]["role"] == "web"
        mine = other.salt_run("cache.mine", "web1").check().data["web1"]
        assert "mined" in str(mine)
        first.start()
        wait_for(lambda: level(first) and level(other), SOON, "the first is back")
        its_mine_is_older_here(minion, other, first, hold)


def its_mine_is_older_here(minion: Minion, there: Master, here: Master, hold: Path) -> None:
    """It moves, and its mine hangs for as long as *hold* is there."""

    def moves() -> bool:
        written(here, "mine", time.time() - 3600)
        written(here, "data", time.time())
        answer = there.salt("web1", "ha.failover", f"to={here.address}").data.get("web1")
        assert not answer or answer["result"] is True, answer["comment"]
        # It may have gone, though its answer came too late.
        return bool(answer) or here.name in minion.bound_to()

    def takes_jobs() -> bool:
        bound = minion.bound_to()
        if there.name in bound:
            moves()  # Salt's check of a master that it had left, begun before, sent it away again
        return here.name in bound

    assert there.salt("web1", "mine.update", PATIENT).data["web1"] is True
    hold.touch()
    with heard(here, "salt/minion/web1/start") as events:
        wait_for(moves, SOON, "it is on its way")
        wait_for(lambda: events, SOON, "it has moved", poll=0.01)
        wait_for(takes_jobs, SOON, "it takes jobs", poll=0.01)
    (note,) = wait_for(lambda: notes(here), SOON, "its mine is older here")
    assert note.startswith("1 minion came here and its mine is older here than on the master")
    assert f"web1 ({there.name}: " in note
    counts = {each["name"]: each["mines"] for each in here.control("status")["masters"]}
    assert counts[here.name] == {"older": 1, "unknown": 0}
    assert row(there, here)["mines"] == {"older": 1, "unknown": 0}
    assert "web1" in row(there, here)["note"]
    hold.unlink()
    fine = {"older": 0, "unknown": 0}
    wait_for(lambda: row(here, here)["mines"] == fine, SOON, "it has refreshed its mine")
    assert not notes(here)


def written(master: Master, what: str, at: float) -> None:
    """The mine, or the data with the grains, of the minion are as if cached there at that time."""
    folder = Path(master.opts["cachedir"])
    of_3008 = folder / {"data": "grains"}.get(what, what) / "web1.p"
    files = [each for each in (folder / "minions" / "web1" / f"{what}.p", of_3008) if each.exists()]
    assert files
    for file in files:
        os.utime(file, (at, at))


def notes(master: Master) -> list[str]:
    """What *master* says of itself about mines."""
    return [each for each in row(master, master)["note"].split("; ") if "mine is older" in each]
