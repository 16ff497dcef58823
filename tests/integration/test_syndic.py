"""``ha.current_master`` below a syndic: jobs come from above, the minion is with its own master."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from lab.keys import write_whole
from lab.process import Daemon
from saltext_ha import version
from tests.integration.conftest import MakeLab

pytestmark = [
    pytest.mark.core,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        version.salt().startswith("3008"),
        reason="3008's salt-syndic hands no job down in this lab, also without this package",
    ),
]


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
        top = lab.add_master("top", engine=False, config={"order_masters": True})
        above = {"syndic_master": top.address, "syndic_master_port": lab.ports.ret}
        m1 = lab.add_master("m1", engine=False, config=above)
        below = lab.add_minion("web1", [m1])
        # On the host of m1, as one does it to manage that host: a minion of the upper master.
        beside = lab.add_minion("m1-host", [top])
        daemon = make_syndic(lab, top, m1)
        for minion, master in ((below, m1), (beside, top)):
            master.plant("minions", minion.name, minion.pub)
        lab.start_all([top, m1, below, beside])
        daemon.spawn()
        try:
            yield Site(top, m1, below, beside)
        finally:
            daemon.kill()


def make_syndic(lab: Lab, top: Master, m1: Master) -> Daemon:
    """It runs beside *m1*, with its configuration, and is a minion of *top*."""
    private, public = lab.key_pair()
    top.plant("minions", "m1-syndic", public)
    keys = m1.root / "syndic"
    write_whole(keys / "minion.pem", private, 0o400)
    write_whole(keys / "minion.pub", public)
    config = {
        "id": "m1-syndic",
        "root_dir": str(m1.root),
        "pki_dir": str(keys),
        "sock_dir": str(m1.root / "srun"),
        "user": getpass.getuser(),
        "publish_port": lab.ports.publish,
        "acceptance_wait_time": 2,
        "auth_timeout": 10,
    }
    (m1.config_dir / "minion").write_text(json.dumps(config))
    command = [*m1.command("salt-syndic"), "-l", "quiet"]
    return Daemon(command, m1.env, m1.root, m1.root / "syndic.out")


def ask(master: Master, target: str, wanted: set[str], **kwargs: Any) -> dict[str, Any]:
    def answers() -> Any:
        data = master.salt(target, "ha.current_master", **kwargs).data
        return data if isinstance(data, dict) and wanted <= data.keys() else None

    found: dict[str, Any] = wait_for(answers, 90, f"{wanted} answer {master.name}")
    return found


def test_below_a_syndic(site: Site) -> None:
    found = ask(site.top, "*", {"web1", "m1-host"}, ping=True)
    # The job came from top, through m1: it is m1 that web1 hangs on.
    assert found["web1"]["address"] == site.m1.address
    assert found["m1-host"]["address"] == site.top.address
    for answer in found.values():
        assert (answer["connected"], answer["type"]) == (True, "list")
        assert answer["ping"]["answers"] is True
        assert "note" not in answer
    assert ask(site.m1, "*", {"web1"})["web1"]["address"] == site.m1.address
