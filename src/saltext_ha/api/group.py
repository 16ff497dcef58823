"""Asks the group which masters reach its minions."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from saltext_ha.api.answer import are_names
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import CallFailed
from saltext_ha.api.master import MasterApi
from saltext_ha.api.tokens import Refused
from saltext_ha.api.transport import Lost, NotSent

log = logging.getLogger(__name__)

FUNCTION = "ha.where"
# Seconds that finding out may take: a runner is a process on the master, and it may ping.
LIMIT = 20.0
# Seconds for which an answer is good.
LASTS = 10.0
# Seconds until masters are asked again: those that could not tell (no right, no saltext-ha); those
# that did not answer.
PAUSE, SHORT_PAUSE = 60.0, 10.0
MOST_KEPT = 64
# Questions at once: each is a process on a master, and fifty threads may begin together.
AT_ONCE = 4
# The globs that ha.where takes; for other targets the question is about all minions.
GLOB = re.compile(r"(?!.@)(?!(.*\*){5})[\w.*?\[\]!@:+-]{1,256}", re.ASCII)


class Reached(dict[str, tuple[str, ...]]):
    """
    Minion → the masters that reach it, by their names in this pool.

    :ivar unasked: masters, by their names in the group, that no answering master could ask: they
        may reach minions that no master is known to reach.
    :ivar elsewhere: minions that are reached, but only by masters that have no name in this pool.
    """

    def __init__(
        self,
        found: Mapping[str, tuple[str, ...]] | None = None,
        unasked: Iterable[str] = (),
        elsewhere: Iterable[str] = (),
    ) -> None:
        super().__init__(found or {})
        self.unasked, self.elsewhere = frozenset(unasked), frozenset(elsewhere)

    def perhaps_elsewhere(self, minion: str) -> bool:
        """Whether only a master may reach *minion* that was not asked or is not in this pool."""
        return not self.get(minion) and (bool(self.unasked) or minion in self.elsewhere)


class GroupLocator:
    """
    Asks masters by ``ha.where`` which of them reaches a minion. The pool works without it, too:
    where the user may not ask, or masters have no saltext-ha, nothing is known.

    :param masters: by their names in this pool.
    """

    def __init__(self, masters: Mapping[str, MasterApi]) -> None:
        self._masters = masters
        # Its name in the group → its name here.
        self._names: dict[str, str] = {}
        self._kept: dict[str, tuple[float, Reached | None]] = {}
        self._silent: dict[str, float] = {}
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def forget(self) -> None:
        """Forget the kept answers: they turned out to be old."""
        with self._lock:
            self._kept.clear()

    def reached(
        self,
        order: Sequence[MasterApi],
        tgt: str | list[str],
        tgt_type: str,
        deadline: Deadline,
        live: bool = False,
    ) -> Reached | None:
        """
        Minion → the masters that reach it (names in this pool), for minions that not every master
        reaches. If the target is neither a glob nor a list, it is about all minions.

        :param live: ping the minions now.
        :return: None if no master tells.
        """
        if len(self._masters) == 1:
            return None
        question: dict[str, Any] = {"tgt": "*"}
        if tgt_type == "list":
            question = {"tgt": tgt.split(",") if isinstance(tgt, str) else list(tgt)}
        elif tgt_type == "glob" and isinstance(tgt, str) and GLOB.fullmatch(tgt):
            question = {"tgt": tgt}
        if live:
            question["live"] = True
        key = repr(question)
        fresh, kept = self._known(key)
        if fresh and not live:
            return kept
        deadline = deadline.part(4, LIMIT)  # what is left is for the job
        if not self._turns.acquire(timeout=deadline.remaining()):
            return None if live else kept
        try:
            fresh, kept = self._known(key)
            if fresh and not live:
                return kept  # another thread has asked meanwhile
            return self._find(order, key, question, deadline, kept)
        finally:
            self._turns.release()

    def _known(self, key: str) -> tuple[bool, Reached | None]:
        with self._lock:
            at, kept = self._kept.get(key, (float("-inf"), None))
        return time.monotonic() - at < LASTS, kept

    def _find(
        self,
        order: Sequence[MasterApi],
        key: str,
        question: Mapping[str, Any],
        deadline: Deadline,
        kept: Reached | None,
    ) -> Reached | None:
        live = "live" in question
        told = self._ask_any(order, question, deadline)
        if told is None:
            return None if live else kept  # what was true a while ago is better than nothing
        minions = self._in_our_names(*told, deadline)
        if not live:
            with self._lock:
                self._kept.pop(key, None)
                self._kept[key] = (time.monotonic(), minions)
                for old in list(self._kept)[:-MOST_KEPT]:
                    del self._kept[old]
        return minions

    def _in_our_names(
        self, found: Mapping[str, Collection[str]], unasked: Iterable[str], deadline: Deadline
    ) -> Reached:
        if {name for by in found.values() for name in by} - self._names.keys():
            named = set(self._names.values())
            for name, master in self._masters.items():
                if name not in named and master.health.usable:
                    self._ask(master, {"tgt": []}, deadline)
        ours = {
            minion: tuple(self._names[name] for name in by if name in self._names)
            for minion, by in found.items()
        }
        # Of masters that are not in this pool, or that have never answered it, it knows no name.
        elsewhere = [minion for minion, by in found.items() if by and not ours[minion]]
        return Reached(ours, unasked, elsewhere)

    def _ask_any(
        self, order: Iterable[MasterApi], question: Mapping[str, Any], deadline: Deadline
    ) -> tuple[Mapping[str, Collection[str]], frozenset[str]] | None:
        """
        Minion → the masters that reach it, and the masters that could not be asked: from the first
        master that could ask all others, or else from several together.
        """
        found: dict[str, set[str]] = {}
        unasked: frozenset[str] | None = None
        for master in order:
            if unasked is not None and deadline.passed:
                break
            answer = self._ask(master, question, deadline)
            if answer is None:
                continue
            unknown = frozenset(answer["unknown"])
            if not unknown:
                return answer["minions"], unknown
            # It names every minion: for it, no minion is reached by a master that it could not ask.
            for minion, by in answer["minions"].items():
                found.setdefault(minion, set()).update(by)
            unasked = unknown if unasked is None else unasked & unknown
            if not unasked:
                break
        return None if unasked is None else ({m: sorted(by) for m, by in found.items()}, unasked)

    def _ask(
        self, master: MasterApi, question: Mapping[str, Any], deadline: Deadline
    ) -> dict[str, Any] | None:
        if master.doubted or time.monotonic() < self._silent.get(master.name, float("-inf")):
            return None
        low = {"client": "runner", "fun": FUNCTION, "kwarg": dict(question), "full_return": True}
        try:
            told = master.call(low, deadline)["data"]["return"]
        except (NotSent, Lost) as exc:
            if isinstance(exc, Lost) and not exc.nonsense:
                master.doubt()
            self._be_silent(master, str(exc), SHORT_PAUSE)
            return None
        except (Refused, CallFailed) as exc:
            self._be_silent(master, str(exc))
            return None
        if not _is_answer(told):
            error = told.get("error") if isinstance(told, dict) else told
            self._be_silent(master, str(error)[:200])
            return None
        with self._lock:
            self._names[told["self"]] = master.name
        return dict(told)

    def _be_silent(self, master: MasterApi, reason: str, seconds: float = PAUSE) -> None:
        self._silent[master.name] = time.monotonic() + seconds
        log.info("api_pool master=%s event=where_unknown reason=%r", master.name, reason)


def _is_answer(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and told.get("kind") == "where"
        and isinstance(told.get("self"), str)
        and isinstance(told.get("minions"), dict)
        and isinstance(told.get("unknown"), dict)
        and all(map(are_names, told["minions"].values()))
    )
