"""
Which minions this master has heard, when, and by which evidence.

The evidence comes from Salt's event bus: a publisher does not know its subscribers. There are two
kinds. *Sure*: only the daemon of a minion that is bound to this master causes it (returns of jobs
published here, start events, beacons, reports of our watchdog). *Likely*: the id authenticated or
sent something here, as ``salt-call`` does too, perhaps at another master than the daemon's; or Salt
has seen a connection from its address.

Kept in memory only: after a restart of the engine a minion is unknown until it is heard again. An
accepted minion can invent ids in what it sends; the number of ids without a known key is limited,
and they never displace a minion that has one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.common.validators import is_number
from saltext_ha.keystore.minion_key import is_id
from saltext_ha.salt_bus.intake import FROM_MINION, FROM_PEER
from saltext_ha.transport import wire

SURE = ("job", "schedule", "start", "watchdog", "failover", "beacon")
LIKELY = ("auth", "return", "event", "presence")
TYPES = ("str", "list", "failover", "distributed", "func", "disable")

FRESH = 900.0
"""Seconds for which evidence counts, if the minion did not say when it reports again."""
LONGEST = 86400.0  # seconds between two reports
MOST_LASTING = 7200.0
"""Seconds for which evidence counts at most, even if the minion says more."""
MAX_IDS = 100_000
MAX_STRANGERS = 10_000
"""Ids for which it is unknown whether they have an accepted key; more than start at once."""
MAX_JOBS = 5_000
LONGEST_JID = 40
MAX_OF = 1_000
MAX_ADDRESSES = 8


class Sight(NamedTuple):
    """
    One master's knowledge of one minion. Ages are in seconds, None: never.

    ``type`` and ``of`` are the minion's own statements: its ``master_type`` (``list``: bound to
    several at once) and how many masters it is configured with. ``lasts``: for how long evidence
    counts.
    """

    sure: float | None = None
    sure_by: str = ""
    likely: float | None = None
    likely_by: str = ""
    type: str = ""
    of: int = 0
    lasts: float = FRESH

    def to_wire(self) -> list[Any]:
        """The fields in their order."""
        return [*self._replace(sure=_short(self.sure), likely=_short(self.likely))]

    @classmethod
    def from_wire(cls, raw: Any) -> Sight:
        """A peer's knowledge of one minion. :raises InvalidRecord: it makes no sense."""
        try:
            sure, sure_by, likely, likely_by, kind, of, lasts = wire.row(
                raw, "sight", *[object] * 7
            )
            lasting = min(_age(lasts) or 0.0, MOST_LASTING)
            sight = cls(_age(sure), sure_by, _age(likely), likely_by, kind, of, lasting)
        except (TypeError, ValueError) as exc:
            raise InvalidRecord(f"malformed sight of a minion: {exc}") from None
        known = (
            (sight.sure is None or sure_by in SURE)
            and (sight.likely is None or likely_by in LIKELY)
            and (kind == "" or kind in TYPES)
            and type(of) is int
            and 0 <= of <= MAX_OF
        )
        if not known:
            raise InvalidRecord("malformed sight of a minion")
        return sight


class _Trace:
    __slots__ = ("lasts", "likely_at", "likely_by", "of", "sure_at", "sure_by", "type")

    def __init__(self) -> None:
        self.sure_at: float | None = None
        self.likely_at: float | None = None
        self.sure_by = self.likely_by = self.type = ""
        self.of, self.lasts = 0, FRESH

    def seen(self, now: float) -> Sight:
        sure, likely = (None if at is None else now - at for at in (self.sure_at, self.likely_at))
        return Sight(sure, self.sure_by, likely, self.likely_by, self.type, self.of, self.lasts)


