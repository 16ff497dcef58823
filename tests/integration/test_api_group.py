"""
The salt-api pool where minions listen to different masters: a job goes where its minions are.

Every job appends a line of its own to a file on each minion: that, not the pool, says what was run
how often.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from lab.api import PASSWORD, USER, SaltApi, api_settings
from saltext_ha.api import NotAuthorised, OutcomeUnknown, SaltApiPool, TargetNotDivided
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, level
from tests.integration.watching import serving

numbers = itertools.count(1)


@dataclass
class Site:
    """``hot`` hears both masters, ``fo1`` m1 alone, ``fo2`` m2 alone."""

    lab: Lab
    m1: Master
    m2: Master
    apis: list[SaltApi]
    minions: dict[str, Minion]

    def pool(self, **more: Any) -> SaltApiPool:
        masters = [{"name": f"api{n}", "url": api.url} for n, api in enumerate(self.apis, 1)]
        usual = {"username": USER, "password": PASSWORD, "eauth": "file", "deadline": 120}
        quick = {"probe_interval": 600, "probe_timeout": 10, "spacing": 0.1, "rise": 1}
        return SaltApiPool(**{"masters": masters, **usual, **quick, **more})

    def job(self) -> tuple[str, str]:
        """A word of its own, and a command that notes it beside the minion's name."""
        word = f"job{next(numbers)}"
        return word, f"echo {{{{ grains.id }}}} >> {self.lab.root / word}"

    def runs(self, word: str) -> Counter[str]:
        file = self.lab.root / word
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def where(self) -> dict[str, list[str]]:
        """Which masters reach each minion, from what they answer now."""
        told = self.m1.control("where", {"glob": "*", "live": True, "timeout": 4})
        every = {name: ["m1", "m2"] for name in self.minions}
        return {**every, **told["minions"]}

    def settle(self, **wanted: list[str]) -> None:
        wanted = {"fo1": ["m1"], "fo2": ["m2"], "hot": ["m1", "m2"], **wanted}
        wait_for(lambda: self.where() == wanted, SOON, f"minions hear {wanted}", poll=0.5)


def grains(**values: str) -> dict[str, Any]:
    return {"grains": values}


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        folder, addresses = lab.root / "api", [lab.new_address(), lab.new_address()]
        folder.mkdir()
        m1, m2 = (
            lab.add_master(
                name,
                ha=QUICK,
                address=address,
                config=api_settings(folder / name, address, lab.ports.api),
            )
            for name, address in zip(("m1", "m2"), addresses, strict=True)
        )
        m1.share_master_key(m2)
        # Salt's own failover, without the watchdog: nobody reports where they are.
        minions = {
            "hot": lab.add_minion("hot", [m1, m2]),
            "fo1": lab.add_minion("fo1", [m1, m2], "failover", config=grains(place="here")),
            "fo2": lab.add_minion(
                "fo2", [m2, m1], "failover", config=grains(place="there", words="two words")
            ),
        }
        for minion in minions.values():
            minion.plant_key()
        lab.start_all([m1, m2])
        lab.form_group()
        serving(m1, m2)
        for minion in minions.values():
            minion.launch()
        with SaltApi(m1) as api1, SaltApi(m2) as api2:
            found = Site(lab, m1, m2, [api1, api2], minions)
            found.settle()
            yield found


def test_a_job_goes_where_its_minion_is(site: Site) -> None:
    with site.pool(selection="round_robin") as pool:
        for _ in range(2):
            for name in site.minions:
                assert pool.local(name, "test.ping") == {name: True}
        assert pool.local("fo1", "test.ping").jids.keys() == {"api1"}
        assert pool.local("fo2", "test.ping").jids.keys() == {"api2"}


def test_targets_on_several_masters_run_once_each(site: Site) -> None:
    with site.pool(selection="round_robin") as pool:
        for tgt, kind, reached in (
            ("*", "glob", {"fo1", "fo2", "hot"}),
            (["fo1", "fo2"], "list", {"fo1", "fo2"}),
            ("E@fo.* or hot", "compound", {"fo1", "fo2", "hot"}),
            ("id:fo*", "grain", {"fo1", "fo2"}),
        ):
            word, command = site.job()
            run = {"cmd": command, "template": "jinja"}
            found = pool.local(tgt, "cmd.retcode", kwarg=run, tgt_type=kind)
            assert found == dict.fromkeys(reached, 0), (tgt, kind)
            assert site.runs(word) == dict.fromkeys(reached, 1), (tgt, kind)
        word, command = site.job()
        job = pool.local_async("*", "cmd.retcode", kwarg={"cmd": command, "template": "jinja"})
        assert pool.wait(job) == dict.fromkeys(site.minions, 0)
        assert site.runs(word) == dict.fromkeys(site.minions, 1)


