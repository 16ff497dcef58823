"""
The only jobs that one master of the group may ask another one to publish.

A spec names one of :data:`FUNCTIONS`, and minions by a plain glob or by their ids; a peer can
choose neither other functions nor arguments. The minions' answers are reduced to what the commands
need. Only an operator's command (``ha.cmd``, :class:`CommandSpec`) can be any job; a master takes
no commands from peers if its configuration has ``ha: commands: False``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.minions import reports
from saltext_ha.replica.history import sqlite_glob
from saltext_ha.salt_bus.intake import DEEPEST, TOO_MUCH
from saltext_ha.transport import wire

PING, WHERE, MOVE, REPORT, CMD = "ping", "where", "move", "report", "cmd"
RUNNING, REFRESH, MINE = "running", "refresh", "mine"
# One function each: while a job with a list of functions runs, no state begins on that minion
# (saltutil.is_running, 3006 to 3008).
FUNCTIONS: Mapping[str, str] = {
    PING: "test.ping",
    WHERE: "ha.current_master",
    MOVE: "ha.failover",
    REPORT: reports.FUNCTION,
    RUNNING: "saltutil.running",
    REFRESH: "saltutil.refresh_pillar",
    MINE: "mine.update",
}

LISTENING = {"saltext-ha": "asks minions that listen to this master"}
"""
Metadata of questions that every master asks: a minion that does not listen to this master is asked
by the one that it listens to.
"""

IDS = ("glob", "list", "pcre")
TARGETS = (*IDS, "compound", "grain", "grain_pcre", "pillar", "pillar_pcre", "ipcidr", "nodegroup")

MAX_IDS = 1_000
MAX_TEXT = 300
MAX_JOBS = 100
LONGEST = 300.0
FUNCTION = re.compile(r"[A-Za-z_]\w{0,99}\.[A-Za-z_]\w{0,99}", re.ASCII)
JID = re.compile(r"[0-9]{20}")
GLOB = re.compile(r"(?![A-Z]@)[\w.*?\[\]!@:+-]+")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}(:[0-9]{1,5})?")
SIX = re.compile(r"\[([0-9A-Fa-f:.]+)\](:[0-9]{1,5})?|([0-9A-Fa-f:.]+)")
_ANSWERS = {
    WHERE: ("address", "masters", "type", "connected", "version", "note"),
    MOVE: ("from", "to", "result", "comment"),
}


@dataclass(frozen=True)
class JobSpec:
    """
    A job for the minions that match ``glob``, or for those of ``ids``.

    ``to`` and ``test`` belong to a move: the target (an entry of the minion's configuration; empty:
    the next master that answers), and whether to report only what would be done.
    """

    what: str
    glob: str = ""
    ids: tuple[str, ...] = ()
    to: str = ""
    test: bool = False

    def __post_init__(self) -> None:
        if self.what not in FUNCTIONS:
            raise InvalidRecord(f"takes one of: {', '.join(FUNCTIONS)}")
        if bool(self.glob) == bool(self.ids):
            raise InvalidRecord("takes either a glob or ids")
        if self.glob:
            check_glob(self.glob)
        if len(self.ids) > MAX_IDS:
            raise InvalidRecord(f"takes at most {MAX_IDS} ids")
        for minion_id in self.ids:
            minion_key.check_id(minion_id)
            if "," in minion_id:
                raise InvalidRecord(f"{minion_id!a} cannot be named in a list: it has a comma")
        if self.to and not is_host(self.to):
            raise InvalidRecord(f"to: {self.to!a} is no host")
        if self.what == MOVE and self.glob:
            raise InvalidRecord("only named minions are moved")

    def job(self) -> tuple[str, str | list[str], str, list[Any]]:
        """Function, target, kind of target, arguments, as Salt publishes them."""
        arguments: list[Any] = []
        if self.what == MOVE:
            # Always set: a minion's own test: True must not turn a move into a trial.
            arguments = [{"__kwarg__": True, "test": self.test, "to": self.to or None}]
        target = self.glob or list(self.ids)
        return FUNCTIONS[self.what], target, "glob" if self.glob else "list", arguments

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What Salt is to keep with the job."""
        return {} if self.what in (MOVE, REFRESH, MINE) else LISTENING

    def to_wire(self) -> dict[str, Any]:
        """The message for a peer."""
        return {**asdict(self), "ids": list(self.ids)}

    @classmethod
    def from_wire(cls, raw: Any) -> JobSpec:
        """The job that a peer asks for. :raises InvalidRecord: it is not a permitted job."""
        if not isinstance(raw, Mapping):
            raise InvalidRecord("a job is a map")
        what, glob, to = (wire.field(raw, name, str) for name in ("what", "glob", "to"))
        return cls(what, glob, tuple(wire.texts(raw, "ids")), to, wire.field(raw, "test", bool))


