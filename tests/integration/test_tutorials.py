"""Every command of the tutorials, typed in a lab: it does and prints what they say."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from lab import Lab, Master, wait_for
from saltext_ha.keystore import minion_key
from saltext_ha.replication.record import ACCEPTED, DELETED
from saltext_ha.rollout import drop_in
from saltext_ha.transport import identity
from saltext_ha.transport.peer import Peer, make_peer
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, accept, answers, group, level, meet, plant, shown
from tests.integration.tutorial import DOCS, Tutorial
from tests.turned import YEAR, Turned

TESTED_ELSEWHERE = {"unattended"}  # its setup is that of containers; see test_unattended.py


def test_a_new_group(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, ha=QUICK) for name in ("m1", "m2"))
        for folder in (m2.pki_dir, m2.sock_dir, Path(m2.opts["cachedir"])):
            shutil.rmtree(folder)  # never started
        m1.start()
        web1 = lab.add_minion("web1", masters=[m1, m2])
        web1.launch()
        wait_for(lambda: "web1" in m1.keys()["minions_pre"], SOON, "web1 knocks")
        assert Tutorial("new-group", lab).follow() > 8


def test_masters_that_have_grown_apart(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, ha={**QUICK, "mode": "observe"}) for name in ("m1", "m2"))
        keys = {minion_id: lab.key_pair()[1] for minion_id in ("web1", "web2", "web3", "db1")}
        for master, others in ((m1, ("web1", "web2", "db1")), (m2, ("web2", "web3"))):
            for minion_id in others:
                master.plant("minions", minion_id, keys[minion_id])
        m2.plant("minions_pre", "web1", keys["web1"])
        m2.plant("minions", "db1", lab.key_pair()[1])
        lab.start_all()
        meant = minion_key.show(minion_key.fingerprint(minion_key.normalise(keys["db1"])), False)
        assert Tutorial("grown-masters", lab, FINGERPRINT=meant).follow() > 8


README_STEPS = """\
```console
m1# salt-ha invite share_master_key=True
m2# salt-ha join test=True force=True
m2# salt-ha join force=True
m2# systemctl restart salt-master
m1# salt-run ha.status
Group default · OK · …
m1# salt-run ha.minion_config
master_type: failover
```
"""


def test_the_five_steps_of_readme(make_lab: MakeLab) -> None:
    """The masters have been started, so each has made a master key of its own."""
    section = (DOCS.parents[1] / "README.md").read_text().split("## Five minutes to a group")[1]
    steps = section.split("\n## ")[0]
    for line in README_STEPS.splitlines():
        if command := line.partition("# salt-")[2].partition("  [")[0]:
            assert f"salt-{command}" in steps
    assert "restart salt-master" in steps
    with make_lab() as lab:
        for name in ("m1", "m2"):
            lab.add_master(name, ha=QUICK)
        lab.start_all()
        assert Tutorial("README", lab, README_STEPS).follow() == 6
        assert len(master_keys(lab.masters["m1"])) == 1


def test_replacing_a_dead_master(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        plant(lab, "minions", "web1", m1, m2)
        m2.kill()
        for folder in (m2.pki_dir, m2.sock_dir, Path(m2.opts["cachedir"])):
            shutil.rmtree(folder)  # a new machine under the old name
        assert Tutorial("replace-a-dead-master", lab).follow() > 5


def test_trying_a_failover(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        web1 = lab.add_minion("web1", [m1, m2], "failover")
        web1.plant_key()
        plant(lab, "minions_pre", "web2", m1, m2)
        told = m1.salt_run("ha.minion_config", watchdog=True).check().data["text"]
        folder = web1.config_dir / "minion.d"
        folder.mkdir(exist_ok=True)
        (folder / drop_in.NAME).write_text(told)
        web1.start()
        web1.wait_ready()
        answers(m1, web1)
        assert Tutorial("failover-test", lab).follow() > 9


def test_a_master_was_stolen(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2", "m3") as lab:
        m1, m2, m3 = lab.masters.values()
        web1 = lab.add_minion("web1", masters=[m1, m2])
        m1.plant("minions", "web1", web1.pub)
        shown("web1", {"minions": web1.pub.strip()}, m1, m2)
        web1.start(wait_accepted=True)
        before = master_keys(m1)
        plant(lab, "minions", "web2", m1, m2, m3)
        misuse(lab)
        assert Tutorial("stolen-master", lab).follow() > 12
        for master in (m1, m2):
            keys = master.keys()
            assert sorted(keys["minions"]) == ["web1", "web2"]
            assert list(keys["minions_pre"]) == ["backdoor"]
            others = [peer["name"] for peer in master.control("peers")["peers"]]
            assert others == [{"m1": "m2", "m2": "m1"}[master.name]]
        assert len(before) == len(master_keys(m1)) == 1
        assert before != master_keys(m1)


def misuse(lab: Lab) -> None:
    """Whoever stole m3 does with its folder what can be done, and tells m2 alone."""
    m1, m2, m3 = lab.masters.values()
    m3.kill()
    thief, now = Turned(m3.pki_dir / "ha", "m3"), time.time()
    friend = Turned(lab.root / "friend", "x1")
    peer = pinned(m2)

    async def act() -> None:
        await thief.introduce(peer, friend, "https://127.0.0.9:4530")
        await thief.decide(peer, "backdoor", ACCEPTED, lab.key_pair()[1].strip(), at=now - YEAR)
        (known,) = (await thief.known(peer, "web2")).values()
        wide = (*known.context, *((f"{number:016x}", 1) for number in range(4000)))
        for context in (wide, ((known.context[0][0], 2**53 - 1),)):
            answer = await thief.push(peer, known._replace(context=tuple(sorted(context))))
            assert "claims writes that no master made" in answer["refused"][0]
        await thief.decide(peer, "web2", DELETED, known.public_key, at=now - YEAR)

    asyncio.run(act())
    shown("web2", {}, m1, m2)
    wait_for(lambda: "backdoor" in m1.keys()["minions"], SOON, "the backdoor is open")
    wait_for(lambda: "x1" in str(m2.control("peers")["peers"]), SOON, "x1 is trusted")


def pinned(master: Master) -> Peer:
    """A master of the lab as its peers know it."""
    certificate = identity.load_or_create(master.pki_dir / "ha", master.name).certificate
    return make_peer(master.name, f"https://{master.address}:{master.peer_port}", certificate)


def test_restoring_a_mistake(make_lab: MakeLab) -> None:
    with group(make_lab, "m1", "m2") as lab:
        m1, m2 = lab.masters.values()
        for minion_id in ("web1", "web2", "web3", "db1"):
            plant(lab, "minions", minion_id, m1, m2)
        wait_for(lambda: level(m1), SOON, "level")
        assert Tutorial("restore-a-mistake", lab).follow() > 8


def test_a_tree(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        git = lab.root / "git"
        git.mkdir()
        for name in ("m1", "m2"):
            served = lab.root / "srv" / name
            for kind in ("salt", "pillar"):
                (served / kind).mkdir(parents=True)
                (served / kind / "top.sls").write_text(f"base: {{}}  # of {name}\n")
            trees = {
                "states": {"source": str(git / "salt"), "live": str(served / "salt")},
                "pillar": {
                    "source": str(git / "pillar"),
                    "live": str(served / "pillar"),
                    "secret": True,
                },
            }
            config = {
                "file_roots": {"base": [str(served / "salt")]},
                "pillar_roots": {"base": [str(served / "pillar")]},
            }
            lab.add_master(name, ha={**QUICK, "trees": trees}, config=config)
        m1, m2 = lab.masters.values()
        m1.share_master_key(m2)
        web1 = lab.add_minion("web1", masters=[m1, m2])
        lab.start_all()
        meet(lab)
        wait_for(lambda: "web1" in m1.keys()["minions_pre"], SOON, "web1 knocks")
        accept(m1, web1)
        web1.wait_ready()
        assert Tutorial("trees", lab, **{"/srv/git": str(git)}).follow() > 12


def master_keys(master: Master) -> set[str]:
    """The fingerprints of the keys that minions know the masters of its group by."""
    return {row["master_key"] for row in master.control("status")["masters"]}


def test_every_tutorial_is_followed() -> None:
    here = Path(__file__).read_text()
    names = {path.stem for path in DOCS.glob("*.md")} - TESTED_ELSEWHERE
    assert [name for name in names if f'Tutorial("{name}"' not in here] == []
