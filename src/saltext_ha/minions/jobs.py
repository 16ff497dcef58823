"""Publishes a job on some or all masters of the group at once, and gathers what is returned."""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saltext_ha.common.errors import (
    NO_SENSE,
    HaError,
    InvalidRecord,
    PeerMistrust,
    PeerRefused,
    PeerUnreachable,
    PublishingTimedOut,
    reason_of,
)
from saltext_ha.minions.job_specs import (
    CMD,
    JID,
    LONGEST,
    REPORT,
    CommandSpec,
    JobSpec,
    Spec,
    answer,
    plain,
    read,
)
from saltext_ha.minions.returns import Returns
from saltext_ha.salt_bus.intake import fitted
from saltext_ha.sync.group import Group
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.trust import Peer

log = logging.getLogger(__name__)

PUBLISHING = 10.0  # seconds that Salt's own publisher may take
AFTERWARDS = 10.0  # for which stray returns are still kept
AT_ONCE = 4  # being published
MAX_RUNNING = 32  # being waited for
MAX_ANSWERS = 6 * 1024 * 1024  # bytes of one message to a peer
OLDER = "it runs an older saltext-ha, which does not take ha.cmd: upgrade it ({})"
NO_ROOM = "answered so much that it does not fit into a message beside the others"
# A report takes its minion seconds, and longer where many are asked at once: they are waited for as
# long as they keep coming.
REPORTING = 45.0
SILENT = 20.0
# Who has not returned a command in time is asked whether it still runs it.
FIND_JOB = "saltutil.find_job"
FINDING = 5.0  # seconds to answer
LOOKING = 10.0  # with publishing that
LATE = 2.0  # for which returns of those who do not run it any more may be under way

Publish = Callable[[Mapping[str, Any], Spec, str], list[str]]


@dataclass
class Answers:
    """
    What came of a job that one master published: ``targeted`` are the ids that it was for,
    ``returned`` id → (seconds until then, value). ``error``: why it could not be published.
    ``failed``: id → the code of those whose function failed; ``jid``: of that job. ``running``: of
    those that have not returned a command, who said that it still runs it. ``unsure``: in spite of
    the error it may have been published.
    """

    targeted: frozenset[str] = frozenset()
    returned: dict[str, tuple[float, Any]] = field(default_factory=dict)
    error: str = ""
    failed: dict[str, int] = field(default_factory=dict)
    jid: str = ""
    running: frozenset[str] = frozenset()
    unsure: bool = False


class Count(NamedTuple):
    """
    How far a job is: how many minions it is for (None: it is not published yet), how many have
    returned, and how many of these have failed.
    """

    targeted: int | None
    returned: int
    failed: int


@dataclass(frozen=True)
class Stray:
    """Returns of a job of the master ``published`` that came to the master ``arrived``."""

    published: str
    arrived: str
    ids: tuple[str, ...]


