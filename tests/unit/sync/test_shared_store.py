"""When a store that two masters share counts as two stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from saltext_ha.reconciler.core import Core
from saltext_ha.sync import shared_store
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.shared_store import SharedStore
from saltext_ha.transport.pins import Pins
from tests.unit.clock import Clock

PATIENCE = 60.0
SLOW = 5.0  # seconds until the peer answers


class Keeper:
    """Of the keeper's thread: our store, which always shows a former signature of the peer."""

    def __init__(self) -> None:
        self.mode = SimpleNamespace(shared="m2")
        self.keeper = SimpleNamespace(store=SimpleNamespace(signature=lambda name: "former"))

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return None if function.__name__ == "_remember" else function(*arguments)

    async def apply(self) -> None:
        return


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shared_store, "time", SimpleNamespace(monotonic=clock))
    return clock


def test_a_signature_is_missing_from_when_it_was_written(clock: Clock) -> None:
    """A network file system may show the former one until a minute after that."""
    took = SLOW

    async def call(method: str, payload: dict[str, Any]) -> dict[str, Any]:
        clock.passes(took)
        return {"signature": "new", "signed": payload["anew"]}

    contact = cast(Contact, SimpleNamespace(peer=SimpleNamespace(name="m2"), call=call))
    store = SharedStore(
        cast(Core, Keeper()), cast(Pins, None), {"m2": contact}, names=["m2"], patience=PATIENCE
    )
    asyncio.run(store.check(contact))
    took = 0.0
    clock.passes(PATIENCE - SLOW + 1)  # more than that since the peer was asked
    asyncio.run(store.check(contact))
    assert store.names == {"m2"}
    clock.passes(SLOW)
    asyncio.run(store.check(contact))
    assert store.names == set()
