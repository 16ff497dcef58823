"""Salt's reactor as its engine knows it: the switch, and what was heard while it was on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.salt_bus import reactor
from saltext_ha.salt_bus.intake import HEARD
from saltext_ha.salt_bus.reactor import ASK, SET, VALUE, Reactor
from tests.loop import in_a_loop

REACTOR: Any = [{"site/*": ["/srv/a.sls"]}, {"salt/minion/*/start": "/srv/b.sls"}, "junk", {}]


class Bus:
    """Of one master; tells what is fired to its reactor's listener."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []
        self.fired: list[tuple[str, Mapping[str, Any]]] = []
        opts = {"id": "m1_master", "reactor": REACTOR, "sock_dir": "/nowhere"}
        self.reactor = Reactor(opts, lambda tag, data: self.fired.append((tag, data)))
        self.reactor.heard = lambda tag, data, at, reacted: self.heard.append((tag, reacted))
        self.reactor._key = "secret"

    def tells(self, tag: str, **data: Any) -> None:
        self.reactor.take(tag, data)

    def switches(self, on: bool) -> None:
        self.tells(SET, id="m1_master", key="secret", value=on)
        self.tells(VALUE, result=on)


def test_which_tags_are_configured(tmp_path: Path) -> None:
    assert reactor.patterns({"reactor": REACTOR}) == ["site/*", "salt/minion/*/start"]
    file = tmp_path / "map"
    file.write_text("- 'x/*': [/srv/a.sls]\n")
    assert reactor.patterns({"reactor": str(file)}) == ["x/*"]
    for none in (None, [], str(tmp_path / "absent")):
        assert reactor.patterns({"reactor": none}) == []


def test_a_file_of_reactions_with_a_tab_is_read_as_salt_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "reactor.conf"
    path.write_text("- a/*:\t[one.sls]\t# ours\n")
    assert reactor.patterns({"reactor": str(path)}) == ["a/*"]


def test_each_event_is_known_by_where_the_switch_was() -> None:
    bus = Bus()
    bus.switches(False)
    bus.tells("site/1")
    bus.switches(True)
    bus.tells("site/2")
    bus.tells("other/3")
    bus.tells("salt/minion/web1/start")
    assert bus.heard == [("site/1", False), ("site/2", True), ("salt/minion/web1/start", True)]
    assert bus.reactor.reacts is True


def test_what_was_heard_before_its_first_answer_goes_by_that() -> None:
    bus = Bus()
    bus.tells("site/1")
    assert bus.heard == []
    assert bus.reactor.reacts is None
    bus.tells(VALUE, result=False)
    assert bus.heard == [("site/1", False)]


def test_what_the_reactor_takes_no_notice_of_is_not_handed_over() -> None:
    bus = Bus()
    bus.switches(False)
    bus.tells("site/1", user="Reactor")
    bus.tells("site/2", **{HEARD: {"by": "m2"}})
    assert bus.heard == []


@pytest.mark.parametrize(
    "forged", [{"key": "guessed"}, {"key": None}, {"id": "m2_master"}, {"value": "yes"}]
)
def test_nobody_else_has_the_switch(forged: dict[str, Any]) -> None:
    bus = Bus()
    bus.switches(False)
    bus.tells(SET, **{"id": "m1_master", "key": "secret", "value": True, **forged})
    bus.tells("site/1")
    assert bus.heard == [("site/1", False)]


def test_it_is_asked_first_and_then_told() -> None:
    bus = Bus()
    bus.reactor.wanted = True
    bus.reactor._tell()
    bus.tells(VALUE, result=False)
    bus.reactor._tell()
    assert [tag for tag, _ in bus.fired] == [ASK, SET]
    assert bus.fired[1][1] == {"id": "m1_master", "value": True, "key": "secret"}


def test_what_follows_the_word_to_stop_is_not_reacted_to() -> None:
    bus = Bus()
    bus.switches(True)
    bus.reactor.wanted = False
    bus.reactor._tell()
    bus.tells(VALUE, result=True)  # an answer from before
    assert bus.reactor.reacts is False  # though the bus has not told of it yet
    bus.reactor.wanted = True
    bus.reactor._tell()
    bus.switches(False)  # what was fired first
    assert bus.reactor.reacts is False
    bus.switches(True)
    assert bus.reactor.reacts is True


@in_a_loop
async def test_what_was_told_last_is_taken_back_though_it_was_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reactor, "_listen", lambda self: None)
    monkeypatch.setattr(Reactor, "_new_processes", lambda self: False)
    bus = Bus()
    bus.switches(True)
    bus.reactor._tell()  # to stop: it is lost
    bus.reactor.wanted = True

    running = asyncio.ensure_future(bus.reactor.run())
    for _ in range(1000):
        await asyncio.sleep(0.01 if len(bus.fired) < 2 else 0)
    running.cancel()
    assert [told["value"] for _, told in bus.fired] == [False, True]
    assert bus.reactor.reacts is True