def test_a_grain_that_only_the_other_master_knows(site: Site) -> None:
    """Each master decides about the minions that listen to it: m1 never heard of fo2's grains."""
    assert site.m1.salt_run("cache.grains", "fo2").data.get("fo2", {}) == {}
    with site.pool() as pool:
        for tgt, kind in (
            ("G@place:here or G@place:there", "compound"),
            (["G@place:here", "or", "G@words:two?words"], "compound"),
            ("words:two?words", "grain"),
        ):
            word, command = site.job()
            run = {"cmd": command, "template": "jinja"}
            wanted = {"fo2"} if kind == "grain" else {"fo1", "fo2"}
            found = pool.local(tgt, "cmd.retcode", kwarg=run, tgt_type=kind)
            assert found == dict.fromkeys(wanted, 0), (tgt, kind)
            assert site.runs(word) == dict.fromkeys(wanted, 1), (tgt, kind)
        with pytest.raises(TargetNotDivided):
            pool.local("words:two words", "test.ping", tgt_type="grain")
    refused = site.m1.salt_run("ha.cmd", "words:two words", "test.ping", "tgt_type=grain")
    assert "cannot be divided" in refused.data["error"], refused
    for tgt, kind in (("G@place:there", "compound"), ("words:two?words", "grain")):
        ran = site.m1.salt_run("ha.cmd", tgt, "test.ping", f"tgt_type={kind}").data
        assert (ran["returned"], ran["missing"], ran["retcode"]) == ({"fo2": True}, {}, 0), tgt


def test_one_command_for_the_whole_group(site: Site) -> None:
    word, command = site.job()
    ran = site.m2.salt_run("ha.cmd", "*", "cmd.retcode", command, "template=jinja").data
    assert ran["returned"] == dict.fromkeys(site.minions, 0)
    assert ran["jobs"][0].keys() == {"m1", "m2"}
    assert site.runs(word) == dict.fromkeys(site.minions, 1)
    failed = site.m1.salt_run("ha.cmd", "fo2", "cmd.run", "exit 3")
    assert (failed.data["failed"], failed.data["retcode"]) == ({"fo2": 3}, 1)
    # Longer than its timeout: minions say that they still run it, and are waited for.
    slow = site.m1.salt_run("ha.cmd", "*", "test.sleep", "14", "timeout=3").data
    assert slow["returned"] == dict.fromkeys(site.minions, True)
    assert (slow["missing"], slow["running"], slow["retcode"]) == ({}, {}, 0)


def test_who_is_given_up_where_he_was_and_is_elsewhere_is_not_down(site: Site) -> None:
    """What the pool was told is old: that fo2 did not answer on m1 is no False."""
    with site.pool() as pool:
        stale = {"fo2": ("api1",)}
        pool._jobs._group.reached = old(pool._jobs._group.reached, stale)  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown) as told:
            pool.local(["fo1", "fo2"], "test.ping", timeout=5)
        assert (told.value.missing, told.value.returned) == (["fo2"], {"fo1": True})
        assert "listens to api2 now" in str(told.value)
        pool._jobs._group.reached = old(pool._jobs._group.reached, stale)  # type: ignore[method-assign]
        found = pool.local(["fo1", "fo2"], "test.ping", timeout=5, idempotent=True)
        assert found == {"fo1": True, "fo2": True}


def old(ask: Any, stale: dict[str, Any]) -> Any:
    """What was true a moment ago, where a call asks first; the truth when it looks again."""
    return lambda *args, live=False: ask(*args, live=True) if live else stale


def test_without_the_right_to_ask_the_answer_says_so(site: Site) -> None:
    with site.pool() as pool:
        for master in pool._masters.values():
            pool._jobs._group._be_silent(master, "as one that may not run ha.where")
        found = pool.local("fo2", "test.ping", timeout=1)
        assert (found, found.unsure) == ({"fo2": False}, {"fo2"})
    with site.pool(password="wrong") as pool, pytest.raises(NotAuthorised):
        pool.local("fo2", "test.ping")


def test_one_call_is_lost_with_a_master_at_most(site: Site) -> None:
    """salt-master is dead, its salt-api alive: whoever lost a call there looks before the next."""
    with site.pool(deadline=60, probe_timeout=3) as pool:
        assert pool.local("hot", "test.ping") == {"hot": True}
        site.m1.kill()
        lost = 0
        for _ in range(3):
            try:
                assert pool.local("hot", "test.ping") == {"hot": True}
            except OutcomeUnknown:
                lost += 1
        assert lost <= 1
        assert pool.local("hot", "test.ping") == {"hot": True}
    site.m1.start()
    wait_for(lambda: level(site.m1) and level(site.m2), SOON, "both know each other again")
    wait_for(lambda: site.where()["fo2"] == ["m2"], SOON, "fo2 is where it was", poll=0.5)


def test_a_minion_that_moved_is_found(site: Site) -> None:
    """Salt's own failover tells nobody; and the pool has been told where it was, just before."""
    with site.pool() as pool:
        assert pool.local("fo2", "test.ping") == {"fo2": True}
        site.apis[1].kill()
        site.m2.kill()
        wait_for(
            lambda: site.m1.salt("fo*", "test.ping").data == {"fo1": True, "fo2": True},
            SOON,
            "both listen to m1",
        )
        assert pool.local("fo*", "test.ping") == {"fo1": True, "fo2": True}
        site.m2.start()
        site.apis[1].start()
        wait_for(lambda: site.where()["fo2"] == ["m1"], SOON, "it stays there", poll=0.5)
        assert pool.local("*", "test.ping") == {"fo1": True, "fo2": True, "hot": True}
