"""Whether the state folder is the one that the running engine began with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saltext_ha.common.boot_clock import boot_clock
from saltext_ha.common.errors import reason_of
from saltext_ha.common.file_looks import Looks
from saltext_ha.replica.replica import REPLICA_FILE
from saltext_ha.transport import identity
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer_files import PEERS_DIR

LATELY = 2.0
"""Seconds; the engine looks once a second."""


class StateFolder:
    """
    Watches *folder* of a running engine.

    A file that is removed while it is open stays open: everything seems to work until the next
    start, but nothing is kept.

    :param shown: returns the identity that this master shows; its files are *folder*'s.
    :param looks: looks at the folder.
    :param beside: called with these looks, in their thread, while nothing was removed or replaced.
    """

    def __init__(
        self,
        folder: Path,
        shown: Callable[[], Identity],
        looks: Looks,
        beside: Callable[[], None],
    ) -> None:
        self._folder, self._looks, self._beside = folder, looks, beside
        self._shown, self._identity = shown, shown()
        self._files = self._others = identity.files(folder)
        """Those of the identity that is shown, and those of the last look."""
        # Other files are replaced from time to time; these are made only once.
        lasting = {path: _identity(path) for path in (folder, folder / REPLICA_FILE)}
        self._expected: dict[Path, tuple[int, int] | None] = {**lasting, folder / PEERS_DIR: None}
        self._found, self._looked = "", float("-inf")

    def problem(self, lately: bool = False) -> str:
        """
        What is wrong with the folder, and what to do; empty when nothing is.

        :param lately: an answer that is no older than :data:`LATELY` will do.
        """
        now = boot_clock()
        if not (lately and now - self._looked < LATELY):
            self._found, self._looked = self._look(), now
        return self._found

    def _look(self) -> str:
        try:
            return self._looks(self._problem)
        except OSError as exc:
            return (
                f"{self._folder} cannot be looked at: {reason_of(exc)}; until it can, nothing is "
                "recorded here, and changes of the group are not noticed"
            )

    def _problem(self) -> str:
        for path, before in self._expected.items():
            try:
                now = _identity(path)
            except FileNotFoundError:
                return self._said(path, "was removed")
            if before and now != before:
                return self._said(path, "was replaced by another one")
        self._beside()
        if not identity.is_there(self._folder):
            return self._said(self._folder / identity.KEY_FILE, "was removed")
        return self._exchanged()

    def _exchanged(self) -> str:
        """Whether the files of the identity are no longer those of the one that is shown."""
        shown, before, now = self._shown(), self._others, identity.files(self._folder)
        self._others = now
        if shown is not self._identity:
            self._identity, self._files = shown, now
        # A renewed identity is written a moment before it is shown: so look twice.
        if now == self._files or now != before:
            return ""
        path = min(p for p in {*self._files, *now} if self._files.get(p) != now.get(p))
        return self._said(path, "was replaced by another one" if path in now else "was removed")

    def _said(self, path: Path, what: str) -> str:
        return (
            f"{path} {what}, under the running engine: decisions from now on will be lost, and "
            f"peers may be unknown. Stop salt-master, bring {self._folder} back from a backup or "
            "remove it, start salt-master. Without a backup, remove this master on a member "
            "(salt-run ha.remove_peer), then join again"
        )


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
