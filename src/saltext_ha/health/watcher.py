"""
Whether this master serves, and whether callers should be sent to it.

Parallel threads ask the questions, each with a deadline. Nothing waits for a late thread, and its
question is not asked again before the thread ends. Rounds do not overlap: an answer that comes
after the end of its round is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.errors import reason_of
from saltext_ha.common.hysteresis import Health
from saltext_ha.common.tasks import begin
from saltext_ha.config.health import HealthSettings
from saltext_ha.config.salt_api import api_of
from saltext_ha.health import checks, fitness, verdict
from saltext_ha.health.echoes import Echoes
from saltext_ha.health.verdict import Result
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.contact import Contact
from saltext_ha.transport.pins import Pins

log = logging.getLogger(__name__)

TURN = 1.0  # seconds between rounds before the first decision
JITTER = 0.1
# A runner is a separate process that loads all of Salt's runners.
DEEP_TIMEOUT = 15.0
LONGEST_PAUSE = 300.0
"""
Seconds between two logins, at most, while they are refused: also where LDAP or PAM was down, and
salt-api refused all.
"""
DRAINED = "drained"
RECOVERING = "answers again, but not yet for long enough"

REQUEST, PUBLISHER, BUS, API = "request port", "publisher", "event bus", "salt-api"
RUNNER, LOGIN = "runner", "salt-api login"

Check = Callable[[], Awaitable[str]]


@dataclass
class _Question:
    """One question, and its thread while it asks: a thread cannot be ended from outside."""

    name: str
    ask: Check
    threaded: bool = True
    asked: asyncio.Future[str] | None = None

    async def result(self, timeout: float) -> Result:
        began, note = time.monotonic(), ""
        if self.asked is None or self.asked.done():
            self.asked = begin(self.ask())
        try:
            problem = await asyncio.wait_for(asyncio.shield(self.asked), timeout)
        except asyncio.TimeoutError:
            problem = "timed out"
            if not self.threaded:
                self.asked.cancel()
                self.asked = None
        except asyncio.CancelledError:
            self.asked.cancel()
            raise
        except checks.NotAsked as exc:
            problem, note = "", f"not asked: {exc}"
        except Exception as exc:  # a question that cannot be asked has no good answer
            log.debug("ha health: %s", self.name, exc_info=True)
            problem = reason_of(exc)
        return Result(self.name, problem, time.monotonic() - began, time.time(), note)


class Login:
    """
    The question whether salt-api lets the user in. While it does not, nobody logs in again for
    twice as long each time: an account that is locked after a few failures must unlock some day.

    :param ask: logs in.
    :param pause: seconds between two logins at first.
    """

    def __init__(self, ask: Check, pause: float) -> None:
        self._ask, self._shortest = ask, pause
        self._pause, self._due, self._refusal = pause, float("-inf"), ""

    async def __call__(self) -> str:
        if time.monotonic() < self._due:
            return self._refusal
        try:
            problem = await self._ask()
        except checks.LoginRefused as exc:
            self._refusal, self._due = str(exc), time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return self._refusal
        self._pause = self._shortest
        return problem


class Watcher:
    """
    Asks, and keeps the verdict.

    :param settings: None if no questions are asked (``ha: health: false``).
    :param host: the host at which others reach this master.
    :param damage: returns why this engine is of no use though it runs; empty if it is. It takes
        whether an answer of the last two seconds will do.
    :param behind: returns why anything but keys has not caught up yet; empty if it has.
    :ivar state: always ``verdict.UNDECIDED`` if no questions are asked.
    :ivar draining: whether an operator is taking this master out of service: then no more callers.
    """

    def __init__(
        self,
        settings: HealthSettings | None,
        opts: Mapping[str, Any],
        *,
        host: str,
        core: Core,
        pins: Pins,
        contacts: Mapping[str, Contact],
        echoes: Echoes,
        damage: Callable[[bool], str],
        behind: Callable[[], str],
    ) -> None:
        self._settings, self._opts, self._host = settings, opts, host
        self._core, self._pins, self._contacts = core, pins, contacts
        self._echoes, self._damage, self._lag = echoes, damage, behind
        self._api = api_of(opts)
        self.draining = False
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="ha-health")
        self._results: dict[str, Result] = {}
        self._met = False
        self._since = time.time()
        self.state: Health = verdict.UNDECIDED

    # -- what others ask

    @property
    def healthy(self) -> bool | None:
        """Whether the master serves; None as long as that is unknown."""
        return self.state.usable if self.state.known else None

    def ready(self) -> tuple[bool, str]:
        """Whether callers should be sent to this master; if not, why."""
        core = self._core
        why = (
            self._out_of_use()
            or fitness.untrue(core.replica.held.count, core.mode.doubt)
            or (fitness.hangs(core.busy) if core.busy >= fitness.HANGS else "")
            or self._behind()
            or self._lag()
            or self._unhealthy()
        )
        return not why, why

    def unfit_to_lead(self) -> str:
        """
        Why this master should not act for the group; empty if it may. Keys that are behind or held
        are no reason: work that must run once runs all the same.
        """
        return self._out_of_use(lately=True) or self._unhealthy()

    def _out_of_use(self, lately: bool = False) -> str:
        """Why it is of no use, even if it serves; empty if it is."""
        return DRAINED if self.draining else self._damage(lately)

    def _unhealthy(self) -> str:
        """Why it does not count as serving; empty if it does, or no questions are asked."""
        if self._settings is None or self.healthy:
            return ""
        if self.healthy is None:
            return f"starting: {self.state.reason}"
        return self.state.reason or RECOVERING

    def told(self) -> dict[str, Any]:
        """Plain data for peers and the page, nothing secret."""
        ready, reason = self.ready()
        return {
            "asked": self._settings is not None,
            "healthy": self.healthy,
            "ready": ready,
            "reason": reason,
            "problem": (self.state.reason or RECOVERING) if self.healthy is False else "",
            "since": self._since if self.state.known else None,
            "draining": self.draining,
            "url": self._url(),
            "checks": [result.told() for result in self._results.values()],
        }

    def _url(self) -> str:
        """The URL at which others reach salt-api here; empty without one."""
        api = self._api
        if api is None:
            return ""
        return api.url_at(self._host) if api.everywhere else api.url

    def _behind(self) -> str:
        """
        Why it has not caught up since its start, or since its replica was lost; empty if it has.
        """
        if self._core.mode.lost:
            return "its replica is being rebuilt"
        if self._met:
            return ""
        # Down is an answer, too: a master must serve if it is the only one left.
        contacts = self._contacts
        waiting = [
            name
            for name in sorted(self._pins.peers())
            if name not in contacts or contacts[name].up is None
        ]
        if waiting:
            return f"not yet in sync with {', '.join(waiting)} since its start"
        self._met = True
        return ""

    # -- asking

    async def run(self) -> None:
        """Ask round after round, for ever."""
        settings = self._settings
        if settings is None:
            return
        # Salt logs an error for each question without an answer; this class logs it once.
        logging.getLogger("salt.transport").setLevel(logging.CRITICAL)
        deep = [asyncio.ensure_future(self._deep(q, settings)) for q in self._expensive(settings)]
        began = time.monotonic()
        quick = self._questions(settings)
        try:
            while True:
                started = time.monotonic()
                for result in await asyncio.gather(*(q.result(settings.timeout) for q in quick)):
                    self._results[result.name] = result
                self._decide(settings, time.monotonic() - began)
                pause = settings.interval if self.state.known else min(TURN, settings.interval)
                pause *= random.uniform(1 - JITTER, 1 + JITTER)  # nosec B311
                await asyncio.sleep(max(0.1, pause - (time.monotonic() - started)))
        finally:
            for each in deep:
                each.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _decide(self, settings: HealthSettings, age: float) -> None:
        problem = verdict.reason(self._results.values())
        before, now = self.healthy, time.monotonic()
        self.state = verdict.follow(self.state, problem, now, settings.rules, age)
        if self.healthy == before:
            return
        self._since = time.time()
        if self.healthy:
            log.info("ha health: this master serves")
        else:
            log.error("ha health: this master does not serve: %s", self.state.reason)

    async def _deep(self, question: _Question, settings: HealthSettings) -> None:
        """
        Ask an expensive question less often; if it fails, as often as the others. A failure counts
        from the second in a row: every round until the next answer counts it.
        """
        failed = False
        while True:
            result = await question.result(DEEP_TIMEOUT)
            good = not verdict.reason([result])
            if good or failed:
                self._results[result.name] = result
            failed = not good
            await asyncio.sleep(settings.deep_interval if good else settings.interval)

    def _expensive(self, settings: HealthSettings) -> list[_Question]:
        if not settings.deep_interval:
            return []
        questions = [_Question(RUNNER, self._runner, threaded=False)]
        if self._api and settings.user:
            who = settings.user, settings.password, settings.eauth
            login = self._thread(checks.api_login, self._api, *who, DEEP_TIMEOUT)
            questions.append(_Question(LOGIN, Login(login, settings.interval)))
        return questions

    def _questions(self, settings: HealthSettings) -> list[_Question]:
        opts, timeout = self._opts, settings.timeout
        questions = [
            _Question(REQUEST, self._thread(checks.request_port, opts, timeout)),
            _Question(PUBLISHER, self._thread(checks.publisher, opts, timeout)),
            _Question(BUS, self._echoes.of_an_event, threaded=False),
        ]
        if self._api:
            questions.append(_Question(API, self._thread(checks.api_answers, self._api, timeout)))
        return questions

    def _thread(self, function: Callable[..., str], *arguments: Any) -> Check:
        async def ask() -> str:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *arguments)

        return ask

    async def _runner(self) -> str:
        return await self._echoes.of_a_runner(
            self._thread(checks.run_runner, self._opts, DEEP_TIMEOUT)
        )