class Presence:
    """
    Remembers the evidence of minions from the events of this master's bus; any thread may use it.

    :param ours: whether an address and a request port, as a minion sees them, are this master's.
    """

    def __init__(
        self,
        ours: Callable[[str, int], bool] = lambda address, port: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ours, self._clock = ours, clock
        self.since = clock()
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._strangers: OrderedDict[str, _Trace] = OrderedDict()
        self._new: set[str] = set()
        self._jobs: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def listening(self) -> float:
        """Seconds since it began to listen."""
        return self._clock() - self.since

    def __call__(self, tag: str, data: Any) -> None:
        # In Salt's own cluster the bus also carries events of the other members.
        if not isinstance(data, Mapping) or data.get(FROM_PEER):
            return
        parts = tag.split("/")
        with self._lock:
            match parts:
                case ["salt", "job", jid, "new"] if len(jid) <= LONGEST_JID:
                    _remember(self._jobs, jid, None, MAX_JOBS)
                case ["salt", "job", jid, "ret", minion_id] if data.get("id") == minion_id:
                    self._returned(jid, minion_id, data)
                case ["salt", "presence", "present"] if isinstance(data.get("present"), list):
                    # Salt compares addresses of connections with cached grains. Minions behind one
                    # router, or old grains, look present as well.
                    for minion_id in data["present"]:
                        self._likely(minion_id, "presence")
                case ["salt", "auth"] if data.get("act") == "accept":
                    self._likely(data.get("id"), "auth")
                case ["salt", "beacon", minion_id, *_] if data.get("id", minion_id) == minion_id:
                    self._sure(minion_id, "beacon")
                case _ if data.get("cmd") == FROM_MINION:
                    self._sent(parts, data)

    def _returned(self, jid: str, minion_id: str, data: Mapping[str, Any]) -> None:
        if jid not in self._jobs:
            # From salt-call, or published by another master.
            if data.get("schedule"):
                self._sure(minion_id, "schedule")
            else:
                self._likely(minion_id, "return")
            return
        self._sure(minion_id, "job")
        answer = data.get("return")
        if data.get("fun") == "ha.current_master" and isinstance(answer, Mapping):
            masters = answer.get("masters")
            of = len(masters) if type(masters) is list else 0
            self._describe(minion_id, answer.get("type"), of)

    def _sent(self, parts: list[str], data: Mapping[str, Any]) -> None:
        """
        Take in an event that a minion fired.

        Salt adds the id to the data of a single event, but fires events of a list unchanged. So an
        accepted minion can speak for another one: use this only to locate minions.
        """
        minion_id = data.get("id")
        match parts:
            case ["salt", "minion", named, "start"] if named == minion_id:
                self._sure(minion_id, "start")
                self._describe(minion_id, "", 0)  # its configuration may have changed
            case ["salt", "ha", "minion", named, "failover"] if named == minion_id:
                self._sure(minion_id, "failover")
            case ["salt", "ha", "minion", named, "bound"] if named == minion_id:
                self._reported(named, data.get("data"))
            case _:
                self._likely(minion_id, "event")

    def _reported(self, minion_id: str, report: Any) -> None:
        if not isinstance(report, Mapping):
            return
        kind, addresses, port = (report.get(key) for key in ("type", "addresses", "port"))
        some = addresses[:MAX_ADDRESSES] if isinstance(addresses, list) else []
        # A minion that is bound to several masters sends events about one to all of them.
        if kind != "list" or any(
            isinstance(address, str) and type(port) is int and self._ours(address, port)
            for address in some
        ):
            self._sure(minion_id, "watchdog")
        else:
            self._likely(minion_id, "event")
        of, every = report.get("of"), report.get("every")
        self._describe(minion_id, kind, of if type(of) is int else 0)
        trace = self._known(minion_id)
        if trace and isinstance(every, (int, float)) and 0 < every <= LONGEST:
            trace.lasts = min(2.0 * every + 60, MOST_LASTING)

    def _describe(self, minion_id: str, kind: Any, of: int) -> None:
        trace = self._known(minion_id)
        if trace and (kind in TYPES or kind == "") and 0 <= of <= MAX_OF:
            trace.type, trace.of = kind, of

    def _sure(self, minion_id: Any, by: str) -> None:
        if trace := self._trace(minion_id):
            trace.sure_at, trace.sure_by = self._clock(), by

    def _likely(self, minion_id: Any, by: str) -> None:
        if trace := self._trace(minion_id):
            trace.likely_at, trace.likely_by = self._clock(), by

    def _trace(self, minion_id: Any) -> _Trace | None:
        if not isinstance(minion_id, str):
            return None
        if trace := self._traces.get(minion_id):
            self._traces.move_to_end(minion_id)
            return trace
        trace = self._strangers.get(minion_id)
        if trace is None and not is_id(minion_id):
            return None
        if trace is None:
            trace = _Trace()
            self._new.add(minion_id)
        self._new.discard(_remember(self._strangers, minion_id, trace, MAX_STRANGERS))
        return trace

    def _known(self, minion_id: str) -> _Trace | None:
        return self._traces.get(minion_id) or self._strangers.get(minion_id)

    def hot(self, answered: Mapping[str, int]) -> None:
        """Note minions that answered several masters at once; what they say of themselves wins."""
        with self._lock:
            for minion_id, of in answered.items():
                trace = self._known(minion_id)
                if trace and not trace.type:
                    self._describe(minion_id, "list", of)

    def newcomers(self) -> list[str]:
        """The ids that were heard for the first time since the last call."""
        with self._lock:
            new, self._new = sorted(self._new), set()
        return new

    def accept(self, ids: Iterable[str]) -> None:
        """Note that *ids* have an accepted key."""
        with self._lock:
            for minion_id in ids:
                if trace := self._strangers.pop(minion_id, None):
                    self._new.discard(minion_id)
                    _remember(self._traces, minion_id, trace, MAX_IDS)

    def sights(self, ids: Iterable[str]) -> dict[str, Sight]:
        """The sights of those of *ids* that were ever heard."""
        now = self._clock()
        with self._lock:
            return {i: trace.seen(now) for i in ids if (trace := self._known(i))}


def _remember(known: OrderedDict[str, Any], key: str, value: Any, most: int) -> str:
    """Put *key* last; if there are too many, remove and return the oldest."""
    known[key] = value
    known.move_to_end(key)
    return known.popitem(last=False)[0] if len(known) > most else ""


def _short(age: float | None) -> float | None:
    return None if age is None else round(age, 1)


def _age(value: Any) -> float | None:
    if value is None:
        return None
    if not is_number(value):
        raise ValueError("an age is not a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError("an age is not a number of seconds")
    return float(value)
