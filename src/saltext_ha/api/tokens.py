"""
The token of one user at one master.

A token of salt-api is valid only at the master that gave it, so it is kept here, beside the only
transport that may send it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, replace

from saltext_ha.api.answer import Answer
from saltext_ha.api.config import Endpoint, Secret
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import BadConfiguration
from saltext_ha.api.transport import Lost, NoTime, NotSent, Transport

log = logging.getLogger(__name__)

# Seconds that one login may take (salt-master may have to ask LDAP).
LOGIN_LIMIT = 10.0
# Log in again this long before the token ends, or a tenth of its life if that is shorter.
MARGIN = 60.0
# Seconds until a refused password is tried again, and then twice as many each time, at most these:
# an account that is locked after a few failures must unlock some day. Not more, as salt-api refuses
# all while LDAP or PAM is down.
REFUSED_PAUSE, LONGEST_PAUSE = 60.0, 300.0
# Bytes of the answer to a login, which lists what the user may do.
MAX_LOGIN = 1024 * 1024
LONGEST_TOKEN = 4096
# Seconds for giving a replaced token back.
GOODBYE = 1.0
# Its answers have other forms: it leaves full_return out, so each minion would seem to be down, and
# a user who may not run a function gets a sentence with status 200, as if the function returned it.
TORNADO = "it is rest_tornado; the pool needs rest_cherrypy there"


class Refused(Exception):
    """The master refused the user or the client; nothing was run."""


@dataclass(frozen=True)
class ApiToken:
    """
    :ivar until: monotonic seconds; it is not used any more from then on.
    :ivar replaced: when it took the place of one that the master did not take.
    """

    secret: Secret
    until: float
    replaced: float = float("-inf")

    @property
    def fresh(self) -> bool:
        return time.monotonic() < self.until

    @property
    def proven(self) -> bool:
        """Whether the one before it was refused lately, too: so it is not the token's fault."""
        return time.monotonic() - self.replaced < REFUSED_PAUSE


@dataclass(frozen=True)
class _Refusal:
    """A password that was refused; *pause* seconds later, at *until*, it is tried again."""

    password: Secret
    pause: float
    until: float


