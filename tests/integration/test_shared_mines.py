"""Masters that share mines: minions of one master get the mines of minions of the other."""

from __future__ import annotations

from typing import Any

import pytest
import salt.cache

from lab import Master, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT, QUICK, SOON, answers, level, meet, row

pytestmark = pytest.mark.core


def cached(master: Master, minion_id: str) -> dict[str, Any]:
    """What is in the cache of that master of that minion: mine, grains, and pillar."""
    cache = salt.cache.factory(dict(master.opts))
    data = cache.fetch(f"minions/{minion_id}", "data") or {}
    return {
        "mine": cache.fetch(f"minions/{minion_id}", "mine") or cache.fetch("mine", minion_id),
        "grains": data.get("grains") or cache.fetch("grains", minion_id),
        "pillar": data.get("pillar") or cache.fetch("pillar", minion_id),
    }


def test_mines_of_minions_that_are_connected_to_another_master(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        pillar = lab.root / "srv" / "pillar"
        pillar.mkdir(parents=True)
        (pillar / "top.sls").write_text("base: {'*': [secret]}\n")
        (pillar / "secret.sls").write_text("password: of-this-minion\n")
        m1, m2 = (lab.add_master(name, ha={**QUICK, "share_mines": True}) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        for name, master in (("w1", m1), ("w2", m2), ("w3", m2)):
            config = {
                "mine_enabled": True,
                "mine_functions": {"test.arg": [name]},
                "grains": {"role": f"role-{name}"},
            }
            minion = lab.add_minion(name, [master], config=config)
            minion.plant_key()
        lab.start_all()
        meet(lab)
        answers(m1, lab.minions["w1"])
        answers(m2, lab.minions["w2"], lab.minions["w3"])

        def mines(target: str, *more: str) -> dict[str, Any]:
            """What w1 gets: minion → what it mined."""
            found = m1.salt("w1", "mine.get", target, "test.arg", *more).data["w1"]
            return {minion_id: mined["args"] for minion_id, mined in found.items()}

        everybody = {"w1": ["w1"], "w2": ["w2"], "w3": ["w3"]}
        wait_for(lambda: mines("*") == everybody, SOON, "w1 gets the mines of both masters")
        by_grain = ("role:role-w2", "tgt_type=grain")
        wait_for(lambda: mines(*by_grain) == {"w2": ["w2"]}, SOON, "by grain, too")
        assert "password" in cached(m2, "w2")["pillar"]
        assert not cached(m1, "w2")["pillar"]

        assert m2.salt("w2", "mine.send", "test.arg", "changed", PATIENT).data["w2"] is True
        wait_for(lambda: mines("w2") == {"w2": ["changed"]}, SOON, "w1 gets what is new")
        assert not [each for each in (m1, m2) if "not shared" in row(each, each)["note"]]

        m1.salt_key("-d", "w2", "-y").check()
        wait_for(lambda: "w2" not in m2.keys()["minions"], SOON, "it is deleted on both")
        assert not cached(m1, "w2")["grains"]
        m2.kill()
        m2.start()
        wait_for(lambda: level(m1) and level(m2), SOON, "m2 tells everything again")
        answers(m2, lab.minions["w3"])
        assert m2.salt("w3", "mine.send", "test.arg", "later", PATIENT).data["w3"] is True
        wait_for(lambda: mines("w*").get("w3") == ["later"], SOON, "m1 has heard it")
        assert "w2" not in mines("*")
        assert not cached(m1, "w2")["grains"]
