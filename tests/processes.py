"""Groups of engine processes; a test makes one fail, and checks what must hold afterwards."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.engines import Place, befriend
from lab.key_folders import FOLDERS
from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import VARIABLE
from tests.engines import wrong
from tests.forked import ForkedEngine
from tests.shifted import CLOCK

SOON = 120.0
ACCEPTED, PENDING, REJECTED, DENIED = FOLDERS
Keys = dict[tuple[str, str], str]


class Master:
    """One master whose engine is a process that a test can make fail."""

    def __init__(self, root: Path, name: str, ha: Mapping[str, Any] | None = None) -> None:
        # Tests count the writes that pass a point: allow none that depend on the clock.
        quiet = {"sync_interval": 0.2, "consistency": {"interval": 0}}
        self.place = Place(root, name, {**quiet, **(ha or {})})
        self.name = name
        self.pki_dir = self.place.pki_dir
        self.faults = root / f"{name}.faults"
        self.clock = root / f"{name}.clock"
        self.environment = {VARIABLE: str(self.faults), CLOCK: str(self.clock)}
        self.engine = ForkedEngine(self.place, self.environment)
        for folder in FOLDERS:
            (self.pki_dir / folder).mkdir(mode=0o700)

    # -- what operators and minions do, as Salt does it to the files

    def knock(self, keys: dict[str, str]) -> None:
        """Minions show their keys for the first time."""
        for minion_id, text in keys.items():
            temporary = self.pki_dir / PENDING / f".{minion_id}"
            temporary.write_text(text)
            temporary.rename(self.pki_dir / PENDING / minion_id)

    def accept(self, *ids: str) -> None:
        """``salt-key -a``."""
        for minion_id in ids:
            (self.pki_dir / PENDING / minion_id).rename(self.pki_dir / ACCEPTED / minion_id)

    def reject(self, *ids: str) -> None:
        """``salt-key -r --include-accepted``."""
        for minion_id in ids:
            (self.pki_dir / ACCEPTED / minion_id).rename(self.pki_dir / REJECTED / minion_id)

    def delete(self, *ids: str) -> None:
        """``salt-key -d``."""
        for minion_id in ids:
            for folder in FOLDERS:
                (self.pki_dir / folder / minion_id).unlink(missing_ok=True)

    # -- what is seen from outside

    def shown(self) -> Keys:
        """(folder, id) → key, of all key files."""
        found = {}
        for folder in FOLDERS:
            for path in (self.pki_dir / folder).iterdir():
                if not path.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):  # moved just now
                        found[folder, path.name] = path.read_text().strip()
        return found

    @property
    def rotation(self) -> Path:
        """The file that has salt-master make a new AES key."""
        return Path(self.place.opts["cachedir"]) / ".dfn"

    def ask(self, command: str, **payload: Any) -> dict[str, Any]:
        """The answer of ``salt-run ha.<command>``; empty if it gets none."""
        with contextlib.suppress(HaError):
            return self.engine.control(command, payload)
        return {}

    def is_fine(self) -> bool:
        """Whether ``ha.status`` finds nothing wrong with any master, and nothing left to do."""
        status = self.ask("status")
        return bool(status) and not wrong(status)

    def note(self) -> str:
        """The note of ``ha.status`` on this master."""
        return next((row["note"] for row in self.ask("status")["masters"] if row["self"]), "")

    def set_clock(self, offset: float) -> None:
        """From now on its wall clock is *offset* seconds ahead of the true one."""
        temporary = self.clock.with_suffix(".new")
        temporary.write_text(str(offset))
        temporary.rename(self.clock)

    # -- failing

    @contextlib.contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """The *fault* (``common/fail_points.py``) strikes whenever its point is passed."""
        self.faults.write_text(fault)
        try:
            yield
        finally:
            self.faults.unlink()

    @contextlib.contextmanager
    def dying(self, point: str, times: int = 1) -> Iterator[None]:
        """The block must get the engine killed at *point*; afterwards it is started again."""
        with self.failing(f"KILL {point} {times}"):
            yield
            assert self.engine.wait_ended(SOON) == -signal.SIGKILL
        self.engine.start()


class Group:
    """
    Masters below *root* with the given *names*; they trust each other and know of no key yet.

    :param roots: other folders, for some masters.
    :param ha: other configuration, for some masters.
    """

    def __init__(
        self,
        root: Path,
        *names: str,
        roots: Mapping[str, Path] | None = None,
        ha: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.masters = [
            Master((roots or {}).get(name, root), name, (ha or {}).get(name)) for name in names
        ]
        for master in self.masters:
            master.place.config.state_dir.mkdir(mode=0o700)
            # An engine that trusts peers but finds no replica takes it for lost.
            master.place.begin()
        befriend(*(master.place for master in self.masters))

    def start(self) -> None:
        """Start all engines, at the same time."""
        for master in self.masters:
            master.engine.launch()
        for master in self.masters:
            master.engine.wait_ready()

    def kill(self) -> None:
        """Kill all running engines; quicker than to stop them."""
        for master in self.masters:
            master.engine.kill()

    def comes_to(self, expected: Keys, among: Iterable[Master] = ()) -> None:
        """Wait until all masters show *expected*, and the group says that nothing is left to do."""
        masters = list(among) or self.masters
        for master in masters:
            wait_for(lambda m=master: m.shown() == expected, SOON, f"{master.name} shows that")
        for master in masters:
            wait_for(master.is_fine, SOON, f"ha.status on {master.name} is OK", poll=0.1)
        for master in masters:
            assert master.shown() == expected, master.name
