"""Three masters, one of which does not let the minion in: which of the others it can get to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import Master, Minion, wait_for
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT
from tests.integration.watching import SOON, answering, book, ha, serving, watched, where

pytestmark = pytest.mark.core


@contextmanager
def three(
    make_lab: MakeLab, keyless: str, down: str = ""
) -> Iterator[tuple[Minion, Master, Master, Master]]:
    """web1 on m1, and m1 to m3, of which *keyless* has no key of it, and *down* is not started."""
    with make_lab() as lab:
        quick = {"gather_job_timeout": 1, "timeout": 2}
        m1, m2, m3 = (lab.add_master(x, engine=False, config=quick) for x in ("m1", "m2", "m3"))
        for other in (m2, m3):
            m1.share_master_key(other)
        web1 = lab.add_minion("web1", [m1, m2, m3], "failover", config=watched(1, timeout=1))
        for master in (m1, m2, m3):
            if master.name != keyless:
                master.plant("minions", "web1", web1.pub)
        up = [master for master in (m1, m2, m3) if master.name != down]
        lab.start_all(up)
        serving(*up)
        web1.start()
        answering(m1, [web1], SOON)
        wait_for(lambda: book(web1).last(), SOON, "the watchdog knows where it is")
        yield web1, m1, m2, m3


def test_it_gets_past_a_master_that_does_not_let_it_in(make_lab: MakeLab) -> None:
    with three(make_lab, keyless="m3") as (web1, m1, m2, m3):
        assert asked_to(m1, m2)["result"] is True
        answering(m2, [web1], SOON)
        wait_for(lambda: where(web1) == m2.address, SOON, "the watchdog knows that it is with m2")

        # Next would be m3, which knows no web1 and would have it wait.
        m2.suspend()
        try:
            answering(m1, [web1], SOON)
            wait_for(lambda: where(web1) == m1.address, SOON, "it is noted")
            text = web1.log_file.read_text()
            assert f"to={m3.address}: the key of web1 is pending there" in text
        finally:
            m2.resume()
        serving(m2)

        # From m1 the way to m3 leads past m2, when that keeps it.
        m3.salt_key("-a", "web1", "-y").check()
        m2.salt_key("-d", "web1", "-y").check()
        told = asked_to(m1, m3)
        assert told["result"] is False
        assert f"on the way to {m3.address} Salt tries {m2.address}" in told["comment"]
        assert ha(m1, web1, "ha.current_master")["address"] == m1.address


def test_one_that_was_dead_when_it_was_passed_by_is_the_next(make_lab: MakeLab) -> None:
    """Salt leaves it in front in its list; here it would keep the minion, had that gone there."""
    with three(make_lab, keyless="m2", down="m2") as (web1, m1, m2, m3):
        assert asked_to(m1, m3)["result"] is True  # past m2
        answering(m3, [web1], SOON)
        wait_for(lambda: where(web1) == m3.address, SOON, "it is noted")
        m2.start()
        serving(m2)
        told = ha(m3, web1, "ha.failover", "test=True")
        assert f"{m2.address} would not let this minion in" in told["comment"]

        m3.suspend()
        try:
            answering(m1, [web1], SOON)
            wait_for(lambda: where(web1) == m1.address, SOON, "it is noted")
            text = web1.log_file.read_text()
            assert f"to={m2.address}: the key of web1 is pending there" in text
        finally:
            m3.resume()


def asked_to(master: Master, target: Master) -> dict[str, object]:
    told = master.salt("web1", "ha.failover", f"to={target.address}", PATIENT).check().data
    answer: dict[str, object] = told["web1"]
    return answer


def test_a_minion_that_reaches_no_master_ends_with_its_watchdog(make_lab: MakeLab) -> None:
    """Salt signals no engine then, and waits for all: systemd would kill it after 90 s."""
    with make_lab() as lab:
        master = lab.add_master("m1", engine=False)
        web1 = lab.add_minion("web1", [master], "failover", config=watched())
        web1.start()
        log = web1.log_file
        wait_for(
            lambda: log.exists() and "ha_watchdog: " in log.read_text(), SOON, "the engine runs"
        )
        assert web1.stop(80)
