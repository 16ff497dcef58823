"""One master behind its salt-api: calls with a token, its health, what its job cache says."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from saltext_ha.api.answer import Answer, check_form
from saltext_ha.api.config import Endpoint
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import CallFailed
from saltext_ha.api.jobs import JobStatus, read_status
from saltext_ha.api.selection import Standing
from saltext_ha.api.tokens import ApiToken, Refused, Tokens, http
from saltext_ha.api.transport import Lost, NoTime, NotSent, Transport
from saltext_ha.common import hysteresis as states
from saltext_ha.common.hysteresis import Health, Rules

log = logging.getLogger(__name__)

# Looks into a job cache at once: each is a process on the master, and many jobs may have callers.
AT_ONCE = 4
# salt-api says so before it does anything with a call, so nothing was run.
NOT_RUNNING = b"Salt Master is not available"
DISABLED = b"Client disabled"
# Seconds after which a refusal may be about a job that runs: Salt asks those minions that have not
# returned, with the token of the call, whether they run it still, and not sooner.
ASKED_AFTER = 1.0
# Seconds for which salt-api goes on to wait for a runner when the time of its caller is over.
LONGER = 5.0


class MasterApi:
    """
    The salt-api of one master.

    Its errors say what is certain, so that the pool can decide: ``NotSent`` and ``Refused``
    (nothing was run), ``Lost`` (it may have been run), ``CallFailed`` (it was answered: failed).
    """

    def __init__(self, endpoint: Endpoint, rules: Rules) -> None:
        self.endpoint, self.name = endpoint, endpoint.name
        self._rules = rules
        self._transport = Transport(endpoint.url, endpoint.verify)
        self._tokens = Tokens(endpoint, self._transport)
        self.health = Health()  # presumed
        self._lock = threading.Lock()
        self._looks = threading.BoundedSemaphore(AT_ONCE)
        self.last_good = float("-inf")  # monotonic seconds
        self.doubted = False  # a call was lost on it, and nothing has worked since

    def __repr__(self) -> str:
        return f"<MasterApi {self.name}>"

    # -- health

    @property
    def standing(self) -> Standing:
        """What the selection needs of it."""
        return Standing(self.name, self.endpoint.priority, self.health.usable)

    def note(self, good: bool, reason: str) -> None:
        """Count one signal, of a probe or of a call."""
        now = time.monotonic()
        with self._lock:
            before = self.health
            self.health = states.after(before, good, reason, now, self._rules)
            if good:
                self.last_good, self.doubted = now, False
            changed = before.usable != self.health.usable
        if changed:
            state = "up" if good else "down"
            log.warning("api_pool master=%s state=%s reason=%r", self.name, state, reason)

    def doubt(self) -> None:
        """Note that a call was lost on it, with an unknown outcome."""
        self.doubted = True

    def probe_in_doubt(self, limit: float) -> None:
        """If it is in doubt, probe it before the next call. :raises NotSent: it does not work."""
        if self.doubted and not self.probe(limit):
            raise NotSent(f"a call was lost on it, and it does not work yet: {self.health.reason}")

    def probe(self, limit: float) -> bool:
        """
        Find out in two layers whether it works, and note the result: does salt-api answer, and does
        a real login succeed? A login needs salt-master's request port; ``GET /`` answers 200 while
        salt-master is dead.

        :param limit: seconds.
        :return: whether it works.
        """
        if limit <= 0:
            return False  # it cannot be found out
        deadline = Deadline(limit)
        try:
            status = self._tokens.greet(deadline)
            if status != 200:
                raise NotSent(f"GET /: {http(status)}")
            token = self._tokens.login(deadline)
        except (NotSent, Lost, Refused) as exc:
            self.note(False, str(exc))
            return False
        self.note(True, "login")
        if not self._tokens.adopt(token):
            # A token for each probe, good for twelve hours, would pile up on the master.
            self._tokens.logout(token, Deadline(limit))
        return True

    # -- calls

    def call(self, low: Mapping[str, Any], deadline: Deadline, tries: int = 1) -> Any:
        """
        What one low data chunk returns.

        :param tries: how many masters may be tried in the time that is left: a login takes no more
            than this master's share.
        :raises NotSent: it was certainly not carried out.
        :raises Refused: the same, because of the user or the client.
        :raises Lost: it may have been carried out.
        :raises CallFailed: Salt found the call itself wrong, and did not carry it out.
        """
        try:
            token, begun = self._tokens.get(deadline.part(tries)), time.monotonic()
            answer = self._post(low, token, deadline)
            waited = time.monotonic() - begun >= ASKED_AFTER
            if answer.status == 401 and answer.private and waited and self._may_run(low, deadline):
                raise Lost("HTTP 401: its token has ended meanwhile", finished=True)
            if answer.status == 401 and not (answer.private and token.proven):
                # The token ended early: revoked, or salt-api was restarted. Nothing was run yet.
                token = self._tokens.get(deadline.part(tries), instead_of=token)
                answer = self._post(low, token, deadline)
            value = self._value(low, answer)
        except NoTime:
            raise
        except NotSent as exc:
            self.note(False, str(exc))
            raise
        except Lost as exc:
            # A slow call does not prove a sick master; the prober finds out.
            if not exc.slow and not exc.finished:
                self.note(False, str(exc))
            raise
        self.note(True, "call")
        log.debug("api_pool master=%s answered=%s.%s", self.name, low["client"], low["fun"])
        return value

    def job(self, jid: str, deadline: Deadline, limit: float = float("inf")) -> JobStatus:
        """
        What its job cache has of *jid*. Raises like :meth:`call`.

        :param limit: seconds for the look itself, without waiting for its turn: a look that begins
            with little time left would be given up, and the master would go on with it for nobody.
        """
        low = {"client": "runner", "fun": "jobs.list_job", "kwarg": {"jid": jid}}
        if not self._looks.acquire(timeout=deadline.remaining()):
            raise NoTime("no look in time: many other jobs are being looked up")
        try:
            answer, problem = self.call(low, deadline.part(limit=limit)), ""
        finally:
            self._looks.release()
        try:
            return read_status(jid, self.name, answer)
        except ValueError as exc:
            problem = str(exc)
        raise self._nonsense(problem)

    def close(self, limit: float) -> None:
        """Log out, when it is healthy, and close all connections."""
        token = self._tokens.current
        if token is not None and self.health.usable:
            self._tokens.logout(token, Deadline(limit))
        self._transport.close()

    # -- helpers

    def _may_run(self, low: Mapping[str, Any], deadline: Deadline) -> bool:
        """Whether *low*, which salt-api has answered, is a job that was published, or may be."""
        if low["client"] != "local" or "jid" not in low:
            return False
        try:
            return self.job(low["jid"], deadline).found
        except (NotSent, Refused, Lost, CallFailed):
            return True

    def _nonsense(self, problem: str) -> Lost:
        """Note that this master does not work, and return the error for its nonsense answer."""
        self.note(False, problem)
        return Lost(problem, finished=True, nonsense=True)

    def _post(self, low: Mapping[str, Any], token: ApiToken, deadline: Deadline) -> Answer:
        chunk = dict(low)
        if low["client"] == "runner":
            # Otherwise rest_timeout (300 s) counts, and salt-api says 504 while the runner goes on.
            chunk["timeout"] = deadline.remaining() + LONGER
        return self._transport.exchange("POST", "/", deadline, [chunk], token.secret)

    def _value(self, low: Mapping[str, Any], answer: Answer) -> Any:
        status, problem = answer.status, ""
        if status == 200:
            try:
                value = answer.returned()
                check_form(low, value)
                return value
            except ValueError as exc:
                problem = f"the answer is not that of a salt-api: it {exc}"
            raise self._nonsense(problem)
        if status == 401:
            raise Refused(f"{self.endpoint.username} may not run {low['client']} {low['fun']}")
        if status == 400 and DISABLED in answer.body:
            raise Refused(f"netapi_enable_clients in its configuration has no {low['client']}")
        if status == 400:
            raise CallFailed(self.name, f"{low['client']} {low['fun']}: HTTP 400: wrong arguments")
        if status == 503 and NOT_RUNNING in answer.body:
            raise NotSent("salt-api answers, salt-master does not run")
        if status in (403, 404, 405, 413, 415, 429) or 300 <= status < 400:
            raise NotSent(http(status))
        # 500 is Salt's answer to anything unforeseen; 502 to 504 come from a proxy in front, or
        # from a request to salt-master that timed out and that it may still find in its queue.
        raise Lost(http(status), finished=status == 500)
