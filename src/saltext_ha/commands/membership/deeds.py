"""
What masters did in the group, as others saw it: the masters they introduced, and their writes.

Nobody believes a master about itself here. The masters that pinned a master say who introduced it,
and the masters that took a write in say who sent it. A write counts as another master's only if
that master made it, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from saltext_ha.commands.membership.introductions import ALWAYS, Pin
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.common.tasks import answers_of
from saltext_ha.common.validators import is_number
from saltext_ha.config.mapping import NAME
from saltext_ha.keystore.minion_key import MAX_ID_BYTES
from saltext_ha.reconciler.core import Core
from saltext_ha.replica.history import BEGINNING, Place, Write
from saltext_ha.replication.record import STATES
from saltext_ha.sync.codec import MAX_TEXT, MAX_TIME, read_context
from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport import fingerprints, wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import Pins

PORTION = 2000
"""Lines in one message."""
MOST_PAGES = 250
"""
Pages of one member's answer: half a million writes, five for each of 100 000 minions, and some
hundred megabytes. The member that answers may be the accused master, and never end.
"""
MAX_NAMES = 1000
MAX_KEY = 64
"""Bytes of a fingerprint."""
_INTRODUCED, _WROTE, _MADE = "introduced", "wrote", "made"


class Dealings:
    """Asks all members for pins and writes, and answers their questions."""

    def __init__(self, group: Group, core: Core, pins: Pins) -> None:
        self._group, self._core, self._pins = group, core, pins

    def for_peers(self) -> dict[str, Handler]:
        return {
            _INTRODUCED: self._tell_pins,
            _WROTE: self._tell_writes,
            _MADE: self._tell_made,
        }

    # -- questions

    async def pins(self, but: str) -> tuple[list[Pin], dict[str, str]]:
        """
        The masters that each member has pinned; and name → why a member did not answer.

        :param but: the member that is not asked.
        """
        found = self._own_pins()
        asked = sorted(self._pins.pinned().keys() - {but})
        answers, errors = await self._ask_all(asked, self._pins_of)
        for pins in answers.values():
            found += pins
        return found, errors

    async def writes(
        self, names: Sequence[str], span: float | None, asked: Iterable[str]
    ) -> tuple[list[Write], dict[str, str]]:
        """
        The writes that a master of *names* sent, or that name one as their origin; each once, the
        last received first; and the errors as for :meth:`pins`.

        :param span: how far back, in seconds; None: everything.
        :param asked: the members to ask beside this one.
        """
        core = self._core
        read = core.replica.history.told_by
        since = ALWAYS if span is None else time.time() - span

        async def own(after: Place) -> list[Write]:
            return await core.run(read, names, since, after, PORTION)

        found = {(w.node, w.counter): w for w in await _all_of(own)}
        told, errors = await self._ask_all(
            list(asked),
            lambda name: _all_of(partial(self._writes_of, name, list(names), span), MOST_PAGES),
        )
        for writes in told.values():
            for write in writes:
                found.setdefault((write.node, write.counter), write)
        rest, unconfirmed = await self._without_made(list(found.values()), told)
        rest.sort(key=lambda write: write.received, reverse=True)
        return rest, {**unconfirmed, **errors}

    async def _without_made(
        self, writes: list[Write], asked: Iterable[str]
    ) -> tuple[list[Write], dict[str, str]]:
        """The *writes* that their alleged origin does not confirm; and the errors."""
        core = self._core
        own = await core.run(core.replica.history.made_here, [w[:5] for w in writes])
        writes = [w for position, w in enumerate(writes) if position not in set(own)]
        claims: dict[str, list[Write]] = {}
        for write in writes:
            claims.setdefault(write.on, []).append(write)
        answers, errors = await self._ask_all(
            [name for name in asked if name in claims],
            lambda name: self._made_by(name, claims[name]),
        )
        made = {(w.node, w.counter) for theirs in answers.values() for w in theirs}
        return [write for write in writes if (write.node, write.counter) not in made], errors

    @staticmethod
    async def _ask_all(
        names: Sequence[str], ask: Callable[[str], Awaitable[Any]]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The answers of members by name; and the errors."""

        async def answer(name: str) -> Any:
            try:
                return await ask(name)
            except (InvalidRecord, *NO_SENSE) as exc:
                why = str(exc) if isinstance(exc, InvalidRecord) else f"{exc!r:.100}"
                raise InvalidRecord(f"its answer makes no sense: {why}") from None

        return await answers_of(names, answer)

    async def _pins_of(self, name: str) -> list[Pin]:
        answer = await self._call(name, _INTRODUCED, {})
        return [_pin(name, raw) for raw in answer["pins"][:MAX_NAMES]]

    async def _writes_of(
        self, name: str, names: list[str], span: float | None, after: Place
    ) -> list[Write]:
        where = None if after == BEGINNING else list(after)
        asked = {"names": names, "span": span, "after": where}
        writes = (await self._call(name, _WROTE, asked))["writes"]
        if len(writes) > PORTION:
            raise InvalidRecord(f"more than {PORTION} writes")
        return [_write(raw) for raw in writes]

    async def _made_by(self, name: str, writes: list[Write]) -> list[Write]:
        made: list[Write] = []
        for batch in batches(writes, PORTION):
            answer = await self._call(name, _MADE, {"writes": [list(w[:5]) for w in batch]})
            made += [batch[position] for position in _positions(answer["made"], len(batch))]
        return made

    async def _call(self, name: str, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._group.call(name, method, payload, SLOW)

    # -- answers

    def _own_pins(self) -> list[Pin]:
        return [
            Pin(self._group.name, peer.name, peer.fingerprint, peer.introducer, peer.added)
            for peer in self._pins.pinned().values()
        ]

    async def _tell_pins(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return {"pins": [list(pin[1:]) for pin in self._own_pins()]}

    async def _tell_writes(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core = self._core
        names, span = wire.texts(payload, "names"), payload.get("span")
        if not 1 <= len(names) <= MAX_NAMES or not all(map(NAME.fullmatch, names)):
            raise InvalidRecord(f"takes 1 to {MAX_NAMES} names of masters")
        if span is not None and not _is_time(span):
            raise InvalidRecord("takes a span of seconds")
        since = ALWAYS if span is None else time.time() - span
        after = _place(payload.get("after"))
        writes = await core.run(core.replica.history.told_by, names, since, after, PORTION)
        return {"writes": [list(write) for write in writes]}

    async def _tell_made(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        core, raw = self._core, wire.field(payload, "writes", list)
        if len(raw) > PORTION:
            raise InvalidRecord(f"takes a list of at most {PORTION} writes")
        writes = [_named(entry) for entry in raw]
        return {"made": await core.run(core.replica.history.made_here, writes)}


async def _all_of(
    page: Callable[[Place], Awaitable[list[Write]]], most: int | None = None
) -> list[Write]:
    """
    All pages; each begins where the one before ended.

    :param most: how many pages at most; None: no limit.
    :raises InvalidRecord: they repeat, or there are more than *most*.
    """
    found: list[Write] = []
    after: Place = BEGINNING
    number = 0
    while True:
        writes = await page(after)
        number += 1
        found += writes
        if len(writes) < PORTION:
            return found
        last = (writes[-1].received, writes[-1].node, writes[-1].counter)
        if last <= after:
            raise InvalidRecord("its pages go round in circles")
        if number == most:
            raise InvalidRecord(f"it does not end within {most * PORTION} writes")
        after = last


def _pin(on: str, raw: Any) -> Pin:
    name, fingerprint, introducer, added = wire.row(raw, "pin", str, str, object, object)
    if not NAME.fullmatch(name) or not fingerprints.PATTERN.fullmatch(fingerprint):
        raise InvalidRecord("no name or no fingerprint")
    if introducer is not None and not isinstance(introducer, str):
        raise InvalidRecord("no introducer")
    return Pin(on, name, fingerprint, introducer, str(added)[:40])


def _named(raw: Any) -> tuple[str, int, str, bytes, str]:
    """
    A write: its dot, and the id, key and state that it is about.

    :raises InvalidRecord: it makes no sense.
    """
    node, counter, minion_id, key, state = wire.row(raw, "write", str, int, str, bytes, str)
    read_context([[node, counter]])
    if state not in STATES or len(minion_id) > MAX_ID_BYTES or len(key) > MAX_KEY:
        raise InvalidRecord("a write names an id, a fingerprint and a state")
    return node, counter, minion_id, key, state


def _write(raw: Any) -> Write:
    at, by, on, received, sender = raw[5:10]
    texts = (by, on, "" if sender is None else sender)
    short = all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts)
    if not (_is_time(at) and _is_time(received) and short):
        raise InvalidRecord("no list of writes")
    return Write(*_named(raw), float(at), by, on, float(received), sender)


def _place(raw: Any) -> Place:
    if raw is None:
        return BEGINNING
    at, node, counter = wire.row(raw, "place", object, str, int)
    if not _is_time(at):
        raise InvalidRecord("no page begins there")
    read_context([[node, counter]])
    return float(at), node, counter


def _is_time(value: Any) -> bool:
    return is_number(value) and abs(value) < MAX_TIME


def _positions(raw: Any, count: int) -> list[int]:
    if not isinstance(raw, list) or not all(type(n) is int and 0 <= n < count for n in raw):
        raise InvalidRecord("no positions")
    return raw
