"""What a rule of ``ha.lint`` is, what it sees, and what it finds: plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltext_ha.lint.cited import CitedLine

# Severities. The first two count: exit code 1.
ERROR = "error"  # something does not work, or is open to others
WARNING = "warning"  # works until the day it is needed, or may lose minions
INFO = "info"  # has no effect, or an effect worth knowing
SEVERITIES = (ERROR, WARNING, INFO)

# What a rule is about.
MINION = "minion"
MASTER = "master"
GROUP = "group"  # several masters compared
FILES = "files"  # how the files are read, of a master or a minion

#: ``master_type`` values with which a minion moves from master to master.
MOVING = ("failover", "distributed")


@dataclass(frozen=True)
class Place:
    """Where an option is set; ``items`` are the lines of a list's entries."""

    file: str
    line: int
    items: tuple[int, ...] = ()

    def line_of(self, item: int | None) -> int:
        """The line of entry number *item*, or of the whole option."""
        if item is None or not 0 <= item < len(self.items):
            return self.line
        return self.items[item]


@dataclass(frozen=True)
class Problem:
    """A file that Salt cannot read."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Setting:
    """One top-level option as one file has it; ``layer`` is ``main`` or ``included``."""

    option: str
    value: Any
    place: Place
    layer: str


@dataclass(frozen=True)
class HostFacts:
    """
    What is known of one master or minion.

    ``options`` is the merged configuration with Salt's defaults; ``places`` says of every option
    that is written somewhere which place holds. ``settings`` are all of them, also those that
    another file overrides. ``files`` tells of files whose presence matters whether they are there;
    ``shared`` maps ``cachedir`` and ``pki_dir`` to the network file system that they lie on.
    ``told`` maps ``(ip, request port)`` to the publish port which that master told this minion;
    ``addresses`` maps the hosts of a minion's masters to their IP addresses (None: unknown).
    ``fingerprint`` is that of the master key, on a minion as it has cached it. ``tenancy``: which
    other master uses, or tried to use, this one's state folder. ``unknown`` says what could not be
    looked at, and why.
    """

    role: str
    version: tuple[int, ...]
    options: Mapping[str, Any]
    places: Mapping[str, Place] = field(default_factory=dict)
    settings: Sequence[Setting] = ()
    problems: Sequence[Problem] = ()
    known: frozenset[str] = frozenset()
    files: Mapping[str, bool] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[tuple[str, int], int] = field(default_factory=dict)
    addresses: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    fingerprint: str | None = None
    tenancy: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)

    def get(self, option: str, default: Any = None) -> Any:
        """The merged value of *option*."""
        value = self.options.get(option)
        return default if value is None else value

    def number(self, option: str) -> float:
        """The merged value of *option* as a number; 0 where it is none."""
        try:
            return float(self.options.get(option) or 0)
        except (TypeError, ValueError):
            return 0.0

    def written(self, option: str) -> bool:
        """Whether *option* stands in a file, and is not only Salt's default."""
        return option in self.places

    @property
    def engines(self) -> list[str]:
        """The names of the engines that are started."""
        value = self.get("engines", [])
        found: list[str] = []
        for engine in value if isinstance(value, (list, dict)) else []:
            found += engine if isinstance(engine, dict) else [str(engine)]
        return found

    @property
    def watched(self) -> bool:
        """Whether the watchdog of this package moves this minion."""
        return "ha_watchdog" in self.engines

    @property
    def moving(self) -> bool:
        """Whether this minion goes from master to master."""
        return self.get("master_type") in MOVING

    @property
    def failover(self) -> bool:
        """Whether this minion is of ``master_type: failover``."""
        return bool(self.get("master_type") == "failover")

    @property
    def hot(self) -> bool:
        """Whether this minion is bound to several masters at once."""
        return self.get("master_type", "str") == "str" and len(self.masters) > 1

    @property
    def masters(self) -> list[str]:
        """The entries of ``master:``."""
        value = self.options.get("master")
        entries = value if isinstance(value, list) else [value]
        return [str(entry) for entry in entries if entry]


@dataclass(frozen=True)
class Member:
    """
    What one master of a group tells the others for the rules that compare masters.

    ``options`` holds those of :data:`saltext_ha.lint.rules.group.COMPARED`; ``marks`` says which
    file a well-known name really is, by inode and time of its last change, so that two masters
    that see the same one are found out.
    """

    name: str
    version: tuple[int, ...]
    options: Mapping[str, Any]
    places: Mapping[str, Place] = field(default_factory=dict)
    fingerprint: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)

    def get(self, option: str, default: Any = None) -> Any:
        """The merged value of *option*."""
        value = self.options.get(option)
        return default if value is None else value


@dataclass(frozen=True)
class Hit:
    """
    A rule that holds: the option to change, and what is special about this case.

    ``item`` is the entry of a list; ``master`` the name of the master, in rules that compare.
    ``place`` is where it stands when the facts do not say it, ``beside`` the option that makes it
    matter, to point at where it is not written at all.
    """

    option: str
    detail: str
    item: int | None = None
    master: str = ""
    place: Place | None = None
    beside: str = ""


Hits = Iterator[Hit]
Check = Callable[[Any], Iterable[Hit]]


@dataclass(frozen=True)
class Rule:
    """
    One trap.

    ``why`` is what happens and for which reason, ``fix`` what to write instead, ``sources`` where
    that is known from: lines of Salt, or a test that shows it. It holds on releases of Salt from
    ``since`` on, and on none from ``before`` on.
    """

    code: str
    severity: str
    about: str
    title: str
    why: str
    fix: str
    sources: tuple[CitedLine | str, ...]
    check: Check
    since: int = 3006
    before: int | None = None

    def holds_on(self, version: Sequence[int]) -> bool:
        """Whether the trap is there on that release of Salt."""
        major = version[0] if version else self.since
        return self.since <= major and (self.before is None or major < self.before)

    @property
    def versions(self) -> str:
        """Those releases in words."""
        if self.before is None:
            return "all" if self.since == 3006 else f"{self.since} and newer"
        last = self.before - 1
        return str(last) if last == self.since else f"{self.since} to {last}"


class RuleBook:
    """The rules of one module, in the order in which they are written."""

    def __init__(self, about: str) -> None:
        self._about = about
        self.rules: list[Rule] = []

    def rule(
        self,
        code: str,
        severity: str,
        title: str,
        *,
        why: str,
        fix: str,
        sources: tuple[CitedLine | str, ...],
        **more: Any,
    ) -> Callable[[Check], Check]:
        """Write the function that is decorated down as the check of a rule."""

        def add(check: Check) -> Check:
            self.rules.append(
                Rule(code, severity, self._about, title, why, fix, sources, check, **more)
            )
            return check

        return add
