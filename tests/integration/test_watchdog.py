"""Minions with the watchdog leave masters that do not work, and only those."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from lab import Lab, Master, Minion, wait_for
from lab.forwarder import Forwarder
from saltext_ha.config.watchdog import WatchdogSettings
from saltext_ha.minion.watchdog import decide, journal
from saltext_ha.rollout import drop_in
from tests.integration.bus import heard
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT
from tests.integration.watching import (
    SOON,
    answering,
    book,
    ha,
    heard_again,
    history,
    serving,
    stays,
    watched,
    where,
)


@dataclass
class Site:
    """Two masters and three failover minions that know both."""

    lab: Lab
    m1: Master
    m2: Master
    minions: list[Minion]


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        quick = {"gather_job_timeout": 1, "timeout": 2}
        m1, m2 = (lab.add_master(name, engine=False, config=quick) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        names = ("web1", "web2", "web3")
        called = {"ha_masters": {"first": m1.address, "second": m2.address}}
        config = {**watched(), **called}
        minions = [lab.add_minion(x, [m1, m2], "failover", config=config) for x in names]
        for minion in minions:
            minion.plant_key()
        lab.start_all([m1, m2])
        serving(m1, m2)
        for minion in minions:
            minion.start()
            minion.wait_ready()
        site = Site(lab, m1, m2, minions)
        # On a busy machine a master may be left at once, and rightly so.
        settle(site, m1)
        yield site


def settle(site: Site, master: Master) -> None:
    """All minions answer on *master* and their watchdogs know that they are there."""

    def there() -> bool:
        for minion in site.minions:
            last = book(minion).last()
            if last is None or last.target == master.address:
                continue
            other = site.m2 if master is site.m1 else site.m1
            other.salt(minion.name, "ha.failover", f"to={master.address}")
        return all(
            (last := book(minion).last()) is not None and last.target == master.address
            for minion in site.minions
        )

    wait_for(there, SOON, f"all are on {master.name}", poll=1)
    answering(master, site.minions, SOON)


@contextmanager
def behind(
    site: Site, name: str, config: Mapping[str, Any], kind: str = "failover"
) -> Iterator[tuple[Minion, str, Forwarder, Forwarder]]:
    """
    A minion of m1 that reaches it through a network: the address of m1 there, and the ways to its
    request port and to its publisher.
    """
    address, m1, m2 = site.lab.new_address(), site.m1, site.m2
    with (
        Forwarder((address, m1.ret_port), (m1.address, m1.ret_port)) as request,
        Forwarder((address, m1.publish_port), (m1.address, m1.publish_port)) as publish,
    ):
        config = {"master": [address, m2.address], **config}
        minion = site.lab.add_minion(name, [m1, m2], kind, config=config)
        for master in (m1, m2):
            master.plant("minions", name, minion.pub)
        minion.start()
        answering(m1, [minion], SOON)
        if kind == "failover":
            wait_for(lambda: book(minion).last(), SOON, "the watchdog knows where it is")
        yield minion, address, request, publish
        minion.stop()


def keepalive(kind: str) -> dict[str, Any]:
    """What drop-ins set of TCP's keepalive."""
    wanted = drop_in.wanted(["10.0.0.1", "10.0.0.2"], type=kind, watchdog=True)
    options = drop_in.options(wanted)
    return {key: value for key, value in options.items() if key.startswith("tcp_")}


def test_a_move_that_is_asked_for(site: Site) -> None:
    web1, m1, m2 = site.minions[0], site.m1, site.m2
    before = history(web1)
    switches = ha(m1, web1, "ha.current_master")["switches"]
    plan = m1.salt("web1", "ha.failover", PATIENT, test=True).data["web1"]
    assert (plan["from"], plan["to"], plan["result"]) == (m1.address, m2.address, None)
    by_name = m1.salt("web1", "ha.failover", "to=second", PATIENT, test=True).data["web1"]
    assert (by_name["to"], by_name["result"]) == (m2.address, None)
    assert history(web1) == before
    nowhere = m1.salt("web1", "ha.failover", "to=127.0.0.9", PATIENT)
    assert nowhere.data["web1"]["result"] is False
    assert "is none of this minion's masters" in nowhere.data["web1"]["comment"]
    for source, target in ((m1, m2), (m2, m1)):
        with heard(target) as events:
            asked = source.salt("web1", "ha.failover", f"to={target.address}", PATIENT)
            answer = asked.data["web1"]
            assert answer["result"] is True  # and the job has returned, to whom it was asked by
            answering(target, [web1], SOON)
            told = wait_for(lambda events=events: failover(events, "web1"), SOON, "it is told")
        assert (told["from"], told["to"]) == (source.address, target.address)
        assert told["why"] == journal.ASKED
        assert history(web1)[-1].target == target.address
        assert ha(target, web1, "ha.current_master")["address"] == target.address
    last = ha(m1, web1, "ha.current_master")
    assert last["switches"] == switches + 2
    assert last["since"] == history(web1)[-1].at
    there = ha(m1, web1, "ha.failover", f"to={m1.address}")
    assert (there["result"], there["comment"]) == (
        None,
        f"nothing to do: the minion is with {m1.address} already",
    )


