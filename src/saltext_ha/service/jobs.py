"""Publishes a job on some or all masters of the group at once, and gathers what is returned."""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.errors import NO_SENSE, HaError, InvalidRecord
from saltext_ha.peering.trust import Peer
from saltext_ha.service.group import Group, PeerHandler
from saltext_ha.service.orders import JID, LONGEST, Order, answer

log = logging.getLogger(__name__)

PUBLISHING = 10.0  # seconds that Salt's own publisher may take
AFTERWARDS = 10.0  # for which stray returns are still kept
AT_ONCE = 4  # being published
MAX_RUNNING = 32  # being waited for

Publish = Callable[[Mapping[str, Any], Order, str], list[str]]


@dataclass
class Answers:
    """
    What came of a job that one master published: ``targeted`` are the ids that it was for,
    ``returned`` id → (seconds until then, value). ``error``: why it could not be published.
    """

    targeted: frozenset[str] = frozenset()
    returned: dict[str, tuple[float, Any]] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Stray:
    """Returns of a job of the master ``published`` that came to the master ``arrived``."""

    published: str
    arrived: str
    ids: tuple[str, ...]


class Jobs:
    """
    The one way by which an engine has anything published; see :mod:`saltext_ha.service.orders`.

    :param publish: hands a job with an id of our choice to this master, and returns the minions
        that it is for; blocks. :raises HaError: it could not be published.
    """

    def __init__(self, group: Group, publish: Publish | None = None) -> None:
        self._group = group
        self.publish = publish or publish_here
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrived() -> None:
            loop.call_soon_threadsafe(self._arrived.set)

        group.service.returns.arrived = arrived

    def for_peers(self) -> dict[str, PeerHandler]:
        """What peers may ask."""

        async def expect(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return self._expect(payload)

        async def run(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return await self._run(payload, peer.name)

        async def strays(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return self._strays(payload)

        return {"job_expect": expect, "job_run": run, "job_strays": strays}

    @property
    def masters(self) -> list[str]:
        """All masters of the group, by name."""
        service = self._group.service
        return sorted({service.config.name, *service.trust.peers()})

    async def run(
        self, order: Order, timeout: float, masters: Collection[str] | None = None
    ) -> tuple[dict[str, Answers], list[Stray]]:
        """
        Publish *order* on *masters* (default: all) at once.

        :param timeout: seconds for the minions to return.
        :return: master → what came of it; and what was returned to the wrong master.
        """
        chosen = self.masters if masters is None else sorted(masters)
        jids = dict(zip(chosen, new_jids(len(chosen)), strict=True))
        # All listen before anybody publishes, so that no return can come too early to be seen.
        expected = await self._each(
            self.masters, "job_expect", {"jids": [*jids.values()], "timeout": timeout}
        )
        found = {
            name: Answers(error=problem)
            for name, problem in expected.items()
            if isinstance(problem, str) and name in jids
        }
        asked = [name for name in chosen if name not in found]
        told = await asyncio.gather(
            *(
                self._call(
                    name,
                    "job_run",
                    {"jid": jids[name], "order": order.to_wire(), "timeout": timeout},
                    timeout + PUBLISHING + 5,
                )
                for name in asked
            )
        )
        for name, raw in zip(asked, told, strict=True):
            found[name] = Answers(error=raw) if isinstance(raw, str) else _read(raw)
        hearing = [name for name in self.masters if not isinstance(expected[name], str)]
        strays = await self._each(hearing, "job_strays", {"jids": [*jids.values()]})
        return found, sorted(_strays(jids, strays), key=lambda s: (s.published, s.arrived))

    async def _each(
        self, names: Iterable[str], method: str, payload: dict[str, Any]
    ) -> dict[str, dict[str, Any] | str]:
        names = list(names)
        timeout = self._group.service.config.peer_timeout
        calls = (self._call(name, method, payload, timeout) for name in names)
        return dict(zip(names, await asyncio.gather(*calls), strict=True))

    async def _call(
        self, name: str, method: str, payload: dict[str, Any], timeout: float
    ) -> dict[str, Any] | str:
        """The answer of a master, or why there is none."""
        service = self._group.service
        try:
            if name == service.config.name:
                if method == "job_run":
                    return await self._run(payload)
                return {"job_expect": self._expect, "job_strays": self._strays}[method](payload)
            link = service.links.get(name)
            if link is None:
                return "joined just now; not asked yet"
            return await link.call(method, payload, timeout)
        except HaError as exc:
            return str(exc)

    # -- this master's part

    def _expect(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        self._group.service.returns.expect(
            _jids(payload), _seconds(payload.get("timeout")) + PUBLISHING + AFTERWARDS
        )
        return {}

    async def _run(self, payload: Mapping[str, Any], by: str = "") -> dict[str, Any]:
        (jid,) = _jids({"jids": [payload.get("jid")]})
        order, timeout = Order.from_wire(payload.get("order")), _seconds(payload.get("timeout"))
        # A call may come twice, when a connection breaks; the job is published once.
        task = self._running.get(jid)
        if task is None:
            if sum(not each.done() for each in self._running.values()) >= MAX_RUNNING:
                raise InvalidRecord(f"{MAX_RUNNING} jobs are under way; try again later")
            log.debug("ha job: jid=%s what=%s asked by=%s", jid, order.what, by or "this master")
            task = self._running[jid] = asyncio.ensure_future(self._carry_out(order, jid, timeout))
            loop = asyncio.get_running_loop()
            task.add_done_callback(
                lambda _: loop.call_later(AFTERWARDS, self._running.pop, jid, None)
            )
        return await asyncio.shield(task)

    async def _carry_out(self, order: Order, jid: str, timeout: float) -> dict[str, Any]:
        service, loop = self._group.service, asyncio.get_running_loop()
        returns = service.returns
        keep = functools.partial(answer, order.what)
        try:
            async with self._turns:
                returns.expect([jid], timeout + PUBLISHING + AFTERWARDS, keep)
                began = time.monotonic()
                targeted = frozenset(
                    await loop.run_in_executor(None, self.publish, service.opts, order, jid)
                )
        except HaError as exc:
            return {"error": f"{service.config.name} could not publish: {exc}"}
        end = loop.time() + timeout
        while returns.count(jid) < len(targeted) and (left := end - loop.time()) > 0:
            self._arrived.clear()
            if returns.count(jid) < len(targeted):
                await _within(self._arrived, left)
        came = returns.of(jid)
        return {
            "error": "",
            "targeted": sorted(targeted),
            "returned": [
                [minion_id, round(max(0.0, each.at - began), 4), each.value]
                for minion_id, each in sorted(came.items())
                if minion_id in targeted  # anybody may fire an event that looks like a return
            ],
        }

    def _strays(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        returns = self._group.service.returns
        found = {jid: returns.of(jid) for jid in _jids(payload)}
        return {
            "returned": {
                jid: sorted(minion_id for minion_id, each in came.items() if not each.relayed)
                for jid, came in found.items()
            }
        }


def new_jids(count: int) -> list[str]:
    """As many different job ids, as Salt makes them from the time."""
    now = datetime.datetime.now(datetime.timezone.utc)
    moments = (now + datetime.timedelta(microseconds=number) for number in range(count))
    return [f"{moment:%Y%m%d%H%M%S%f}" for moment in moments]


def publish_here(opts: Mapping[str, Any], order: Order, jid: str) -> list[str]:
    """
    Publish on the master with *opts*; blocks.

    :return: the ids of the accepted minions that the job is for.
    :raises HaError: the master did not take it; says why.
    """
    import salt.client

    function, target, kind, arguments = order.job()
    try:
        # Salt would ask three times: no caller waits for that, and the job might go out twice.
        once = {"request_channel_tries": 1, "request_channel_timeout": PUBLISHING}
        with salt.client.LocalClient(mopts={**opts, **once}) as client:
            told = client.pub(
                target, function, arguments, tgt_type=kind, jid=jid, timeout=PUBLISHING
            )
    except Exception as exc:  # of Salt's transports and of Salt's client, of many kinds
        reason = str(exc) or type(exc).__name__
        if "could not resolve minions" in reason:
            return []  # none of them has an accepted key here
        raise HaError(f"{reason.splitlines()[0][:300]}; is salt-master well?") from None
    if not told or told.get("jid") != jid:
        raise HaError("salt-master did not take the job")
    return [str(each) for each in told.get("minions") or ()]


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), min(seconds, 1.0))
    except asyncio.TimeoutError:
        return


def _strays(jids: Mapping[str, str], told: Mapping[str, dict[str, Any] | str]) -> Iterable[Stray]:
    publisher = {jid: name for name, jid in jids.items()}
    for arrived, raw in told.items():
        returned = {} if isinstance(raw, str) else raw.get("returned")
        for jid, ids in returned.items() if isinstance(returned, dict) else ():
            published = publisher.get(jid)
            if published and published != arrived and isinstance(ids, list) and ids:
                yield Stray(published, arrived, tuple(map(str, ids)))


def _read(raw: Mapping[str, Any]) -> Answers:
    """What a master says of its job; a peer may say nonsense."""
    if raw.get("error"):
        return Answers(error=str(raw["error"]))
    try:
        return Answers(
            frozenset(map(str, raw["targeted"])),
            {str(each[0]): (float(each[1]), each[2]) for each in raw["returned"]},
        )
    except NO_SENSE:
        return Answers(error="answered nonsense")


def _jids(payload: Mapping[str, Any]) -> list[str]:
    jids = payload.get("jids")
    if not isinstance(jids, list) or not 0 < len(jids) <= 64:
        raise InvalidRecord("takes 1 to 64 job ids")
    if not all(isinstance(jid, str) and JID.fullmatch(jid) for jid in jids):
        raise InvalidRecord("a job id has 20 digits")
    return jids


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST:
        raise InvalidRecord(f"takes seconds, more than 0, at most {LONGEST:g}")
    return float(value)
