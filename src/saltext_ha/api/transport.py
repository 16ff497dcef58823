"""
One request to one salt-api, and what is certain about it when it fails.

:class:`NotSent`: the connection never came to be, so no byte of the request left this machine.
:class:`Lost`: the request was sent, or may have been; the answer is not here.

It follows no redirects, keeps no cookies, and uses no proxies and no ``.netrc``; a token goes only
to the host that gave it. Whatever the server answers, the result is one of these two errors or an
:class:`Answer`, and comes before the deadline.

Passwords and tokens are always in :class:`Secret`. No exception leaves this module with frames in
which a request was put together.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import deque
from typing import Any

from saltext_ha.api.answer import MAX_BODY, Answer
from saltext_ha.api.config import Secret
from saltext_ha.api.connection import FAULTS, ApiConnection, described, encoded, read
from saltext_ha.api.deadline import Deadline

# Connections kept for reuse; more than that are opened when more threads call at once.
CONNECTIONS = 64
# Seconds for which one is kept: salt-api closes one that was idle for ten, and what is sent just
# then is lost.
KEPT = 5.0


class NotSent(Exception):
    """The request was certainly not carried out."""


class NoTime(NotSent):
    """Nor was the server asked anything: there was no time left. This says nothing about it."""


class Lost(Exception):
    """
    The request may have been carried out.

    :ivar finished: the server has ended its work on it: it answered, with an error.
    :ivar slow: there was no answer in time, which need not mean that anything is broken.
    :ivar nonsense: it answered what no salt-api answers; a login may work nevertheless.
    """

    def __init__(
        self, reason: str, finished: bool = False, slow: bool = False, nonsense: bool = False
    ) -> None:
        super().__init__(reason)
        self.finished, self.slow, self.nonsense = finished, slow, nonsense


class Transport:
    """Requests to the salt-api at *url*; for any number of threads."""

    def __init__(self, url: str, verify: bool | str = True) -> None:
        self.url, self.verify = url, verify
        # Each with the time at which it became idle; the last one is the latest.
        self._idle: deque[tuple[ApiConnection, float]] = deque()
        self._closed = False

    def exchange(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        payload: Any = None,
        token: Secret | None = None,
        most: int = MAX_BODY,
    ) -> Answer:
        """
        Send one request and read the whole answer before *deadline*.

        :param payload: sent as JSON; a :class:`Secret` in it is sent as its text.
        :param token: sent as ``X-Auth-Token``.
        :param most: bytes that the answer may have.
        :raises NotSent: nothing reached the server. NoTime: nor was it tried.
        :raises Lost: it may have.
        :raises BadConfiguration: JSON cannot express *payload*.
        """
        limit = deadline.remaining()
        if limit <= 0:
            raise NoTime("no time left")
        data = None if payload is None else encoded(payload)
        connection, problem = self._connected(deadline)
        if problem:
            raise NotSent(problem)
        answer: Answer | None = None
        # Raised again outside of the handler: the frames of http.client's exceptions hold the
        # request, and error reporters would find it in __context__.
        response, slow, again = None, False, False
        try:
            response = connection.ask(method, path, data, token, deadline)
            private = response.getheader("Cache-Control") == "private"
            answer = Answer(response.status, read(response, most), private)
            # Whether the next thing on the connection is the answer to the next request.
            again = not self._closed and response.isclosed() and not response.will_close
            again = again and response.status >= 200
        except FAULTS as exc:
            problem, slow = described(exc), isinstance(exc, TimeoutError)
        except BaseException as exc:
            _forget(exc)
            raise
        finally:
            if response is not None:
                response.close()
            if not again:
                connection.close()
        if answer is None:
            whole = "complete " if response else ""
            raise Lost(f"no {whole}answer within {limit:.1f} s" if slow else problem, slow=slow)
        if again and len(self._idle) < CONNECTIONS:
            self._keep(connection)
        else:
            connection.close()
        return answer

    def _keep(self, connection: ApiConnection) -> None:
        """Keep *connection* for reuse, and close those that nobody has used for too long."""
        now = time.monotonic()
        self._idle.append((connection, now))
        with contextlib.suppress(IndexError):
            while now - self._idle[0][1] >= KEPT:
                self._idle.popleft()[0].close()

    def _connected(self, deadline: Deadline) -> tuple[ApiConnection, str]:
        """A connection, and why it is not open; empty if it is."""
        with contextlib.suppress(IndexError):
            while True:
                connection, since = self._idle.pop()
                if time.monotonic() - since < KEPT and connection.usable:
                    return connection, ""
                connection.close()
        connection, problem = ApiConnection(self.url, self.verify), ""
        try:
            connection.open(deadline)
        except TimeoutError:
            problem = "cannot be connected to: no answer"
        except FAULTS as exc:
            problem = described(exc)
        if problem:
            connection.close()
        return connection, problem

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop()[0].close()


def _forget(exc: BaseException) -> None:
    """Clear the frames of *exc* and of the exceptions before it: they hold the request."""
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__