@dataclass(frozen=True)
class CommandSpec:
    """A job of an operator: any function, any target, as Salt takes them."""

    tgt: str | list[str]
    tgt_type: str
    fun: str
    arg: tuple[Any, ...] = ()
    kwarg: Mapping[str, Any] = field(default_factory=dict)
    what: str = CMD
    metadata: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        ids = isinstance(self.tgt, list) and all(isinstance(each, str) for each in self.tgt)
        if not self.tgt or not (isinstance(self.tgt, str) or ids):
            raise InvalidRecord("tgt: takes a text, or a list of minion ids")
        if not isinstance(self.tgt_type, str) or self.tgt_type not in TARGETS:
            raise InvalidRecord(f"tgt_type: takes one of: {', '.join(TARGETS)}")
        if not isinstance(self.fun, str) or not FUNCTION.fullmatch(self.fun):
            raise InvalidRecord(f"fun: {self.fun!a:.80} is no function, as test.ping")
        if not isinstance(self.kwarg, Mapping):
            raise InvalidRecord("kwarg: takes a mapping")

    def job(self) -> tuple[str, str | list[str], str, list[Any]]:
        """Like :meth:`JobSpec.job`."""
        named = [{"__kwarg__": True, **self.kwarg}] if self.kwarg else []
        return self.fun, self.tgt, self.tgt_type, [*self.arg, *named]

    def to_wire(self) -> dict[str, Any]:
        """The message for a peer."""
        target = {"what": CMD, "tgt": self.tgt, "tgt_type": self.tgt_type, "fun": self.fun}
        return {**target, "arg": list(self.arg), "kwarg": dict(self.kwarg)}

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> CommandSpec:
        """The command that a peer asks for. :raises InvalidRecord: it is no job."""
        tgt, tgt_type, fun, kwarg = (raw.get(key) for key in ("tgt", "tgt_type", "fun", "kwarg"))
        arg = tuple(wire.field(raw, "arg", list))
        return cls(tgt, tgt_type, fun, arg, kwarg)  # type: ignore[arg-type]


Spec = JobSpec | CommandSpec


def read(raw: Any) -> Spec:
    """The job that a peer asks for. :raises InvalidRecord: it is not a permitted job."""
    if isinstance(raw, Mapping) and raw.get("what") == CMD:
        return CommandSpec.from_wire(raw)
    return JobSpec.from_wire(raw)


def check_glob(glob: Any) -> str:
    """A glob over ids, as Salt and the replica take it. :raises InvalidRecord: it is none."""
    if not isinstance(glob, str) or not GLOB.fullmatch(glob):
        raise InvalidRecord(
            f"{str(glob)[:80]!a}: takes a minion id or a glob over ids, as web*; ha.cmd and "
            "ha.install_minions take other targets by tgt_type=, as tgt_type=compound"
        )
    sqlite_glob(glob)
    return glob


def is_host(text: str) -> bool:
    """Whether *text* may stand in a minion's list of masters."""
    if HOST.fullmatch(text):
        return True
    six = SIX.fullmatch(text)
    return six is not None and bare_ip(six[1] or six[3]) is not None


def answer(what: str, value: Any) -> Any:
    """
    The part of a minion's return that is needed: all of it for a command, made :func:`plain`; True
    for a ping; a report shortened by :func:`.reports.shorten`; the ids of running jobs; otherwise a
    mapping (empty where nothing of it is needed), or ``{"error": text}`` if the function failed or
    does not exist.
    """
    if what == CMD:
        return plain(value)
    if what == PING:
        return value is True
    if what == REPORT:
        return reports.shorten(value)
    if what == RUNNING:
        jobs = value if isinstance(value, list) else []
        found = [job.get("jid") for job in jobs[:MAX_JOBS] if isinstance(job, Mapping)]
        return [jid for jid in found if isinstance(jid, str)]
    if not isinstance(value, Mapping):
        return {"error": str(value)[:MAX_TEXT]}
    return {key: _plain(value[key]) for key in _ANSWERS.get(what, ()) if key in value}


def plain(value: Any, depth: int = DEEPEST) -> Any:
    """
    *value* in a form for messages to peers and for JSON: bytes, keys of mappings, and types that
    JSON does not know become text.

    :param depth: values nested deeper are left out.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return sendable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (Mapping, list, tuple)) and not depth:
        return TOO_MUCH
    if isinstance(value, Mapping):
        return {_text(key): plain(each, depth - 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, depth - 1) for each in value]
    return _text(value)


def sendable(value: Any) -> Any:
    """
    *value*, of types that JSON knows, with whole numbers as text that msgpack does not take, as
    Salt sends them: ``jid=20261124120000123456`` is one.
    """
    if isinstance(value, Mapping):
        return {key: sendable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [sendable(each) for each in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value).encode(errors="replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [str(each)[:MAX_TEXT] for each in value[:100]]
    if value is None or isinstance(value, bool):
        return value
    return str(value)[:MAX_TEXT]
