"""The public keys of a history, by short names, and how key folders hold them."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from lab.key_folders import public_keys
from saltext_ha.keystore import minion_key

ACCEPTED, PENDING, REJECTED, DENIED = "accepted", "pending", "rejected", "denied"
FOLDERS = {
    ACCEPTED: "minions",
    PENDING: "minions_pre",
    REJECTED: "minions_rejected",
    DENIED: "minions_denied",
}
KEYS = dict(zip(("k0", "k1", "k2"), islice(public_keys(7), 3), strict=True))
"""Name → PEM. Any id may knock with any of them: records are about (id, key)."""
FINGERPRINTS = {minion_key.fingerprint(text): name for name, text in KEYS.items()}
UNKNOWN = "?"
"""A file that is no key, or is being written."""

Entry = dict[str, str]
"""The content of the folders for one id: state → name of the key."""
Slot = tuple[str, str]


def slot_of(entry: Entry, legacy: bool) -> Slot | None:
    """What Salt takes from *entry*: 3008 reads pending before accepted."""
    order = (REJECTED, ACCEPTED, PENDING) if legacy else (REJECTED, PENDING, ACCEPTED)
    return next(((state, entry[state]) for state in order if state in entry), None)


class Folders:
    """The key folders below *pki_dir*; reading them is cheap: only new files are read."""

    def __init__(self, pki_dir: Path) -> None:
        self.pki_dir = pki_dir
        # Strings: a history looks so often that paths as objects take a tenth of its time.
        self._folders = {state: str(pki_dir / folder) for state, folder in FOLDERS.items()}
        self._read: dict[str, tuple[tuple[int, int, int], str]] = {}

    def path(self, state: str, minion_id: str) -> Path:
        return self.pki_dir / FOLDERS[state] / minion_id

    def look(self) -> dict[str, Entry]:
        """Everything in them, by id."""
        found: dict[str, Entry] = {}
        for state, folder in self._folders.items():
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        # Dot files and 3008's temporary files are no ids.
                        if entry.name.startswith((".", "tmp")):
                            continue
                        name = self._name(entry.path)
                        if name:
                            found.setdefault(entry.name, {})[state] = name
            except OSError:
                continue
        return found

    def entry(self, minion_id: str) -> Entry:
        found = {state: self._name(str(self.path(state, minion_id))) for state in FOLDERS}
        return {state: name for state, name in found.items() if name}

    def accepts(self, minion_id: str) -> bool:
        return self.path(ACCEPTED, minion_id).exists()

    def _name(self, path: str) -> str | None:
        try:
            info = os.stat(path)  # noqa: PTH116
            mark = (info.st_ino, info.st_mtime_ns, info.st_size)
            known = self._read.get(path)
            if known and known[0] == mark:
                return known[1]
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        except OSError:
            return None
        try:
            name = FINGERPRINTS.get(minion_key.fingerprint(minion_key.normalise(text)), UNKNOWN)
        except ValueError:
            name = UNKNOWN
        if name != UNKNOWN:
            self._read[path] = (mark, name)
        return name
