"""Looks at files from an event loop, and does not wait for a file system that hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any, TypeVar

from saltext_ha.common.disk_work import goes_on
from saltext_ha.common.errors import TrustError, reason_of
from saltext_ha.common.fail_points import point

T = TypeVar("T")

HANGS_AFTER = 1.0  # seconds
HANGS = "the file system does not respond"


class Looks:
    """
    Short looks at one file system, in a thread of their own.

    The first caller of a look that hangs waits :data:`HANGS_AFTER` seconds; the next callers do not
    wait, until that look has ended.
    """

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ha-look")
        self._one_at_a_time = threading.Lock()
        self._hangs: Future[Any] | None = None

    def __call__(self, look: Callable[[], T]) -> T:
        """
        The result of *look*, which begins now.

        :raises TimeoutError: it hangs, or another one does. :raises OSError: as *look* itself, or
            there is no thread for it.
        """
        with self._one_at_a_time:
            if self.hang:
                raise TimeoutError(HANGS)
            try:
                found = self._worker.submit(_begun, look)
            except RuntimeError as exc:
                raise OSError(f"cannot be looked at: {exc}") from None
            try:
                return found.result(HANGS_AFTER)
            except NotYet:
                if found.done():  # at the last moment, or the look itself timed out
                    return found.result()
                self._hangs = found
                raise TimeoutError(HANGS) from None
            finally:
                del found  # it refers to an error, and the error to this frame

    @contextlib.contextmanager
    def writing_into(self, folder: Path) -> Iterator[None]:
        """
        :raises TrustError: instead of an OSError of work that writes into *folder*; and before it
            if the file system hangs.
        """
        goes_on()
        try:
            self(lambda: None)
            yield
        except OSError as exc:
            raise TrustError(f"{folder}: cannot be written: {reason_of(exc)}") from exc

    @property
    def hang(self) -> bool:
        """Whether a look hangs at present."""
        return self._hangs is not None and not self._hangs.done()

    def close(self) -> None:
        """End the thread; later looks fail."""
        self._worker.shutdown(wait=not self.hang)


def _begun(look: Callable[[], T]) -> T:
    point("state.look")
    return look()
