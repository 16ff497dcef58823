"""
Salt's reactor on this master: whether it may react, and which events it hears.

The reactor has a switch, which an event with the key of this master sets (Salt's own runner
``reactor.set_leader`` fires it); after each start of salt-master it is on again. A bus gives all
listeners the same events in the same order. So this module listens beside the reactor, and knows
for each event whether the switch was on when the reactor heard it.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import salt.payload
import salt.utils.event
import salt.utils.yaml
import yaml

from saltext_ha.common.beat import rest
from saltext_ha.salt_bus.intake import HEARD

log = logging.getLogger(__name__)

MANAGE = "salt/reactors/manage"
SET, ASK, VALUE = f"{MANAGE}/set_leader", f"{MANAGE}/is_leader", f"{MANAGE}/leader/value"
OF_REACTOR = "Reactor"
"""The user in events of what the reactor itself runs; it does not react to them."""
TURN = 0.5
AGAIN = 2.0  # seconds after which a reactor that has not answered is told again
MOST_EARLY = 10_000
MOST_UNREAD = 100
"""After so many unreadable events in a row the bus itself counts as broken."""

Heard = Callable[[str, Mapping[str, Any], float, bool], None]


def patterns(opts: Mapping[str, Any]) -> list[str]:
    """The tags (globs) of ``reactor:`` in *opts*."""
    entries = opts.get("reactor") or []
    if isinstance(entries, str):  # the path of a file that has them, on 3008
        try:
            # By Salt's own loader: PyYAML's refuses tabs that libyaml takes.
            entries = salt.utils.yaml.safe_load(Path(entries).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as exc:
            log.error("ha reactor: reactor: %s cannot be read: %s", opts["reactor"], exc)
            return []
    found = entries if isinstance(entries, list) else []
    return [str(next(iter(each))) for each in found if isinstance(each, Mapping) and len(each) == 1]


class Reactor:
    """
    The reactor of the master with *opts*.

    :param fire: puts an event on this master's bus, by tag and data.
    :ivar heard: called in a thread for each event that a reactor is configured for, with tag, data,
        when (``time.monotonic``), and whether the reactor reacted to it.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        fire: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._opts, self._fire = dict(opts), fire
        self.heard: Heard = lambda tag, data, at, reacted: None
        found = patterns(opts)
        self.configured = bool(found)
        self._match = re.compile("|".join(map(fnmatch.translate, found)) or r"(?!)").match
        self._key = ""
        self._on: bool | None = None
        """Whether its switch is on, after the events read so far; None: not known yet."""
        self._answered: bool | None = None
        """Its last answer about its switch; None: none since it was started or told."""
        self._told: bool | None = None
        """What was last fired for its switch; later events reach the reactor after it."""
        self._early: list[tuple[str, Mapping[str, Any], float]] = []
        self._children: set[str] = set()
        self.wanted = False
        self._over = threading.Event()

    @property
    def reacts(self) -> bool | None:
        """Whether it will react to an event that is fired now; None: it has not said so yet."""
        return None if self._answered is None else self._on and self._told is not False

    def matches(self, tag: str) -> bool:
        """Whether a reactor is configured for *tag*."""
        return self._match(tag) is not None

    # -- the switch

    async def run(self) -> None:
        """Keep the switch as :attr:`wanted` says, until cancelled."""
        if not self.configured:
            return
        threading.Thread(target=self._listen, name="ha-reactor", daemon=True).start()
        tried, at = None, float("-inf")
        try:
            while True:
                if self._new_processes():
                    self._answered = None  # the reactor may be one of them; its switch is on then
                told = self.wanted if self._told is None else self._told
                wrong = any(each is not self.wanted for each in (self._on, self._answered, told))
                due = time.monotonic() - at >= AGAIN
                if wrong and (due or tried is not self.wanted):
                    tried, at = self.wanted, time.monotonic()
                    self._tell()
                await rest(TURN / 5 if wrong else TURN)
        finally:
            self._over.set()

    def _tell(self) -> None:
        # Not at the top: it loads Salt's pillar, minion and templates.
        import salt.utils.master

        self._key = self._key or salt.utils.master.get_master_key("root", self._opts)
        if self._on is None:
            self._fire(ASK, {"key": self._key})
        else:
            self._told = self.wanted
            mine = {"id": self._opts["id"], "value": self.wanted, "key": self._key}
            self._fire(SET, mine)

    def _new_processes(self) -> bool:
        """Whether salt-master has started a process since the last call."""
        parent = os.getppid()
        try:
            now = set(Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
        except OSError:
            return False
        new, self._children = now - self._children, now
        return bool(new)

    # -- listening

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                with salt.utils.event.get_event(
                    "master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=True
                ) as bus:
                    self._follow(bus)
            except Exception:
                log.debug("ha reactor: the event bus is lost", exc_info=True)
                self._over.wait(1.0)

    def _follow(self, bus: Any) -> None:
        failed = 0
        while not self._over.is_set():
            try:
                event = bus.get_event(wait=1, tag="", full=True, auto_reconnect=True)
            except Exception:
                # Any minion can make an unreadable event; the next ones must not be lost.
                failed += 1
                if failed > MOST_UNREAD:
                    raise
                continue
            failed = 0
            if event:
                self.take(event.get("tag"), event.get("data"))

    def take(self, tag: Any, data: Any) -> None:
        """Take in an event."""
        if not isinstance(tag, str) or not isinstance(data, Mapping):
            return
        if MANAGE in tag:
            self._managed(tag, data)
        elif self.matches(tag) and HEARD not in data and data.get("user") != OF_REACTOR:
            at = time.monotonic()
            if self._on is not None:
                self.heard(tag, data, at, self._on)
            elif len(self._early) < MOST_EARLY:
                self._early.append((tag, data, at))

    def _managed(self, tag: str, data: Mapping[str, Any]) -> None:
        value = data.get("value")
        if tag.endswith(SET) and data.get("id") == self._opts["id"]:
            if self._key and data.get("key") == self._key and isinstance(value, bool):
                self._begin(value if self._on is None else self._on)
                self._on = value
        elif tag == VALUE and isinstance(data.get("result"), bool):
            self._answered = data["result"]
            self._begin(data["result"])

    def _begin(self, on: bool) -> None:
        """Note that the switch is *on*, and has been since the thread began to listen."""
        if self._on is None:
            self._on = on
            early, self._early = self._early, []
            for tag, data, at in early:
                self.heard(tag, data, at, on)


def pack(data: Mapping[str, Any]) -> bytes:
    """The data of an event, packed for another master."""
    packed: bytes = salt.payload.dumps(dict(data), use_bin_type=True)
    return packed


def unpack(packed: bytes) -> dict[str, Any]:
    """
    The inverse of :func:`pack`.

    :raises ValueError: it is no event.
    """
    try:
        data = salt.payload.loads(packed, encoding="utf-8")
    except Exception as exc:  # of msgpack and of Salt, of many kinds
        raise ValueError(f"no event: {exc!r:.100}") from None
    if not isinstance(data, dict):
        raise ValueError("no event: a map was expected")
    return data