def failover(events: list[tuple[str, dict[str, Any]]], name: str) -> dict[str, Any] | None:
    """What the failover event of that minion says."""
    told = [data for tag, data in events if tag == f"salt/ha/minion/{name}/failover"]
    return told[0].get("data", told[0]) if told else None


def gone(master: Master) -> Iterator[None]:
    master.kill()
    yield
    master.start()


def hung(master: Master) -> Iterator[None]:
    master.suspend()
    yield
    master.resume()


def stuck(master: Master) -> Iterator[None]:
    """Its workers do nothing more; whoever listens and publishes for them goes on."""
    workers = [psutil.Process(pid) for pid in master.pids()]
    workers = [each for each in workers if "MWorker" in " ".join(each.cmdline())]
    assert len(workers) >= master.opts["worker_threads"]
    for worker in workers:
        worker.suspend()
    yield
    for worker in workers:
        worker.resume()


def rested(minion: Minion) -> bool:
    """Whether its watchdog would move it now: after moves of its own it holds it for a while."""
    others = (journal.STARTED, journal.SEEN, journal.ASKED)
    own = [each.at for each in history(minion) if each.why not in others]
    return not own or time.time() - own[-1] > decide.hold(WatchdogSettings(), len(own))


@pytest.mark.core
@pytest.mark.parametrize("fault", [gone, hung, stuck])
def test_a_master_that_does_not_work_is_left_in_time(
    site: Site, fault: Callable[[Master], Iterator[None]]
) -> None:
    settle(site, site.m1)
    # After three moves a watchdog waits for 80 s.
    wait_for(lambda: all(map(rested, site.minions)), 2 * SOON, "no watchdog waits any more")
    before = {minion.name: len(history(minion)) for minion in site.minions}
    with heard(site.m2) as events:
        trouble = fault(site.m1)
        started = time.monotonic()
        next(trouble)
        try:
            took = answering(site.m2, site.minions, SOON, started)
            for minion in site.minions:
                told = wait_for(lambda m=minion: failover(events, m.name), SOON, "it is told")
                assert (told["from"], told["to"]) == (site.m1.address, site.m2.address)
                # 3008 itself notices a connection that breaks; a master that hangs keeps them.
                assert "no answer" in told["why"] or (fault is gone and told["why"] == journal.SEEN)
                assert told["seconds"] == history(minion)[-1].seconds
                if told["why"] == journal.SEEN:
                    assert told["seconds"] is None, "nobody has measured it"
                else:
                    assert 0 < told["seconds"] < SOON
        finally:
            next(trouble, None)
    print({name: round(seconds, 1) for name, seconds in took.items()})
    for minion in site.minions:
        assert [each.target for each in history(minion)[before[minion.name] :]] == [site.m2.address]
        # 3006 and 3007 bring their own check back, without a pause, at the end of a move.
        wait_for(
            lambda m=minion: scheduled(site.m2, m) == {},
            SOON,
            f"no check of Salt's own is scheduled on {minion.name}",
        )


def scheduled(master: Master, minion: Minion) -> Any:
    asked = master.salt(minion.name, "schedule.list", "show_all=True", "return_yaml=False")
    return (asked.data or {}).get(minion.name)


@pytest.mark.core
def test_a_master_under_two_names_is_left_as_any_other(site: Site) -> None:
    """Which of the names Salt took does not show; an event about the other one is ignored."""
    m1, m2 = site.m1, site.m2
    *others, third, fourth = map(int, m1.address.split("."))
    name = ".".join(map(str, (*others, 256 * third + fourth)))  # another way to write the address
    for number, names in enumerate(([name, m1.address], [m1.address, name])):
        config = {**watched(1, timeout=1), "master": [*names, m2.address], "auth_timeout": 3}
        twice = site.lab.add_minion(f"twice{number}", [m1, m2], "failover", config=config)
        twice.plant_key()
        twice.start()
        answering(m1, [twice], SOON)
        asked = wait_for(
            lambda m=twice: m.salt_call("ha.current_master").data, SOON, "the minion is on m1"
        )
        assert (asked["address"], asked["ip"], asked["connected"]) == (names[0], m1.address, True)
        for source, target in ((m1, m2), (m2, m1)):
            source.salt(twice.name, "ha.failover", f"to={target.address}", PATIENT)
            answering(target, [twice], SOON)
        # Salt tries the second name next, and takes it: the watchdog cannot tell that from before.
        bus = twice.salt_call("event.fire", {"master": names[0]}, "__master_disconnected")
        assert bus.data is True
        answering(m1, [twice], SOON)
        m1.suspend()
        try:
            answering(m2, [twice], SOON)
            wait_for(lambda m=twice: where(m) == m2.address, SOON, "it is noted")
        finally:
            m1.resume()
            twice.stop()
            serving(m1)


