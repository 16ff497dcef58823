"""
The certificates that were removed from the group: a folder of notes, one file each.

A removed certificate is never pinned again; a master that comes back has a new one. So removals win
over late gossip. Another process may add notes at any time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from saltext_ha.common.errors import TrustError
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import create_whole, private_dir, read_plain
from saltext_ha.transport import fingerprints
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

REMOVED_DIR = "removed"
SETTLED = 2_000_000_000  # nanoseconds
_NOTE = re.compile(r"[0-9a-f]{64}\.json")
"""The name of a note. Other files in the folder, such as copies of notes, bar nobody."""


@dataclass(frozen=True)
class Removed:
    """A certificate that was removed from the group, and the name of its master."""

    fingerprint: str
    name: str
    removed: str = ""


class Removals:
    """
    The notes of removals below *state_dir*.

    :param looks: looks at the folder.
    :raises OSError: it cannot be made or read.
    """

    def __init__(self, state_dir: Path, looks: Looks) -> None:
        self._folder = private_dir(state_dir / REMOVED_DIR)
        self._looks = looks
        self._notes: list[Removed] = []
        self._notes_of: int | None = None
        """The time of the folder that has exactly these notes."""
        self._follow()  # as long as it takes: nobody waits yet

    def notes(self) -> list[Removed]:
        """All removed certificates; a damaged note still bars its certificate."""
        with contextlib.suppress(OSError):
            self._looks(self._follow)
        return list(self._notes)

    def files(self) -> frozenset[str]:
        """
        The files of notes: others where another certificate is barred.

        :raises OSError: the folder cannot be read.
        """
        try:
            with os.scandir(self._folder) as scan:
                return frozenset(entry.name for entry in scan)
        except FileNotFoundError:
            return frozenset()

    def barred(self, peer: Peer) -> bool:
        """Whether a certificate of *peer*, present or former, was removed from the group."""
        return any(self._file(fingerprint).exists() for fingerprint in peer.fingerprints)

    def note(self, removed: Removed) -> bool:
        """
        Note a removal.

        :return: whether it was news.
        :raises TrustError: the fingerprint is invalid, or the note cannot be written.
        """
        if not fingerprints.PATTERN.fullmatch(removed.fingerprint):
            raise TrustError(f"{removed.fingerprint!r:.80} is not the fingerprint of a certificate")
        if self._file(removed.fingerprint).exists():
            return False
        with self._looks.writing_into(self._folder):
            content = json.dumps(removed.__dict__, indent=1).encode()
            return create_whole(self._file(removed.fingerprint), content)

    def _follow(self) -> None:
        """Read the notes if the folder has changed."""
        # Notes are read for every offer, and change a few times in the life of a group.
        seen = self._folder.stat().st_mtime_ns
        if self._notes_of == seen:
            return
        notes = []
        for path in sorted(self._folder.iterdir()):
            if not _NOTE.fullmatch(path.name):
                continue
            name = when = ""
            try:
                content = json.loads(read_plain(path))
                name, when = str(content["name"]), str(content["removed"])
            except (OSError, ValueError, TypeError, KeyError):
                log.warning("damaged file=%s; the certificate it names stays out", path)
            notes.append(Removed(_fingerprint_of(path.name), name, when))
        # Within one tick of the clock the folder may change again, and have the same time.
        settled = abs(time.time_ns() - seen) > SETTLED
        self._notes, self._notes_of = notes, seen if settled else None

    def _file(self, fingerprint: str) -> Path:
        return self._folder / (fingerprint.replace(":", "") + ".json")


def _fingerprint_of(file_name: str) -> str:
    digits = file_name.removesuffix(".json")
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))
