"""
Minions over ``transport: tcp``, where Salt 3007 can get stuck between two masters, and over ``ws``,
where Salt waits for a master that hangs for ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, Minion, wait_for
from lab.forwarder import Forwarder
from saltext_ha.common.version import salt_release
from saltext_ha.minion.watchdog import rescue
from saltext_ha.minion.watchdog.move import DISCONNECTED
from saltext_ha.rollout import drop_in
from tests.integration.conftest import MakeLab
from tests.integration.watching import (
    SOON,
    answering,
    book,
    heard_again,
    history,
    serving,
    supervised,
    watched,
)

pytestmark = pytest.mark.core

TCP = {"transport": "tcp"}

# What Salt 3007.15 does to itself now and then (see saltext_ha.minion.watchdog.rescue), done on
# purpose and on all versions: a sign-in of which nobody hears again. A beacon runs in the
# minion's process.
BEACON = """
import os, salt.crypt
try:
    from salt.ext.tornado.concurrent import Future  # Salt 3006 brings its own
except ImportError:
    from tornado.concurrent import Future

def validate(config):
    return True, "fine"

def beacon(config):
    if os.path.exists(config[0]["flag"]):
        os.unlink(config[0]["flag"])
        never = Future()
        salt.crypt.AsyncAuth.authenticate = lambda self, callback=None: never
    return []
"""


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with make_lab() as lab:
        quick = {"gather_job_timeout": 1, "timeout": 2, **TCP}
        m1, m2 = (lab.add_master(name, engine=False, config=quick) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        lab.start_all([m1, m2])
        serving(m1, m2)
        yield lab


def start(minion: Minion) -> None:
    """Start *minion*, which comes to the first of its masters."""
    minion.plant_key()
    minion.start()
    answering(minion.masters[0], [minion], SOON)
    wait_for(lambda: book(minion).last(), SOON, "the watchdog knows where it is")


def test_a_connection_whose_packets_are_dropped_is_left(lab: Lab) -> None:
    m1, m2 = lab.masters.values()
    address, ports = lab.new_address(), (m1.ret_port, m1.publish_port)
    request, publish = (Forwarder((address, port), (m1.address, port)) for port in ports)
    with request, publish:
        wanted = drop_in.options(drop_in.wanted([address, m2.address], watchdog=True))
        keepalive = {key: value for key, value in wanted.items() if key.startswith("tcp_")}
        config = {**watched(), **keepalive, **TCP, "master": [address, m2.address]}
        deaf = lab.add_minion("deaf", [m1, m2], "failover", config=config)
        start(deaf)
        started, before = time.monotonic(), len(history(deaf))
        publish.forget()
        took = heard_again((m1, m2), deaf, started)
        print({name: round(seconds, 1) for name, seconds in took.items()})
        why = "nobody answers on the connection to it"
        # On a busy machine it may have moved on since.
        wait_for(
            lambda: any(each.why.startswith(why) for each in history(deaf)[before:]),
            SOON,
            "it is noted",
        )
        deaf.stop()


def test_a_minion_that_is_stuck_on_its_way_is_restarted(lab: Lab, tmp_path: Path) -> None:
    m1, m2 = lab.masters.values()
    flag, beacons = tmp_path / "flag", tmp_path / "beacons"
    beacons.mkdir()
    (beacons / "never.py").write_text(BEACON)
    config = {
        **watched(1, timeout=1),
        **TCP,
        "auth_timeout": 1,
        "beacons_dirs": [str(beacons)],
        "beacons": {"never": [{"flag": str(flag)}, {"interval": 1}]},
    }
    stuck = lab.add_minion("stuck", [m1, m2], "failover", config=config)
    supervised(stuck)
    start(stuck)
    flag.touch()
    wait_for(lambda: not flag.exists(), SOON, "it will get stuck")
    m1.salt("stuck", "event.fire", {"master": m1.address}, DISCONNECTED)
    wait_for(lambda: stuck.bound_to() == [], SOON, "it is with nobody")
    answering(m1, [stuck], 2 * SOON)
    assert rescue.STUCK in [each.why for each in history(stuck)]
    stuck.stop()


@pytest.mark.skipif(salt_release() < (3007,), reason="Salt 3006 has no websockets")
def test_a_master_that_hangs_is_left_over_websockets(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        ws = {"transport": "ws"}
        quick = {"gather_job_timeout": 1, "timeout": 2, "worker_pools_enabled": False, **ws}
        m1, m2 = (lab.add_master(name, engine=False, config=quick) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        lab.start_all([m1, m2])
        serving(m1, m2)
        config = {**watched(1, timeout=1), **ws}
        minion = lab.add_minion("minion", [m1, m2], "failover", config=config)
        start(minion)
        m1.suspend()
        try:
            answering(m2, [minion], SOON)
            # Without a master: salt-call would wait for the first one as well.
            asked = minion.cli("salt-call", "--local", "ha.ping_masters", "timeout=5")
            assert [row["answers"] for row in asked.data["local"]] == [False, True]
        finally:
            m1.resume()