@pytest.mark.core
def test_without_any_master_nobody_swings(site: Site) -> None:
    settle(site, site.m1)
    before = {minion.name: len(history(minion)) for minion in site.minions}
    for master in (site.m1, site.m2):
        master.suspend()
    try:
        for minion in site.minions:
            wait_for(
                lambda log=minion.log_file: "no other master answers" in log.read_text(),
                SOON,
                f"{minion.name} says so",
            )
        stays(lambda: all(len(history(x)) == before[x.name] for x in site.minions), 12)
    finally:
        # On a busy machine m1 may answer later than m2, and would be left, rightly so.
        site.m1.resume()
        try:
            serving(site.m1)
        finally:
            site.m2.resume()
    answering(site.m1, site.minions, SOON)
    for minion in site.minions:
        assert len(history(minion)) == before[minion.name]


@pytest.mark.core
def test_healthy_masters_are_not_left(site: Site) -> None:
    settle(site, site.m1)
    before = {minion.name: len(history(minion)) for minion in site.minions}
    stays(lambda: all(len(history(x)) == before[x.name] for x in site.minions), 16)
    answering(site.m1, site.minions, SOON)


def test_a_master_that_hangs_right_after_a_failback(site: Site) -> None:
    m1, m2 = site.m1, site.m2
    config = watched(failback=True, stable=2)
    back = site.lab.add_minion("back", [m1, m2], "failover", config=config)
    back.plant_key()
    back.start()
    try:
        answering(m1, [back], SOON)  # one that hangs during the start is another matter
        wait_for(lambda: where(back) == m1.address, SOON, "it is on m1")
        m1.suspend()
        # On a busy machine m2 may seem dead at first, too, and is asked again after a while.
        wait_for(lambda: where(back) == m2.address, 2 * SOON, "it has left m1")
        m1.resume()
        # After several moves it stays for 80 s.
        wait_for(lambda: where(back) == m1.address, 2 * SOON, "failback")
        started = time.monotonic()
        m1.suspend()
        took = answering(m2, [back], SOON, started)
    finally:
        m1.resume()
        back.stop()
    print(took)


@pytest.mark.core
def test_a_network_that_breaks(site: Site) -> None:
    """m1 behind a network that first drops all packets, then has lost its publisher only."""
    m1, m2 = site.m1, site.m2
    config = watched(1, timeout=1, failback=True, stable=2)
    with behind(site, "far", config) as (far, address, request, publish):
        request.dropping = publish.dropping = True
        answering(m2, [far], SOON)
        wait_for(lambda: where(far) == m2.address, SOON, "it is noted")
        last = book(far).last()
        assert last is not None
        assert (last.source, last.target) == (address, m2.address)
        assert "no answer" in last.why  # no connection breaks, so nobody else can have noticed

        # What has hung once is dead; new connections work, so it goes back in the end.
        for forwarder in (request, publish):
            forwarder.refuse()
            forwarder.dropping = False
            forwarder.accept()
        wait_for(lambda: where(far) == address, SOON, "failback")
        assert "is preferred" in str(book(far).last())
        answering(m1, [far], SOON)

        publish.refuse()
        wait_for(lambda: where(far) == m2.address, SOON, "the deaf minion moves")
        last = book(far).last()
        assert last is not None
        # 3008 connects elsewhere at once; else the watchdog finds that nobody greets it there.
        seen = last.why == journal.SEEN
        assert seen or last.why.startswith("its publisher does not answer for "), last.why
        answering(m2, [far], SOON)


@pytest.mark.core
def test_a_slow_network_is_left_only_when_answers_come_too_late(site: Site) -> None:
    m1, m2 = site.m1, site.m2
    with behind(site, "slow", watched(2, timeout=2)) as (slow, address, *ways):
        before = history(slow)

        for way in ways:
            way.delay = 0.15
        stays(lambda: history(slow) == before, 12)
        answering(m1, [slow], SOON)

        for way in ways:
            way.delay = 4.0
        answering(m2, [slow], SOON)
        wait_for(lambda: where(slow) == m2.address, SOON, "it is noted")
        last = history(slow)[-1]
        assert (last.source, last.target) == (address, m2.address)
        assert "no answer" in last.why


