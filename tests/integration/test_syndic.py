"""Below a syndic: jobs come from above, the minion is with its own master."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Master, Minion, wait_for
from lab.process import Daemon
from saltext_ha.common import version
from tests.integration.conftest import MakeLab
from tests.integration.group import LONG

pytestmark = pytest.mark.core

# What the upper master, its syndics and its minions speak: why not ZeroMQ, and why no worker pools,
# is in docs/minions.md, "Below a syndic".
TRANSPORT = "tcp" if version.salt().startswith("3008") else "zeromq"


@dataclass
class Site:
    """``top``, a master of masters; ``m1`` and its syndic; ``web1`` below, and one beside it."""

    top: Master
    m1: Master
    below: Minion
    beside: Minion


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        upper = {"order_masters": True, "transport": TRANSPORT}
        if TRANSPORT == "tcp":
            upper["worker_pools_enabled"] = False
        top = lab.add_master("top", config=upper)
        above = {"syndic_master": top.address, "syndic_master_port": lab.ports.ret}
        m1 = lab.add_master("m1", engine=False, config=above)
        below = lab.add_minion("web1", [m1])
        # On the host of m1, as one does it to manage that host: a minion of the upper master.
        beside = lab.add_minion("m1-host", [top], config={"transport": TRANSPORT})
        daemon = make_syndic(m1, beside)
        for minion in (below, beside):
            minion.plant_key()
        lab.start_all([top, m1, below, beside])
        # It makes the same folders as the minion beside it; when both start at once, one may end.
        ask(top, "*", {"m1-host"})
        daemon.spawn()
        try:
            yield Site(top, m1, below, beside)
        finally:
            daemon.kill()


def make_syndic(m1: Master, beside: Minion) -> Daemon:
    """It reads the configuration of *m1* and, as on a real host, of the minion *beside* it."""
    (m1.config_dir / "minion").symlink_to(beside.config_file)
    command = [*m1.command("salt-syndic"), "-l", "quiet"]
    return Daemon(command, m1.env, m1.root, m1.root / "syndic.out")


def ask(master: Master, target: str, wanted: set[str], **kwargs: Any) -> dict[str, Any]:
    def answers() -> Any:
        data = master.salt(target, "ha.current_master", "timeout=15", **kwargs).data
        return data if isinstance(data, dict) and wanted <= data.keys() else None

    found: dict[str, Any] = wait_for(answers, LONG, f"{wanted} answer {master.name}")
    return found


def test_below_a_syndic(site: Site) -> None:
    found = ask(site.top, "*", {"web1", "m1-host"}, ping=True)
    # The job came from top, through m1: it is m1 that web1 is connected to.
    assert found["web1"]["address"] == site.m1.address
    assert found["m1-host"]["address"] == site.top.address
    for answer in found.values():
        assert (answer["connected"], answer["type"]) == (True, "list")
        assert answer["ping"]["answers"] is True
        assert "note" not in answer
    assert ask(site.m1, "*", {"web1"})["web1"]["address"] == site.m1.address


def test_asked_on_the_host_itself(site: Site) -> None:
    # The host of the syndic: its process is connected to top as well, with the same id.
    for minion, master in ((site.below, site.m1), (site.beside, site.top)):
        answer = minion.salt_call("ha.current_master", "timeout=15", ping=True).data
        assert (answer["address"], answer["connected"]) == (master.address, True)
        assert answer["ping"]["answers"] is True
        assert "note" not in answer


def test_a_job_for_a_minion_that_the_upper_master_does_not_know(site: Site) -> None:
    ask(site.top, "*", {"web1"})  # the syndic passes jobs down
    planned = site.top.salt_run("ha.cmd", "web1", "test.ping", test=True)
    assert (planned.returncode, planned.data["targets"]) == (0, [{"top": "web1"}])
    ran = site.top.salt_run("ha.cmd", "web1", "test.ping", "timeout=5")
    assert (ran.returncode, ran.data["returned"]) == (1, {})
    jid = ran.data["jobs"][0]["top"]

    def returned() -> bool:
        return bool(site.top.salt_run("ha.lookup_jid", jid).data["returned"] == {"web1": True})

    wait_for(returned, LONG, "web1 has run it")
