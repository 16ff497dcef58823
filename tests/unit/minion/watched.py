"""A minion that is played, and the watchdog that watches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.config.watchdog import WatchdogSettings
from saltext_ha.minion import pings
from saltext_ha.minion.binding import SeenMaster
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog import admission, publisher, run
from saltext_ha.minion.watchdog.admission import AuthRefusal
from saltext_ha.minion.watchdog.journal import Journal, RecordedMove
from saltext_ha.minion.watchdog.move import DISCONNECTED, FAILBACK

M1, M2, M3 = "10.0.0.1", "10.0.0.2", "10.0.0.3"
QUICK = WatchdogSettings(interval=5, timeout=1, failures=1, jitter=0, report=0)


def on(*masters: str) -> TcpLinks:
    return TcpLinks(frozenset((each, port) for each in masters for port in (4505, 4506)))


def without_pauses(
    monkeypatch: pytest.MonkeyPatch, instead: Callable[[float], object] = lambda seconds: None
) -> None:
    """Do *instead* where this thread would sleep; others may outlive the test that began them."""
    sleep, ours = time.sleep, threading.current_thread()

    def pause(seconds: float) -> None:
        (instead if threading.current_thread() is ours else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", pause)


class Salt:
    """
    A minion as Salt plays it: ``here`` is the master that it is with, ``up`` those that answer,
    ``dumb`` those whose publisher says nothing, ``closed`` those that would not let it in;
    ``called`` is how it calls the master that it is with, None: by its address; ``fired`` what came
    on its bus.
    """

    called: str | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **opts: Any) -> None:
        self.here, self.up, self.closed = M1, {M1, M2, M3}, dict[str, AuthRefusal]()
        self.dumb: set[str] = set()
        self.asked: list[str] = []
        self.fired: list[tuple[str, Any]] = []
        self.steps: list[TcpLinks] = []
        self.unanswered: dict[Link, int] = {}
        usual: dict[str, Any] = {"id": "web1", "master": [M1, M2, M3], "master_type": "failover"}
        usual |= {"multimaster": True, "publish_port": 4505, "auth_timeout": 1}
        self.opts = usual | opts
        self.order = list(self.opts.get("local_masters", self.opts["master"]))
        self.site = run.site(self.opts, self.links, 0.2, lambda: self.unanswered)
        monkeypatch.setattr(pings, "ping_all", self.ping_all)
        monkeypatch.setattr(publisher, "problem", self.problem)
        monkeypatch.setattr(admission, "refusal", self.refusal)
        monkeypatch.setattr(self.site.mover, "fire", self.fire)
        without_pauses(monkeypatch)

    def links(self) -> TcpLinks:
        return self.steps.pop(0) if self.steps else on(self.here)

    def ping_all(
        self, opts: Any, masters: list[SeenMaster], timeout: float
    ) -> list[dict[str, Any]]:
        return [{"answers": each.configured in self.up} for each in masters]

    def problem(self, master: SeenMaster, timeout: float, source: str | None) -> str | None:
        return "its publisher says nothing" if master.configured in self.dumb else None

    def refusal(self, opts: Any, master: SeenMaster, timeout: float) -> AuthRefusal | None:
        self.asked.append(str(master.configured))
        return self.closed.get(str(master.configured))

    def fire(self, tag: str, data: Any) -> None:
        self.fired.append((tag, data))
        if tag == DISCONNECTED and data.get("master", self.here) != (self.called or self.here):
            return
        if tag == FAILBACK:
            self.order = [M1, M2, M3]
        elif tag == DISCONNECTED:
            self.order = [*(each for each in self.order if each != self.here), self.here]
        else:
            return
        # It drops its connections a little later, and has new ones later still.
        self.steps = [on(self.here), on(self.here), TcpLinks(frozenset()), TcpLinks(frozenset())]
        self.here = next(each for each in self.order if each in self.up)

    def watch(self, folder: Path, settings: WatchdogSettings = QUICK) -> run.Watch:
        return run.Watch(self.site, settings, Journal(folder), self.opts)

    def tags(self) -> list[str]:
        return [tag for tag, _ in self.fired]

    def told(self) -> list[Any]:
        """What its masters were told of moves."""
        tag = "salt/ha/minion/web1/failover"
        return [data["data"] for _, data in self.fired if data.get("tag") == tag]


def last_of(journal: Journal) -> RecordedMove:
    found = journal.last()
    assert found is not None
    return found


def turns(watch: run.Watch, count: int = 3) -> list[str]:
    """Where the changes led that it has noted."""
    for _ in range(count):
        watch.turn()
    return [each.target for each in watch.journal.read()]