@pytest.mark.core
@pytest.mark.parametrize("fault", ["swallowed", "forgotten"])
def test_a_subscription_that_stands_and_is_deaf(site: Site, fault: str) -> None:
    """
    The request port answers all the time. Of the publisher's connection nothing comes through any
    more: somebody on the way acknowledges everything and passes nothing on, or drops it all.
    """
    m1, m2 = site.m1, site.m2
    config = {**watched(), **keepalive("failover")}
    with behind(site, f"deaf-{fault}", config) as (deaf, _, request, publish):
        started = time.monotonic()
        if fault == "swallowed":
            publish.dropping = True
            took = answering(m2, [deaf], SOON, started)
            wait_for(lambda: where(deaf) == m2.address, SOON, "it is noted")
            last = book(deaf).last()
            assert last is not None
            assert last.why.startswith("its publisher does not answer for ")
            assert not request.dropping
        else:
            publish.forget()
            took = heard_again((m1, m2), deaf, started)
        print({fault: {name: round(seconds, 1) for name, seconds in took.items()}})


@pytest.mark.core
def test_a_hot_minion_gets_a_lost_subscription_back(site: Site) -> None:
    """
    Somebody on the way drops its connection to the publisher of one of its masters. The kernel
    gives it up after 14 s, with the keepalive that drop-ins have, and Salt connects anew.
    """
    m1, m2 = site.m1, site.m2
    config = {**watched(), **keepalive("hot")}
    with behind(site, "hot", config, "hot") as (hot, _, _, publish):
        answering(m2, [hot], SOON)
        started = time.monotonic()
        publish.forget()
        answering(m2, [hot], SOON)
        took = answering(m1, [hot], SOON, started)
        print({name: round(seconds, 1) for name, seconds in took.items()})


@pytest.mark.core
def test_a_function_that_returns_several_masters(site: Site) -> None:
    """The minion is bound to all of them, and none of their watchdogs sees a move."""
    m1, m2 = site.m1, site.m2
    modules = site.lab.root / "modules"
    modules.mkdir()
    code = f"def masters():\n    return [{m1.address!r}, {m2.address!r}]\n"
    (modules / "whereabouts.py").write_text(code)
    function = {"master": "whereabouts.masters", "master_type": "func"}
    config = {**watched(1, timeout=1), **function, "module_dirs": [str(modules)]}
    several = site.lab.add_minion("several", [m1, m2], "failover", config=config)
    several.plant_key()
    several.start()
    try:
        for master in (m1, m2):
            answering(master, [several], SOON)
            told = wait_for(
                lambda m=master: "since" in (it := ha(m, several, "ha.current_master")) and it,
                SOON,
                "its watchdog knows it",
            )
            assert (told["address"], told["switches"]) == (master.address, 0)
        known = {x: journal.Journal(several.opts["cachedir"], x.address).read for x in (m1, m2)}
        stays(lambda: all({x.source for x in read()} == {None} for read in known.values()), 5)
    finally:
        several.stop()


@pytest.mark.core
def test_it_does_not_go_where_it_is_not_let_in(site: Site) -> None:
    """m1 answers again, and has lost the minion's key: Salt would wait there for ever."""
    m1, m2 = site.m1, site.m2
    config = watched(1, timeout=1, failback=True, stable=2)
    with behind(site, "shy", config) as (shy, address, *doors):
        for door in doors:
            door.refuse()
        answering(m2, [shy], SOON)
        wait_for(lambda: where(shy) == m2.address, SOON, "it is with m2")
        before = len(history(shy))

        key = m1.key_dir / "minions" / "shy"
        key.unlink()
        for door in doors:
            door.accept()
        wait_for(
            lambda: f"to={address}: the key of shy is pending there" in shy.log_file.read_text(),
            SOON,
            "m1 does not let it in",
        )
        refused = m2.salt("shy", "ha.failover", f"to={address}", PATIENT).data["shy"]
        assert refused["result"] is False
        assert "would not let this minion in: the key of shy is pending" in refused["comment"]
        # Whatever happens now, it is still with m2, and has not been away.
        answering(m2, [shy], SOON)
        assert len(history(shy)) == before

        m1.salt_key("-a", "shy", "-y").check()
        wait_for(lambda: where(shy) == address, SOON, "failback, once it is let in")
        answering(m1, [shy], SOON)
