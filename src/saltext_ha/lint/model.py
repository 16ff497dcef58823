"""The rules of ``ha.lint``, the facts they see, and their findings: plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from saltext_ha.config import engines
from saltext_ha.lint.cited import CitedLine
from saltext_ha.lint.loadable import Unloadable

# Severities. The first two count: exit code 1.
ERROR = "error"  # something does not work, or is open to others
WARNING = "warning"  # works until the day it is needed, or may lose minions
INFO = "info"  # has no effect, or an effect worth knowing
SEVERITIES = (ERROR, WARNING, INFO)

# The subject of a rule.
MINION = "minion"
MASTER = "master"
GROUP = "group"  # several masters, compared
FILES = "files"  # how the files are read, of a master or a minion

#: ``master_type`` values with which a minion moves from master to master.
MOVING = ("failover", "distributed")

#: Keys by which a scheduled job names its function; the first that is there counts.
FUNCTION = ("function", "func", "fun")
#: Keys beside the jobs in ``schedule``.
OF_ALL_JOBS = ("enabled", "skip_function", "skip_during_range", "splay")


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


class HasOptions:
    """What has ``options``, and is asked for one of them."""

    options: Mapping[str, Any]

    def get(self, option: str, default: Any = None) -> Any:
        """The merged value of *option*."""
        value = self.options.get(option)
        return default if value is None else value


@dataclass(frozen=True)
class HostFacts(HasOptions):
    """
    The facts of one master or minion.

    ``options`` is the merged configuration with Salt's defaults; ``places`` maps every option in a
    file to the place that counts. ``settings`` are all settings, including those that another file
    overrides; ``left_out`` are YAML files beside the included ones; ``merged`` is what the files
    say together, without Salt's defaults and before it expands paths. ``files`` says whether
    certain files exist; ``shared`` maps ``cachedir`` and ``pki_dir`` to the network file system
    that they are on. ``told`` maps ``(ip, request port)`` to the publish port which that master
    told this minion; ``addresses`` maps the hosts of a minion's masters to their IP addresses
    (None: unknown). ``fingerprint`` is that of the master key, on a minion as it has cached it.
    ``state_owner``: which other master uses, or tried to use, this one's state folder. ``refused``:
    why this package's engine would not start with these files, and the option. ``unloadable``:
    modules that a master's configuration names, and Salt cannot load. ``checkouts``: the folders of
    a master's ``file_roots`` with a ``.git`` that it can read. ``edited``: the keys of ``ha:`` that
    say something else than when the master was started. ``unknown``: what could not be looked at,
    and why.
    """

    role: str
    version: tuple[int, ...]
    options: Mapping[str, Any]
    places: Mapping[str, Place] = field(default_factory=dict)
    settings: Sequence[Setting] = ()
    problems: Sequence[Problem] = ()
    left_out: Sequence[str] = ()
    known: frozenset[str] = frozenset()
    merged: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bool] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[tuple[str, int], int] = field(default_factory=dict)
    addresses: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    fingerprint: str | None = None
    state_owner: str = ""
    refused: tuple[str, str] | None = None
    unloadable: Sequence[Unloadable] = ()
    edited: Sequence[str] = ()
    checkouts: Sequence[str] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    def number(self, option: str) -> float:
        """The merged value of *option* as a number; 0 if it is no number."""
        try:
            return float(self.options.get(option) or 0)
        except (TypeError, ValueError):
            return 0.0

    def written(self, option: str) -> bool:
        """Whether *option* is set in a file, and not only by Salt's default."""
        return option in self.places

    @property
    def ha(self) -> Mapping[str, Any]:
        """The mapping ``ha:``; empty if it is none."""
        value = self.options.get("ha")
        return value if isinstance(value, Mapping) else {}

    @property
    def engines(self) -> list[str]:
        """The names of the engines that are started."""
        return engines.started(self.get("engines"))

    @property
    def jobs(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """The scheduled jobs that are run, by name: the function of each, and the job."""
        schedule = self.get("schedule")
        if not isinstance(schedule, dict) or not schedule.get("enabled", True):
            return {}
        return {
            str(name): (str(next((job[key] for key in FUNCTION if key in job), "")), job)
            for name, job in schedule.items()
            if name not in OF_ALL_JOBS and isinstance(job, dict) and job.get("enabled", True)
        }

    @property
    def watched(self) -> bool:
        """Whether the watchdog of this package moves this minion."""
        return "ha_watchdog" in self.engines

    @property
    def moving(self) -> bool:
        """Whether this minion moves from master to master."""
        return self.get("master_type") in MOVING

    @property
    def failover(self) -> bool:
        """Whether this minion has ``master_type: failover``."""
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
class Member(HasOptions):
    """
    The facts of one master for the rules that compare masters.

    ``options`` has those of :data:`saltext_ha.lint.rules.group.COMPARED`; ``marks`` identifies
    well-known files by inode and time of the last change, so that two masters that see the same
    file are found.
    """

    name: str
    version: tuple[int, ...]
    options: Mapping[str, Any]
    places: Mapping[str, Place] = field(default_factory=dict)
    fingerprint: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """
    A hit of a rule: the option to change, and the details of this case.

    ``item`` is the entry of a list; ``master`` the name of the master, in rules that compare.
    ``place`` is where it is set, if the facts do not say it; ``beside`` is the option that makes it
    matter, whose place is shown if the option itself is not set.
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

    ``why`` is what happens and the reason, ``fix`` what to write instead, ``sources`` the proof:
    lines of Salt, or a test that shows it. It holds for Salt from release ``since`` up to the one
    before ``before``.
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
        """Whether a release of Salt has the trap."""
        major = version[0] if version else self.since
        return self.since <= major and (self.before is None or major < self.before)

    @property
    def versions(self) -> str:
        """The releases in words."""
        if self.before is None:
            return "all" if self.since == 3006 else f"{self.since} and newer"
        last = self.before - 1
        return str(last) if last == self.since else f"{self.since} to {last}"


class RuleBook:
    """
    The rules of one module, in the order in which they are written.

    ``error``, ``warning`` and ``info`` decorate the check of a rule of that severity.
    """

    def __init__(self, about: str) -> None:
        self._about = about
        self.rules: list[Rule] = []
        self.error = partial(self._rule, ERROR)
        self.warning = partial(self._rule, WARNING)
        self.info = partial(self._rule, INFO)

    def _rule(
        self,
        severity: str,
        code: str,
        title: str,
        *sources: CitedLine | str,
        why: str,
        fix: str,
        **more: Any,
    ) -> Callable[[Check], Check]:
        def add(check: Check) -> Check:
            self.rules.append(
                Rule(code, severity, self._about, title, why, fix, sources, check, **more)
            )
            return check

        return add