class Jobs:
    """
    The one way by which an engine has anything published; see :mod:`saltext_ha.minions.job_specs`.

    :param opts: this master's configuration.
    :param returns: what its bus tells of returns.
    :param hot: is told which minions answered how many masters at once.
    :ivar takes_commands: whether other masters may have commands run here.
    :ivar publish: hands a job with an id of our choice to this master, and returns the minions
        that it is for; blocks. :raises HaError: it could not be published.
    """

    def __init__(
        self,
        group: Group,
        opts: Mapping[str, Any],
        returns: Returns,
        takes_commands: bool,
        hot: Callable[[Mapping[str, int]], None],
    ) -> None:
        self._group, self._opts, self._returns, self._hot = group, opts, returns, hot
        self.takes_commands = takes_commands
        self.publish: Publish = publish_here
        self._running: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._commands: dict[str, float] = {}
        """Commands that were published here and of which returns are kept: id → when."""
        self._waiting_on = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrived() -> None:
            loop.call_soon_threadsafe(self._arrived.set)

        returns.arrived = arrived

    def for_peers(self) -> dict[str, Handler]:
        """What peers may ask."""

        async def expect(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return self._expect(payload)

        async def run(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return await self._run(payload, peer.name)

        async def strays(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return self._strays(payload)

        async def more(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return await self._more(payload)

        return {"job_expect": expect, "job_run": run, "job_more": more, "job_strays": strays}

    @property
    def own(self) -> str:
        """This master's name."""
        return self._group.name

    @property
    def masters(self) -> list[str]:
        """All masters of the group, by name."""
        return self._group.masters

    async def run(
        self,
        spec: Spec,
        timeout: float,
        masters: Collection[str] | None = None,
        jids: Mapping[str, str] | None = None,
        unreached: Collection[str] = (),
    ) -> tuple[dict[str, Answers], list[Stray]]:
        """
        Publish *spec* on *masters* (default: all) at once.

        :param timeout: seconds for the minions to return.
        :param jids: master → the id of its job; default: new ones.
        :param unreached: masters that did not answer just now: they are not asked who has returned.
        :return: master → what came of it; and what was returned to the wrong master.
        """
        chosen = self.masters if masters is None else sorted(masters)
        jids = jids or dict(zip(chosen, new_jids(len(chosen)), strict=True))
        # All listen before anybody publishes, so that no return can come too early to be seen.
        listening = [name for name in self.masters if name in chosen or name not in unreached]
        expected = await self._each(
            listening, "job_expect", {"jids": [*jids.values()], "timeout": timeout}
        )
        found = {
            name: Answers(error=problem)
            for name, problem in expected.items()
            if isinstance(problem, str) and name in jids
        }
        asked = [name for name in chosen if name not in found]
        told = await asyncio.gather(
            *(self._run_on(name, jids[name], spec, timeout) for name in asked)
        )
        for name, answers in zip(asked, told, strict=True):
            found[name] = answers
            found[name].jid = jids[name]
        answered = Counter(minion_id for answers in told for minion_id in answers.returned)
        self._hot({minion_id: of for minion_id, of in answered.items() if of > 1})
        hearing = [name for name in listening if not isinstance(expected[name], str)]
        strays = await self._each(hearing, "job_strays", {"jids": [*jids.values()]})
        return found, sorted(_strays(jids, strays), key=lambda s: (s.published, s.arrived))

    async def more(self, jids: Mapping[str, str], timeout: float) -> dict[str, Answers]:
        """
        Wait on for commands whose minions said that they still run them, just after :meth:`run`.

        :param jids: master → the id of its job.
        :param timeout: seconds; then those that have not returned are asked again.
        :return: master → all that came of it until now; with an error where that is not known.
        """

        async def ask(name: str, jid: str) -> Answers:
            link, payload = self._group.links.get(name), {"jid": jid, "timeout": timeout}
            try:
                if name == self._group.name:
                    return _read(await self._more(payload))
                if link is None:
                    return Answers(error="left just now")
                wait = timeout + LOOKING + LATE + 5
                return _read(await link.call("job_more", payload, wait))
            except HaError as exc:
                return Answers(error=str(exc))

        told = await asyncio.gather(*(ask(name, jid) for name, jid in jids.items()))
        return dict(zip(jids, told, strict=True))

    async def counts(self, jids: Mapping[str, str]) -> tuple[dict[str, Count], dict[str, str]]:
        """
        How far jobs are that are being carried out.

        :param jids: master → the id of the job that it was given.
        :return: master → how far; and which masters do not say, and why.
        """

        async def ask(name: str, jid: str) -> dict[str, Any] | str:
            link = self._group.links.get(name)
            if link is not None and link.up is False:
                return link.error  # asked every second, it would only be tried less often
            # An older release takes no notice of "counts", and answers ids as ever.
            payload = {"jids": [jid], "counts": True}
            return await self._call(name, "job_strays", payload, self._group.timeout)

        told = await asyncio.gather(*(ask(name, jid) for name, jid in jids.items()))
        counts, unknown = dict[str, Count](), dict[str, str]()
        for (name, jid), raw in zip(jids.items(), told, strict=True):
            found = raw if isinstance(raw, str) else _count(raw, jid)
            if isinstance(found, str):
                unknown[name] = found
            else:
                counts[name] = found
        return counts, unknown

    async def reports(self, glob: str) -> dict[str, dict[str, Any]]:
        """
        What the minions say of themselves that listen to this master, by id; see
        :mod:`saltext_ha.minions.reports`.

        :raises HaError: they could not be asked.
        """
        spec = JobSpec(REPORT, glob=glob)
        (jid,) = new_jids(1)
        told = await self._run({"jid": jid, "order": spec.to_wire(), "timeout": REPORTING})
        self._over([jid])
        if told["error"]:
            raise HaError(told["error"])
        return {minion_id: value for minion_id, _, value in told["returned"]}

    async def tell(self, spec: Spec) -> None:
        """
        Publish *spec* here; nobody waits for what is returned.

        :raises HaError: it could not be published.
        """
        (jid,) = new_jids(1)
        async with self._turns:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.publish, self._opts, spec, jid)

    async def _each(
        self, names: Iterable[str], method: str, payload: dict[str, Any]
    ) -> dict[str, dict[str, Any] | str]:
        names = list(names)
        timeout = self._group.timeout
        calls = (self._call(name, method, payload, timeout) for name in names)
        return dict(zip(names, await asyncio.gather(*calls), strict=True))

    async def _call(
        self, name: str, method: str, payload: dict[str, Any], timeout: float
    ) -> dict[str, Any] | str:
        """The answer of a master, or why there is none."""
        try:
            if name == self._group.name:
                return {"job_expect": self._expect, "job_strays": self._strays}[method](payload)
            link = self._group.links.get(name)
            if link is None:
                return "joined just now; not asked yet"
            return await link.call(method, payload, timeout)
        except HaError as exc:
            return str(exc)

    async def _run_on(self, name: str, jid: str, spec: Spec, timeout: float) -> Answers:
        """What came of it on a master."""
        payload = {"jid": jid, "order": spec.to_wire(), "timeout": timeout}
        link = self._group.links.get(name)
        try:
            if name == self._group.name:
                return _read(await self._run(payload))
            if link is None:
                return Answers(error="joined just now; not asked yet")
            wait = timeout + PUBLISHING + 5 + _afterwards(spec)
            return _read(await link.call("job_run", payload, wait))
        except PeerUnreachable as exc:
            return Answers(error=str(exc), unsure=not isinstance(exc, PeerMistrust))
        except PeerRefused as exc:
            # Only when it refuses: it may have been upgraded since it was met.
            older = spec.what == CMD and link and link.info.get("commands") is not True
            return Answers(error=OLDER.format(exc) if older else str(exc))
        except HaError as exc:
            return Answers(error=str(exc))

    # -- this master's part

    def _expect(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        returns = self._returns
        seconds = _seconds(payload.get("timeout")) + PUBLISHING + AFTERWARDS
        returns.expect(_jids(payload), seconds)
        asyncio.get_running_loop().call_later(seconds + 1, returns.forget_old)
        return {}

    async def _run(self, payload: Mapping[str, Any], by: str = "") -> dict[str, Any]:
        (jid,) = _jids({"jids": [payload.get("jid")]})
        spec, timeout = read(payload.get("order")), _seconds(payload.get("timeout"))
        if spec.what == CMD and by and not self.takes_commands:
            raise InvalidRecord("takes no commands from other masters (ha: commands: False)")
        # A call may come twice, when a connection breaks; the job is published once.
        task = self._running.get(jid)
        if task is None:
            if sum(not each.done() for each in self._running.values()) >= MAX_RUNNING:
                raise InvalidRecord(f"{MAX_RUNNING} jobs are under way; try again later")
            level = logging.INFO if spec.what == CMD else logging.DEBUG
            what, asked = f"{spec.what} {spec.job()[0]}", by or "this master"
            log.log(level, "ha job: jid=%s what=%s asked by=%s", jid, what, asked)
            task = self._running[jid] = asyncio.ensure_future(self._carry_out(spec, jid, timeout))
            loop = asyncio.get_running_loop()
            task.add_done_callback(
                lambda _: loop.call_later(AFTERWARDS, self._running.pop, jid, None)
            )
        return await asyncio.shield(task)

    async def _carry_out(self, spec: Spec, jid: str, timeout: float) -> dict[str, Any]:
        returns = self._returns
        keep = functools.partial(answer, spec.what)
        try:
            seconds = timeout + PUBLISHING + AFTERWARDS + _afterwards(spec)
            patience = timeout + PUBLISHING + _afterwards(spec)
            began, targeted = await self._published(spec, jid, seconds, keep, patience)
        except HaError as exc:
            unsure = isinstance(exc, PublishingTimedOut)
            return {"error": f"{self._group.name} could not publish: {exc}", "unsure": unsure}
        await self._all_of(jid, len(targeted), timeout, SILENT if spec.what == REPORT else timeout)
        running: Collection[str] = ()
        if spec.what == CMD:
            known = {i: at for i, at in self._commands.items() if returns.targeted(i) is not None}
            self._commands = {**known, jid: began}
            running = await self._still_running(jid, targeted)
        return self._came_of(spec.what, jid, began, targeted, running)

    async def _more(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Wait on for a command that was published here; any peer could have read what came."""
        (jid,) = _jids({"jids": [payload.get("jid")]})
        timeout, returns = _seconds(payload.get("timeout")), self._returns
        began = self._commands.get(jid)
        if began is None or returns.targeted(jid) is None:
            raise InvalidRecord("nobody waits for that job any more")
        if self._waiting_on >= MAX_RUNNING:
            raise InvalidRecord(f"{MAX_RUNNING} jobs are waited for; try again later")
        returns.expect([jid], timeout + LOOKING + LATE + AFTERWARDS)
        targeted = returns.targeted(jid) or frozenset()
        self._waiting_on += 1
        try:
            await self._all_of(jid, len(targeted), timeout, timeout)
            running = await self._still_running(jid, targeted)
            if not running:
                # A minion that has ended it meanwhile sends its return after that answer.
                await self._all_of(jid, len(targeted), LATE, LATE)
        finally:
            self._waiting_on -= 1
            self._over([jid])
        return self._came_of(CMD, jid, began, targeted, running)

    def _came_of(
        self, what: str, jid: str, began: float, targeted: Collection[str], running: Iterable[str]
    ) -> dict[str, Any]:
        """What is known of a job by now, as a peer is told."""
        came = self._returns.of(jid)
        # They go to a peer in one message.
        too_much = {"problem" if what == REPORT else "error": NO_ROOM}
        values = fitted({i: each.value for i, each in came.items()}, MAX_ANSWERS, too_much)
        return {
            "error": "",
            "targeted": sorted(targeted),
            "returned": [
                [minion_id, round(max(0.0, each.at - began), 4), values[minion_id]]
                for minion_id, each in sorted(came.items())
            ],
            "failed": {i: each.retcode for i, each in sorted(came.items()) if each.retcode},
            "running": sorted(i for i in running if i not in came),
        }

    async def _published(
        self,
        spec: Spec,
        jid: str,
        seconds: float,
        keep: Callable[[Any], Any],
        patience: float,
    ) -> tuple[float, frozenset[str]]:
        """
        Publish here, and keep what is returned of it for *seconds*.

        :param patience: seconds that it may wait for its turn; then nobody waits for it any more.
        :return: when (``time.monotonic``), and the minions that it is for.
        :raises HaError: it could not be published.
        """
        loop = asyncio.get_running_loop()
        returns = self._returns
        end = loop.time() + patience
        async with self._turns:
            if loop.time() > end:
                raise HaError("too many jobs were being published; its turn came too late")
            returns.expect([jid], seconds, keep)
            loop.call_later(seconds + 1, returns.forget_old)
            began = time.monotonic()
            targeted = frozenset(
                await loop.run_in_executor(None, self.publish, self._opts, spec, jid)
            )
            returns.narrow(jid, targeted)
        return began, targeted

    async def _still_running(self, jid: str, targeted: frozenset[str]) -> list[str]:
        """Those of *targeted* that have not returned that job, and say that they still run it."""
        loop, returns = asyncio.get_running_loop(), self._returns
        missing = sorted(targeted - returns.of(jid).keys())
        if not missing:
            return []
        (look,) = new_jids(1)
        question = CommandSpec(missing, "list", FIND_JOB, (jid,))
        keep = functools.partial(_is_of, jid)
        end = loop.time() + LOOKING
        try:
            _, asked = await asyncio.wait_for(
                self._published(question, look, LOOKING + AFTERWARDS, keep, LOOKING), LOOKING
            )
        except (HaError, asyncio.TimeoutError):
            self._over([look])
            return []  # nobody said so
        seconds = min(FINDING, end - loop.time())
        await self._all_of(look, len(asked), seconds, seconds)
        self._over([look])
        return [minion_id for minion_id, each in returns.of(look).items() if each.value]

    async def _all_of(self, jid: str, count: int, timeout: float, silent: float) -> None:
        """Until so many returned that job, or the time is over, or no more came for *silent*."""
        loop, returns = asyncio.get_running_loop(), self._returns
        end = loop.time() + timeout
        before, last = 0, loop.time()
        while (here := returns.count(jid)) < count:
            now = loop.time()
            if here > before:
                before, last = here, now
            left = min(end, last + silent) - now
            if left <= 0:
                return
            self._arrived.clear()
            if returns.count(jid) == here:
                await _within(self._arrived, left)

    def _strays(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Who returned these jobs here; with ``counts`` only how far they are."""
        returns = self._returns
        if payload.get("counts") is True:
            return {"counts": {jid: _counted(returns, jid) for jid in _jids(payload)}}
        found = {jid: returns.of(jid) for jid in _jids(payload)}
        self._over(found)  # the caller asks this last
        return {
            "returned": {
                jid: sorted(minion_id for minion_id, each in came.items() if not each.relayed)
                for jid, came in found.items()
            }
        }

    def _over(self, jids: Iterable[str]) -> None:
        """Nobody waits for these jobs any more, but for who asks again: its connection broke."""
        returns = self._returns
        returns.over(jids, AFTERWARDS)
        asyncio.get_running_loop().call_later(AFTERWARDS + 1, returns.forget_old)


def _afterwards(spec: Spec) -> float:
    """Seconds that a master may take for more than publishing it and waiting for it."""
    return LOOKING if spec.what == CMD else 0.0


def _is_of(jid: str, value: Any) -> bool:
    """Whether a minion answers to ``saltutil.find_job`` that it runs that job."""
    return isinstance(value, Mapping) and value.get("jid") == jid


def _counted(returns: Returns, jid: str) -> list[int | None]:
    """A :class:`Count`, as a peer is told."""
    targeted = returns.targeted(jid)
    if targeted is None:
        return [None, 0, 0]  # what came before that may be anybody's
    return [len(targeted), returns.count(jid), returns.failed(jid)]


def _count(raw: Mapping[str, Any], jid: str) -> Count | str:
    """What a master says of how far its job is, or why that is not known."""
    counts = raw.get("counts")
    if not isinstance(counts, Mapping):
        return "does not say; is it of an older release?"
    told = counts.get(jid)
    if not isinstance(told, list) or len(told) != 3:
        return "answered nonsense"
    targeted, returned, failed = told
    numbers = told if targeted is not None else (returned, failed)
    if not all(type(each) is int for each in numbers):
        return "answered nonsense"
    return Count(targeted, returned, failed)


def new_jids(count: int) -> list[str]:
    """As many different job ids, as Salt makes them from the time."""
    now = datetime.datetime.now(datetime.timezone.utc)
    moments = (now + datetime.timedelta(microseconds=number) for number in range(count))
    return [f"{moment:%Y%m%d%H%M%S%f}" for moment in moments]


def publish_here(opts: Mapping[str, Any], spec: Spec, jid: str) -> list[str]:
    """
    Publish on the master with *opts*; blocks.

    :return: the ids of the accepted minions that the job is for.
    :raises HaError: the master did not take it; says why.
    """
    import salt.client
    import salt.exceptions

    function, target, kind, arguments = spec.job()
    try:
        # Salt would ask three times: no caller waits for that, and the job might go out twice.
        once = {"request_channel_tries": 1, "request_channel_timeout": PUBLISHING}
        with salt.client.LocalClient(mopts={**opts, **once}) as client:
            told = client.pub(
                target, function, arguments, tgt_type=kind, jid=jid, timeout=PUBLISHING
            )
    # Of Salt's transports and Salt's client, of many kinds; without a key it ends a program.
    except (Exception, SystemExit) as exc:
        reason = reason_of(exc)
        timed_out = isinstance(exc, salt.exceptions.SaltReqTimeoutError)
        error = PublishingTimedOut if timed_out else HaError
        raise error(f"{reason.splitlines()[0][:300]}; is salt-master well?") from None
    if told and told.get("jid") is None and not told.get("minions"):
        return []  # none of them has an accepted key here
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
        return Answers(error=str(raw["error"]), unsure=raw.get("unsure") is True)
    try:
        return Answers(
            frozenset(map(str, raw["targeted"])),
            {str(each[0]): (float(each[1]), plain(each[2])) for each in raw["returned"]},
            failed={str(i): int(code) for i, code in dict(raw.get("failed") or {}).items()},
            running=frozenset(map(str, raw.get("running") or ())),
        )
    except NO_SENSE:
        return Answers(error="answered nonsense")


def _jids(payload: Mapping[str, Any]) -> list[str]:
    jids = wire.texts(payload, "jids")
    if not 0 < len(jids) <= 64:
        raise InvalidRecord("takes 1 to 64 job ids")
    if not all(map(JID.fullmatch, jids)):
        raise InvalidRecord("a job id has 20 digits")
    return jids


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST:
        raise InvalidRecord(f"takes seconds, more than 0, at most {LONGEST:g}")
    return float(value)
