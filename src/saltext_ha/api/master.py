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
from saltext_ha.api.tokens import MAX_LOGIN, ApiToken, Refused, Tokens, hint
from saltext_ha.api.transport import Lost, NotSent, Transport
from saltext_ha.common import hysteresis as states
from saltext_ha.common.hysteresis import Health, Rules

log = logging.getLogger(__name__)

# Looks into a job cache at once: each is a process on the master, and many may be waited for.
LOOKS = 4
# salt-api says so before it does anything with a call, so nothing was run.
NOT_RUNNING = b"Salt Master is not available"


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
        self._health = Health()
        self._lock = threading.Lock()
        self._looks = threading.BoundedSemaphore(LOOKS)
        self.last_good = float("-inf")  # monotonic seconds
        self.doubted = False  # a call was lost on it, and nothing has worked since

    def __repr__(self) -> str:
        return f"<MasterApi {self.name}>"

    # -- health

    @property
    def health(self) -> Health:
        """What is believed of it now."""
        return self._health

    @property
    def standing(self) -> Standing:
        """What the selection needs of it."""
        return Standing(self.name, self.endpoint.priority, self._health.usable)

    def note(self, good: bool, reason: str) -> None:
        """Count one signal, of a probe or of a call."""
        now = time.monotonic()
        with self._lock:
            before = self._health
            self._health = states.after(before, good, reason, now, self._rules)
            if good:
                self.last_good, self.doubted = now, False
            changed = before.usable != self._health.usable
        if changed:
            state = "up" if good else "down"
            log.warning("api_pool master=%s state=%s reason=%r", self.name, state, reason)

    def doubt(self) -> None:
        """A call was lost, and what became of it could not be found out."""
        self.doubted = True

    def look(self, limit: float) -> None:
        """
        Where it is in doubt, probe it before anything else is lost on it.

        :raises NotSent: it is of no use.
        """
        if self.doubted and not self.probe(limit):
            raise NotSent(f"a call was lost on it, and it does not work yet: {self.health.reason}")

    def probe(self, limit: float) -> bool:
        """
        Look whether it is of use, in two layers, and note the result: does salt-api answer, and
        does a real login succeed? A login takes salt-master's request port; ``GET /`` answers 200
        while salt-master is dead.

        :param limit: seconds.
        :return: whether it is.
        """
        deadline = Deadline(limit)
        try:
            answer = self._transport.exchange("GET", "/", deadline, most=MAX_LOGIN)
            if answer.status != 200:
                raise NotSent(f"GET /: HTTP {answer.status}{hint(answer.status)}")
            token = self._tokens.login(deadline)
        except (NotSent, Lost, Refused) as exc:
            self.note(False, str(exc))
            return False
        self.note(True, "login")
        if not self._tokens.adopt(token):
            # One a probe, twelve hours each, would pile up on the master.
            self._tokens.logout(token, Deadline(limit))
        return True

    # -- calls

    def call(self, low: Mapping[str, Any], deadline: Deadline, tries: int = 1) -> Any:
        """
        What one low data chunk returns.

        :param tries: how many masters may be tried with what is left of the time: a login takes
            no more than the share of this one.
        :raises NotSent: it was certainly not carried out.
        :raises Refused: the same, because of the user.
        :raises Lost: it may have been carried out.
        :raises CallFailed: Salt found the call itself wrong, and did not carry it out.
        """
        try:
            token = self._tokens.get(deadline.part(tries))
            answer = self._post(low, token, deadline)
            if answer.status == 401:
                # Ended early: revoked, or salt-api was restarted. 401 comes before anything is run.
                token = self._tokens.get(deadline.part(tries), instead_of=token)
                answer = self._post(low, token, deadline)
            value = self._value(low, answer)
        except NotSent as exc:
            self.note(False, str(exc))
            raise
        except Lost as exc:
            # A slow call is no sick master; the prober finds out.
            if not exc.slow and not exc.finished:
                self.note(False, str(exc))
            raise
        self.note(True, "call")
        return value

    def job(self, jid: str, deadline: Deadline, limit: float = float("inf")) -> JobStatus:
        """
        What its job cache has of *jid*. Raises as :meth:`call` does.

        :param limit: seconds for the look itself. Waiting for its turn does not count: who began to
            look with little time left would give up, and the master go on looking for nobody.
        """
        low = {"client": "runner", "fun": "jobs.list_job", "kwarg": {"jid": jid}}
        if not self._looks.acquire(timeout=deadline.remaining()):
            raise NotSent("no look in time: many other jobs are being looked up")
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
        if token is not None and self._health.usable:
            self._tokens.logout(token, Deadline(limit))
        self._transport.close()

    # -- helpers

    def _nonsense(self, problem: str) -> Lost:
        """The error for an answer that no master gives: this one is of no use."""
        self.note(False, problem)
        return Lost(problem, finished=True, nonsense=True)

    def _post(self, low: Mapping[str, Any], token: ApiToken, deadline: Deadline) -> Answer:
        return self._transport.exchange("POST", "/", deadline, [dict(low)], token.secret)

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
        if status == 400:
            raise CallFailed(self.name, f"{low['client']} {low['fun']}: HTTP 400: wrong arguments")
        if status == 503 and NOT_RUNNING in answer.body:
            raise NotSent("salt-api answers, salt-master does not run")
        if status in (403, 404, 405, 406, 413, 415) or 300 <= status < 400:
            raise NotSent(f"HTTP {status}{hint(status)}")
        # 500 is Salt's answer to anything unforeseen; 502 to 504 come from a proxy in front, or
        # from a request to salt-master that timed out and that it may still find in its queue.
        raise Lost(f"HTTP {status}{hint(status)}", finished=status == 500)
