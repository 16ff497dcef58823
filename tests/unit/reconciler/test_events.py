"""How the events of the bus come to those who take them in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.reconciler import hints as module
from saltext_ha.reconciler.hints import Hint, Hints
from saltext_ha.reconciler.wheel_calls import WheelCalls
from saltext_ha.salt_bus import events
from saltext_ha.salt_bus.bus_socket import PUBLISHER
from saltext_ha.salt_bus.events import EventBus
from tests.loop import in_a_loop

pytestmark = pytest.mark.core

DELETED = {"tag": "salt/key", "data": {"id": "web1", "act": "delete"}}


class Bus:
    """A client of Salt's bus that has *events*, and then nothing more."""

    def __init__(self, events: list[dict[str, Any]], over: threading.Event) -> None:
        self._events, self._over = iter(events), over

    def get_event(self, **how: Any) -> dict[str, Any] | None:
        event = next(self._events, None)
        if event is None:
            self._over.set()
        return event


def test_a_bus_that_is_lost_is_listened_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, told, opened = threading.Event(), [], []
    (tmp_path / PUBLISHER).touch()
    buses: list[Any] = [OSError("gone"), Bus([DELETED, DELETED], over)]

    @contextmanager
    def get_event(*_: Any, **how: Any) -> Iterator[Bus]:
        opened.append(how["sock_dir"])
        bus = buses.pop(0)
        if isinstance(bus, Exception):
            raise bus
        yield bus

    monkeypatch.setattr(events.salt.utils.event, "get_event", get_event)
    monkeypatch.setattr(over, "wait", lambda seconds: None)
    bus = EventBus({"sock_dir": tmp_path}, [lambda tag, data: told.append((tag, data["id"]))])
    bus.listen(over)
    assert opened == [tmp_path, tmp_path]
    assert told == [("salt/key", "web1")] * 2


@pytest.mark.parametrize("mode", ["ipc", "tcp"])
def test_salts_client_is_made_where_there_may_be_a_bus(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, socket = threading.Event(), tmp_path / PUBLISHER
    turns = iter([lambda: None, socket.touch])
    made: list[bool] = []

    @contextmanager
    def get_event(*_: Any, **how: Any) -> Iterator[Bus]:
        made.append(socket.exists())
        yield Bus([], over)

    monkeypatch.setattr(events.salt.utils.event, "get_event", get_event)
    monkeypatch.setattr(over, "wait", lambda seconds: over.is_set() or next(turns)())
    EventBus({"sock_dir": tmp_path, "ipc_mode": mode}).listen(over)
    assert made == [mode == "ipc"]


def test_all_are_told_in_the_order_in_which_they_were_named() -> None:
    told: list[str] = []
    bus = EventBus({}, [lambda tag, _: told.append(f"one {tag}")])
    bus.add(lambda tag, _: told.append(f"two {tag}"))
    bus.tell("salt/key", {})
    bus.tell("salt/auth", {})
    assert told == ["one salt/key", "two salt/key", "one salt/auth", "two salt/auth"]


def test_one_that_fails_keeps_nothing_from_the_others() -> None:
    told: list[str] = []

    def fails(tag: str, data: Any) -> None:
        raise ValueError(data)

    bus = EventBus({}, [fails, lambda tag, _: told.append(tag)])
    bus.tell("salt/key", {})
    assert told == ["salt/key"]


@in_a_loop
async def test_a_flood_of_hints_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    hints = Hints(WheelCalls())
    for number in (1, 1, 1, 2, 3, 4, 5):
        hints("salt/auth", {"id": f"web{number}", "act": "pend"})
    assert [hint.minion_id for hint in await hints.next()] == ["web1", "web2", "web3"]
    hints("salt/auth", {"id": "web4", "act": "pend"})
    assert [hint.minion_id for hint in await hints.next()] == ["web4"]


@in_a_loop
async def test_hints_wait_until_they_are_asked_for() -> None:
    calls = WheelCalls()
    hints = Hints(calls)
    bus = EventBus({}, [calls.heard, hints])
    asked = asyncio.ensure_future(hints.next())
    await asyncio.sleep(0)
    assert not asked.done()
    bus.tell("salt/wheel/1/new", {"fun": "wheel.key.delete", "user": "alice", "fun_args": ["web1"]})
    thread = threading.Thread(target=bus.tell, args=(DELETED["tag"], DELETED["data"]))
    thread.start()
    thread.join()
    assert await asyncio.wait_for(asked, 60) == [Hint("web1", "alice", True)]
    for minion_id in ("db1", "db2"):
        bus.tell("salt/auth", {"id": minion_id, "act": "pend"})
    assert [hint.minion_id for hint in await hints.next()] == ["db1", "db2"]
