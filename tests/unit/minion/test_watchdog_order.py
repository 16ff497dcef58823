"""In which order Salt tries the masters: what we say of it, beside Salt's own ``eval_master``."""

from __future__ import annotations

import importlib
import random
from types import SimpleNamespace
from typing import Any

import pytest
import salt.channel.client
import salt.config
import salt.minion
from salt.exceptions import SaltClientError

from saltext_ha.common import version
from saltext_ha.minion import binding
from saltext_ha.minion.watchdog import order

pytestmark = pytest.mark.core

BARE = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
PORTS = tuple(f"{each}:4506" for each in BARE)
MIXED = (BARE[0], PORTS[1], BARE[2], PORTS[3])

# 3006 brings its own; on 3008 eval_master is a native coroutine, which a loop of tornado takes.
TORNADO = "salt.ext.tornado" if version.salt().startswith("3006") else "tornado"
gen = importlib.import_module(f"{TORNADO}.gen")
ioloop = importlib.import_module(f"{TORNADO}.ioloop")


class Salt:
    """Salt's choice of a master, all of it but the network: ``up`` lets the minion in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *masters: str, **opts: Any) -> None:
        self.up: set[str] = set()
        self.tried: list[str] = []
        usual = {"id": "web1", "master": list(masters), "master_type": "failover", "retry_dns": 0}
        self.opts = salt.config.apply_minion_config({**usual, **opts})
        self.minion = object.__new__(salt.minion.MinionBase)
        self.minion.opts = self.opts
        monkeypatch.setattr(salt.channel.client.AsyncPubChannel, "factory", self.channel)

    def channel(self, opts: Any, **_kwargs: Any) -> Any:
        host = opts["master"]

        @gen.coroutine
        def connect() -> None:
            self.tried.append(host)
            if host not in self.up:
                raise SaltClientError(f"{host} is down")

        auth = SimpleNamespace(gen_token=lambda _: b"")
        return SimpleNamespace(connect=connect, close=lambda: None, auth=auth)

    def begin(self, up: set[str]) -> str:
        """The minion starts."""
        return self._evaluate(up)

    def fail(self, up: set[str], failback: bool = False) -> str:
        """As ``Minion.handle_event`` does it for ``__master_disconnected`` and the failback."""
        return self._evaluate(up, failed=True, failback=failback)

    def _evaluate(self, up: set[str], **how: bool) -> str:
        self.up, self.tried = up, []
        loop = ioloop.IOLoop()
        try:
            master, _ = loop.run_sync(lambda: self.minion.eval_master(self.opts, **how), timeout=10)
        finally:
            loop.close()
        self.opts["master"] = master
        return str(master)


def host(entry: str) -> str:
    return binding.split_entry(entry, 4506)[0]


@pytest.mark.parametrize("configured", [BARE, PORTS, MIXED], ids=["bare", "ports", "mixed"])
def test_it_is_as_salt_does_it(
    monkeypatch: pytest.MonkeyPatch, configured: tuple[str, ...]
) -> None:
    chance = random.Random(7)

    def some() -> set[str]:
        return set(chance.sample(BARE, chance.randint(1, len(BARE))))

    for _ in range(25):
        salt_ = Salt(monkeypatch, *configured)
        here = salt_.begin(some())
        kept = order.kept(salt_.opts.get("local_masters"), configured)
        assert kept == configured
        for _ in range(10):
            back = chance.random() < 0.2
            turn = configured if back else order.after(kept, configured, here)
            up = some()
            here = salt_.fail(up, back)
            first = next(each for each in turn if host(each) in up)
            assert here == host(first)
            assert salt_.tried == [host(each) for each in turn[: turn.index(first) + 1]]
            assert order.kept(salt_.opts.get("local_masters"), configured) == turn
            kept = turn


WRITTEN = [
    *("127.0.0.1", "127.0.0.1:4507", "m1.example", "M1.example:4507", "2001:db8::1", "2001:DB8::1"),
    *("2001:db8:0:0::1", "[2001:DB8:0::1]:4507", "::FFFF:10.0.0.1", "FE80::1%eth0"),
]


@pytest.mark.parametrize("entry", WRITTEN)
def test_a_master_is_called_as_salt_calls_it(entry: str) -> None:
    """Under another name Salt does not take an event for its own."""
    opts = salt.config.apply_minion_config({"master": entry})
    assert host(entry) == salt.minion.prep_ip_port(opts)["master"]


def test_who_was_passed_by_is_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    m1, m2, m3, m4 = BARE
    salt_ = Salt(monkeypatch, *BARE)
    assert salt_.begin(set(BARE)) == m1
    assert salt_.fail({m3, m4}) == m3  # past m2
    assert order.after(order.kept(salt_.opts.get("local_masters"), BARE), BARE, m3) == (
        m2,
        m4,
        m1,
        m3,
    )
    assert salt_.fail(set(BARE)) == m2


def test_a_list_of_other_masters_is_not_believed() -> None:
    assert order.kept(None, BARE) == BARE
    assert order.kept([BARE[1], BARE[0]], BARE) == BARE
    assert order.kept([BARE[1], BARE[0]], BARE[:2]) == (BARE[1], BARE[0])
    assert order.after(BARE, BARE, None) == BARE