class Tokens:
    """Logs in at one master, once for all threads, and again when it must."""

    def __init__(self, endpoint: Endpoint, transport: Transport) -> None:
        self._endpoint, self._transport = endpoint, transport
        self._token: ApiToken | None = None
        self._lock = threading.Lock()
        self._refused: _Refusal | None = None
        self._known = False  # it has let us in before

    @property
    def current(self) -> ApiToken | None:
        """The token in use, if there is one that has not ended."""
        token = self._token
        return token if token is not None and token.fresh else None

    def get(self, deadline: Deadline, instead_of: ApiToken | None = None) -> ApiToken:
        """
        The token in use, or that of a new login.

        :param instead_of: a token that the master no longer takes. If another thread has replaced
            it already, the new one is returned.
        :raises Refused: wrong user or password.
        :raises NotSent: no login before *deadline*.
        """
        token = self.current
        if token is not None and token is not instead_of:
            return token
        if not self._lock.acquire(timeout=deadline.remaining()):
            raise NoTime("no login in time: another thread is waiting for one")
        try:
            token = self.current
            if token is not None and token is not instead_of:
                return token
            token = self.login(deadline)
            if instead_of is not None:
                token = replace(token, replaced=time.monotonic())
            self._token = token
        finally:
            self._lock.release()
        if instead_of is not None:
            # Perhaps it was good, and the user may not do this; then it would stay for hours.
            self.logout(instead_of, deadline.part(2, GOODBYE))
        return token

    def adopt(self, token: ApiToken) -> bool:
        """Use *token* from now on, unless there is one; return whether it is used."""
        with self._lock:
            if self.current is not None:
                return False
            self._token = token
            return True

    def login(self, deadline: Deadline) -> ApiToken:
        """A new token, which is not kept here. Raises as :meth:`get` does."""
        user, password = self._endpoint.username, self._password()
        payload = {"username": user, "password": password, "eauth": self._endpoint.eauth}
        begun, problem = time.monotonic(), ""
        try:
            if not self._known:
                self.greet(deadline)
            answer = self._transport.exchange(
                "POST", "/login", deadline.part(limit=LOGIN_LIMIT), payload, most=MAX_LOGIN
            )
        except Lost as exc:
            # A lost login does no harm. Perhaps salt-api works, but not the request port behind it.
            problem = f"salt-api answers no login: {exc}"
            if not (self._known or exc.slow or self._endpoint.url.startswith("https:")):
                problem += "; if it speaks TLS, write https://"
        if problem:
            raise NotSent(problem)
        if answer.status == 401:
            self._note_refusal(password, begun)
            raise Refused(f"login of {user} ({self._endpoint.eauth}) refused")
        if answer.status != 200:
            raise NotSent(f"login: {http(answer.status)}")
        token = read_token(answer, begun)
        if token is None:
            raise NotSent("login: the answer is not that of a salt-api")
        self._refused, self._known = None, True
        return token

    def greet(self, deadline: Deadline) -> int:
        """
        Ask salt-api what it is, before it gets a password.

        :return: the status of its answer.
        :raises NotSent: it is rest_tornado, or cannot be reached.
        :raises Lost: there is no whole answer.
        """
        answer = self._transport.exchange(
            "GET", "/", deadline.part(limit=LOGIN_LIMIT), most=MAX_LOGIN
        )
        if answer.status == 200 and is_tornado(answer):
            raise NotSent(TORNADO)
        return answer.status

    def _note_refusal(self, password: Secret, begun: float) -> None:
        """A login that began then was refused."""
        before, pause = self._refused, REFUSED_PAUSE
        if before is not None and before.password.same(password):
            if before.until > begun:
                return  # another thread's login, beside this one, was refused before
            pause = min(2 * before.pause, LONGEST_PAUSE)
        self._refused = _Refusal(password, pause, time.monotonic() + pause)

    def logout(self, token: ApiToken, deadline: Deadline) -> None:
        """Tell the master to forget *token*; if that fails, the token ends by itself one day."""
        try:
            self._transport.exchange("POST", "/logout", deadline, {}, token.secret, most=MAX_LOGIN)
        except (NotSent, Lost):
            log.debug("api_pool master=%s event=logout_failed", self._endpoint.name)

    def _password(self) -> Secret:
        password, problem = Secret(), ""
        try:
            password = self._endpoint.password.now()
        except BadConfiguration as exc:
            problem = str(exc)
        if problem:
            raise Refused(problem)
        refused = self._refused
        left = refused.until - time.monotonic() if refused is not None else 0.0
        if refused is not None and left > 0 and refused.password.same(password):
            raise Refused(
                f"login of {self._endpoint.username} ({self._endpoint.eauth}) refused; "
                f"tried again in {left:.0f} s"
            )
        return password


def read_token(answer: Answer, begun: float) -> ApiToken | None:
    """
    The token in the answer to a login; ``None`` if it cannot be used.

    :param begun: when the login began, monotonic seconds.
    """
    try:
        found = answer.returned()
        text, life = found["token"], float(found["expire"]) - float(found["start"])
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TOKEN:
        return None
    # It goes into a header.
    if not (text.isascii() and text.isprintable() and math.isfinite(life) and life > 0):
        return None
    # By the length of its life: the master's clock may be wrong, or ours.
    return ApiToken(Secret(text), begun + life - min(MARGIN, life / 10))


def is_tornado(answer: Answer) -> bool:
    """Whether the answer to ``GET /`` is that of rest_tornado, which alone has no client wheel."""
    try:
        found = answer.json()
    except ValueError:
        return False
    clients = found.get("clients") if isinstance(found, dict) else None
    return isinstance(clients, list) and "local" in clients and "wheel" not in clients


MEANINGS = {
    403: " (this address is not allowed: rest_cherrypy: authorized_ips)",
    404: " (no salt-api there?)",
    429: " (a proxy before it limits calls)",
    503: " (salt-master does not answer)",
}


def http(status: int) -> str:
    """A status of salt-api, and what it means, where that is known."""
    return f"HTTP {status}{MEANINGS.get(status, '')}"
