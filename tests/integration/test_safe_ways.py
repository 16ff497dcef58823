"""Could a master be spared whose minions cannot get to the other one?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Master, wait_for
from lab.forwarder import Forwarder
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, meet

pytestmark = pytest.mark.core

LONG = 240.0


@dataclass
class Site:
    """
    Two masters, the second one behind a network: under the address that the group has for it, and
    under another one that only a port map knows.
    """

    m1: Master
    request: Forwarder
    publisher: Forwarder


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    """web1 is with m1, and knows m2 by the group's address; hot is with both, through the map."""
    with make_lab() as lab, ExitStack() as stack:
        far, mapped = lab.new_address(), lab.new_address()
        m1 = lab.add_master("m1", ha=QUICK)
        m2 = lab.add_master("m2", ha={**QUICK, "address": far})
        m1.share_master_key(m2)

        def way(host: str, port: int) -> Forwarder:
            return stack.enter_context(Forwarder((host, port), (m2.address, port)))

        request, publisher = (way(far, port) for port in (m2.ret_port, m2.publish_port))
        for host, port in (
            (far, lab.ports.peer),
            (mapped, m2.ret_port),
            (mapped, m2.publish_port),
        ):
            way(host, port)
        lab.start_all([m1, m2])
        meet(lab)
        web1 = lab.add_minion("web1", [m1, m2], "failover", config=told(m1))
        hot = lab.add_minion("hot", [m1, m2], "hot", config=told(m1, "hot", far, mapped))
        for minion in (web1, hot):
            minion.plant_key()
            minion.start()
            minion.type = "failover"  # the lab does not see m2 behind the map
            minion.wait_ready()
        yield Site(m1, request, publisher)


def told(master: Master, kind: str = "failover", *other: str) -> dict[str, Any]:
    """What the group wants minions to be told; *other*: an address, and what to write for it."""
    answer = master.salt_run("ha.minion_config", type=kind).check().data
    options: dict[str, Any] = answer["options"]
    if other:
        address, written = other
        options["master"] = [written if each == address else each for each in options["master"]]
    return options


def verdict(site: Site) -> dict[str, list[str]]:
    """The reasons why not, by master; the exit code must say the same."""
    result = site.m1.salt_run("ha.failover_safe")
    reasons = {
        row["name"]: [f"{each['text']}: {each['minions']}" for each in row["reasons"]]
        for row in result.data["masters"]
    }
    assert (result.returncode == 0) is not any(reasons.values())
    return reasons


def comes_to(site: Site, *reasons: str) -> None:
    """Wait until these are the reasons not to do without m1; a busy minion may answer late."""
    last: dict[str, list[str]] = {}

    def there() -> bool:
        last.update(verdict(site))
        return last == {"m1": [*reasons], "m2": []}

    try:
        wait_for(there, LONG, "", poll=1)
    except TimeoutError:
        raise AssertionError(f"not {reasons} but {last}") from None


def test_a_minion_that_cannot_get_to_the_other_master(site: Site) -> None:
    comes_to(site)

    # It is with m1, and notices nothing.
    site.request.refuse()
    comes_to(site, "they do not reach m2: ['web1']")
    site.request.accept()

    # It would be let in there, and hear no job.
    site.publisher.refuse()
    comes_to(site, "they do not reach the publisher of m2: no job of it would come: ['web1']")
    site.publisher.accept()
    comes_to(site)
