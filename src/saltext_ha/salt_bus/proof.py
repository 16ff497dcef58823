"""
The proof that this master's engine fired an event: a keyed hash that no minion can make.

An accepted minion can make Salt fire any event, under any tag, with any data: an event alone proves
nothing. The key is in the state folder, which only the user of salt-master can read. The hash is
bound to the tag, to all data and to the time, so that a copy of an old event is invalid after a
while.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common import files

log = logging.getLogger(__name__)

KEY_FILE = "events.key"
KEY_BYTES = 32
GOOD_FOR = 600.0
"""Seconds for which an event is believed, and by which the clock may be set back meanwhile."""
FIRED, PROOF = "fired", "proof"
# Fields that Salt and its tracing add to any event, besides those that begin with "_".
OF_SALT = {PROOF, "traceparent", "tracestate", "baggage", "proxy_target"}


def read_key(state_dir: Path) -> bytes:
    """
    The key of the engine with that state folder.

    :raises OSError: there is none, or it is unreadable. :raises ValueError: it is damaged.
    """
    key = files.read_plain(state_dir / KEY_FILE)
    if len(key) != KEY_BYTES:
        raise ValueError(f"{state_dir / KEY_FILE}: has {len(key)} bytes instead of {KEY_BYTES}")
    return key


def key_of(state_dir: Path) -> bytes:
    """
    The same for the engine itself; a missing or damaged key is replaced.

    :raises OSError: it cannot be written.
    """
    try:
        return read_key(state_dir)
    except FileNotFoundError:
        files.create_whole(state_dir / KEY_FILE, secrets.token_bytes(KEY_BYTES))
    except ValueError:
        files.write_whole(state_dir / KEY_FILE, secrets.token_bytes(KEY_BYTES))
    return read_key(state_dir)


@functools.lru_cache(maxsize=1)
def unreadable(reason: str) -> None:
    """
    Log once that events cannot be checked, not for each event. Call ``unreadable.cache_clear()``
    when they can be checked again. It is in this module because Salt's loader may reload its own.
    """
    log.error("ha.genuine: no event counts as the engine's own: %s", reason)


class Proofs:
    """
    Marks events as this master's own, and recognises them.

    :param clock: Unix time.
    """

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock

    def mark(self, tag: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """*data* with :data:`FIRED` and :data:`PROOF`, to be fired under *tag* now."""
        found = {**data, FIRED: round(self._clock(), 3)}
        return {**found, PROOF: self._hash(tag, found)}

    def is_ours(self, tag: Any, data: Any) -> bool:
        """Whether this master's engine has fired *data* under *tag* lately."""
        if not isinstance(data, Mapping) or not isinstance(tag, str):
            return False
        proof, fired = data.get(PROOF), data.get(FIRED)
        if not isinstance(proof, str) or not isinstance(fired, (int, float)):
            return False
        try:
            expected = self._hash(tag, data)
        except (TypeError, ValueError, RecursionError):
            return False  # our own events can be encoded
        same = hmac.compare_digest(expected.encode(), proof.encode(errors="replace"))
        return same and abs(self._clock() - fired) <= GOOD_FOR

    def _hash(self, tag: str, data: Mapping[str, Any]) -> str:
        said = {
            name: value
            for name, value in data.items()
            if name not in OF_SALT and not str(name).startswith("_")
        }
        text = json.dumps([tag, said], sort_keys=True, separators=(",", ":"))
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
