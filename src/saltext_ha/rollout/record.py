"""The result of the last exchange, in one small file in the minion's cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from saltext_ha.common.files import write_whole
from saltext_ha.minion import files
from saltext_ha.minion.restarting.processes import KnownProcess, living

TRYING = "trying"  # the minion restarts, or is looking for a master
KEPT = "kept"
PUT_BACK = "put back"
FAILED = "failed"  # the minion could not be restarted, or the old file not be written


@dataclass(frozen=True)
class RolloutRecord:
    """
    One exchange.

    ``state`` is one of the above, ``digest`` that of the new file, ``at`` Unix time, ``why`` the
    reason, ``helper`` the process that tries, and ``started`` when that process was started.
    """

    state: str
    digest: str
    at: float
    why: str = ""
    helper: int = 0
    started: float = 0.0

    @property
    def trying(self) -> bool:
        """Whether the exchange is under way, and was not cut off, as by a reboot."""
        return self.state == TRYING and living(KnownProcess(self.helper, self.started)) is not None


def digest(text: str) -> str:
    """The digest by which a file is recognised."""
    return hashlib.sha256(text.encode()).hexdigest()


def path(cachedir: str) -> Path:
    """The file of the record."""
    return Path(cachedir) / files.FOLDER / "multi_master.json"


def read(cachedir: str) -> RolloutRecord | None:
    """The last exchange; None if there was none, or it is unknown."""
    try:
        found: Mapping[str, object] = json.loads(files.read(path(cachedir)))
        return RolloutRecord(
            str(found["state"]),
            str(found["digest"]),
            float(str(found["at"])),
            str(found["why"]),
            int(str(found["helper"])),
            float(str(found.get("started", 0))),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(cachedir: str, record: RolloutRecord) -> None:
    files.replace(path(cachedir), json.dumps(asdict(record)))


def replace(target: Path, text: str) -> None:
    """Write *text* to *target*, whole or not at all; it is on disk when this returns."""
    # Salt reads only *.conf: a half written file has another name.
    write_whole(target, text.encode(), 0o644)
