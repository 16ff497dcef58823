"""When a minion says where it is, and what."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from saltext_ha.config.watchdog import WatchdogSettings
from saltext_ha.minion.binding import Running, SeenMaster
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog.decide import WatchdogLook
from saltext_ha.minion.watchdog.journal import Journal
from saltext_ha.minion.watchdog.report import Reports, report
from saltext_ha.minion.watchdog.run import Watch, site
from saltext_ha.minions.presence import Presence

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"


def times(reports: Reports, looks: list[tuple[float, str | None, bool]]) -> list[float]:
    return [now for now, current, good in looks if reports.due(now, current, good)]


def test_it_is_said_at_once_and_every_few_minutes() -> None:
    looks = [(float(now), M1, True) for now in range(0, 3000, 5)]
    told = times(Reports(300, 0), looks)
    assert told[0] == 0
    pauses = [after - before for before, after in pairwise(told)]
    assert len(told) >= 8
    assert all(235 <= pause <= 365 for pause in pauses)
    assert len(set(pauses)) > 1  # or thousands would speak at once


def test_a_change_is_said_within_the_jitter() -> None:
    late = set()
    for _ in range(50):
        reports = Reports(300, 30)
        reports.due(0, M1, True)
        told = times(reports, [(1000 + n / 2, M2, True) for n in range(100)])
        assert len(told) == 1
        assert 1000 <= told[0] <= 1030.5
        late.add(told[0])
    assert len(late) > 10


def test_nothing_is_said_of_a_master_that_does_not_work() -> None:
    for looks in ([(0.0, None, True)], [(0.0, M1, False)]):
        assert times(Reports(300, 0), looks) == []  # type: ignore[arg-type]
    assert times(Reports(0, 0), [(float(now), M1, True) for now in range(5000)]) == []


def test_masters_understand_what_is_said() -> None:
    heard = Presence(lambda address, port: (address, port) == ("10.0.0.1", 4506))
    for address, sure in ((M1, True), (M2, False)):
        running = Running((address,), listed=True)
        said = report(
            "hot", SeenMaster(address, address, 4506, frozenset({address})), running, 300, 2
        )
        assert len(str(said)) < 300
        heard(
            "salt/ha/minion/hot/bound",
            {"id": "hot", "cmd": "_minion_event", "data": dict(said)},
        )
        sight = heard.sights(["hot"])["hot"]
        assert (sight.sure_by == "watchdog") is sure or sight.likely_by == "event"
        assert (sight.type, sight.of, sight.lasts) == ("list", 2, 660)


def test_the_watch_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = {
        "id": "web1", "master": M1, "master_list": [M1, M2], "master_type": "failover",
        "master_ip": M1, "master_port": 4506, "master_uri": f"tcp://{M1}:4506",
        "multimaster": True,
    }  # fmt: skip
    links: frozenset[Link] = frozenset({(M1, 4505), (M1, 4506)})
    place = site(opts, lambda: TcpLinks(links), 1)
    watch = Watch(place, WatchdogSettings(jitter=0), Journal(tmp_path), opts)
    fired: list[tuple[str, object]] = []
    monkeypatch.setattr(place.mover, "tidy", lambda masters: None)
    monkeypatch.setattr(place.mover, "tell", lambda tag, data: fired.append((tag, data)))
    looks = [
        WatchdogLook(0, M1, True, {M1: False}),
        WatchdogLook(1, M1, True, {M1: True}),
        WatchdogLook(2, M1, True, {M1: True}),
    ]
    monkeypatch.setattr(place.looker, "look", lambda ask: looks.pop(0))
    watch.turn()
    assert fired == []  # m1 does not answer
    watch.turn()
    watch.turn()
    assert fired == [
        (
            "salt/ha/minion/web1/bound",
            {
                "id": "web1", "master": M1, "addresses": [M1], "port": 4506, "type": "failover",
                "of": 2, "every": 300.0,
            },
        )
    ]  # fmt: skip
