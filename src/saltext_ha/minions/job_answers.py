"""The results of a job, as masters tell each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saltext_ha.common.errors import NO_SENSE, InvalidRecord
from saltext_ha.minions.job_specs import plain

NONSENSE = "answered nonsense"


class Count(NamedTuple):
    """How far a job is: minions it is for (None: not yet published), returned, failed."""

    targeted: int | None
    returned: int
    failed: int


@dataclass
class Answers:
    """
    The results of a job that one master published. ``targeted``: the ids that it was for;
    ``returned``: id → (seconds until its return, value); ``failed``: id → exit code, if its
    function failed. ``running``: the ids that have not returned a command and say that they still
    run it. ``error``: why the job was not published; ``unsure``: it may have been nevertheless.
    """

    targeted: frozenset[str] = frozenset()
    returned: dict[str, tuple[float, Any]] = field(default_factory=dict)
    error: str = ""
    failed: dict[str, int] = field(default_factory=dict)
    jid: str = ""
    running: frozenset[str] = frozenset()
    unsure: bool = False

    @property
    def count(self) -> Count:
        """How far the job was then."""
        return Count(len(self.targeted), len(self.returned), len(self.failed))


@dataclass(frozen=True)
class Stray:
    """Returns of a job of the master ``published`` that came to the master ``arrived``."""

    published: str
    arrived: str
    ids: tuple[str, ...]


def read_count(raw: Mapping[str, Any], jid: str) -> Count:
    """How far a master says that its job is. :raises InvalidRecord: it says nothing of use."""
    counts = raw.get("counts")
    told = counts.get(jid) if isinstance(counts, Mapping) else None
    if not isinstance(told, list) or len(told) != 3:
        raise InvalidRecord(NONSENSE)
    targeted, returned, failed = told
    numbers = told if targeted is not None else (returned, failed)
    if not all(type(each) is int for each in numbers):
        raise InvalidRecord(NONSENSE)
    return Count(targeted, returned, failed)


def read_strays(jids: Mapping[str, str], told: Mapping[str, Mapping[str, Any]]) -> Iterable[Stray]:
    """Returns that came to another master than the publishing one; *jids*: master → its job."""
    publisher = {jid: name for name, jid in jids.items()}
    for arrived, raw in told.items():
        returned = raw.get("returned")
        for jid, ids in returned.items() if isinstance(returned, dict) else ():
            published = publisher.get(jid)
            if published and published != arrived and isinstance(ids, list) and ids:
                yield Stray(published, arrived, tuple(map(str, ids)))


def read_answers(raw: Mapping[str, Any]) -> Answers:
    """The results that a master tells of its job; an error if it tells nonsense."""
    if raw.get("error"):
        return Answers(error=str(raw["error"]), unsure=raw.get("unsure") is True)
    try:
        return Answers(
            frozenset(map(str, raw["targeted"])),
            {str(each[0]): (float(each[1]), plain(each[2])) for each in raw["returned"]},
            failed={str(i): int(code) for i, code in dict(raw.get("failed") or {}).items()},
            running=frozenset(map(str, raw.get("running") or ())),
        )
    except NO_SENSE:
        return Answers(error=NONSENSE)
