"""
What operators and minions do to key folders, by the same file system calls as Salt.

By ``salt/key.py``, ``salt/channel/server.py`` and ``salt/cache/localfs_key.py``: 3006 and 3007 move
and remove files; 3008 removes the id from all folders, then writes the new state under a temporary
name and renames it. An engine may act between any two of these calls.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proving.torture.keys import (
    ACCEPTED,
    DENIED,
    FOLDERS,
    KEYS,
    PENDING,
    REJECTED,
    UNKNOWN,
    Folders,
)

SLOT = (ACCEPTED, PENDING, REJECTED)


@dataclass
class Done:
    """
    The result of an act.

    ``granted`` and ``rejected`` name a key, ``gone`` are the (state, key) that were taken away,
    ``knocked`` names a key that is pending or denied now. ``broken``: a call failed after another
    had changed something. ``shadowed``: Salt does not read the granted key. ``events`` are the
    events on Salt's bus.
    """

    granted: str = ""
    rejected: str = ""
    knocked: str = ""
    gone: set[tuple[str, str]] = field(default_factory=set)
    broken: bool = False
    shadowed: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        """Whether the key folders are as they were."""
        return not (self.granted or self.rejected or self.knocked or self.gone or self.broken)

    def tell(self, act: str, minion_id: str) -> None:
        """Fire ``salt/key``."""
        self.events.append({"tag": "salt/key", "data": {"act": act, "id": minion_id}})


class Operator:
    """An operator on the key folders of one master, with ``salt-key`` or by hand."""

    def __init__(self, folders: Folders, legacy: bool) -> None:
        self._folders = folders
        self._legacy = legacy

    # -- salt-key

    def accept(self, minion_id: str, denied: bool = False) -> Done:
        """``salt-key -a ID``, with ``--include-denied`` the denied key as well."""
        done = Done()
        before = self._folders.entry(minion_id)
        for source in (PENDING, DENIED) if denied else (PENDING,):
            if source in before:
                self._change(minion_id, source, ACCEPTED, done)
        if done.granted:
            # 3006 and 3007 leave a rejected key of the id in its place, and read it first.
            done.shadowed = self._legacy and REJECTED in before
            ousted = before.get(ACCEPTED)
            if ousted and ousted != done.granted:
                done.gone.add((ACCEPTED, ousted))
        return done

    def reject(self, minion_id: str, accepted: bool = False) -> Done:
        """``salt-key -r ID``, with ``--include-accepted`` an accepted one as well."""
        done = Done()
        before = self._folders.entry(minion_id)
        for source in (PENDING, ACCEPTED) if accepted else (PENDING,):
            if source in before:
                self._change(minion_id, source, REJECTED, done)
        return done

    def delete(self, minion_id: str) -> Done:
        """``salt-key -d ID``."""
        done = Done()
        for state, key in self._folders.entry(minion_id).items():
            try:
                self._folders.path(state, minion_id).unlink()
            except OSError:
                continue
            done.gone.add((state, key))
            done.tell("delete", minion_id)
        return done

    # -- by hand, without events

    def put(self, minion_id: str, key: str) -> Done:
        """Copy a key file among the accepted ones, as from another master."""
        done = Done()
        if self._folders.entry(minion_id):
            return done
        target = self._folders.path(ACCEPTED, minion_id)
        with contextlib.suppress(OSError):
            self._write(f"{target.parent}/.copy", str(target), key)
            done.granted = key
        return done

    def remove(self, minion_id: str) -> Done:
        """``rm`` of the key file."""
        done = Done()
        for state, key in self._folders.entry(minion_id).items():
            if state == DENIED:
                continue
            with contextlib.suppress(OSError):
                self._folders.path(state, minion_id).unlink()
                done.gone.add((state, key))
        return done

    def clean(self) -> int:
        """
        Delete files that are no keys: on a full disk Salt leaves empty ones. Return how many.
        """
        count = 0
        for minion_id, entry in self._folders.look().items():
            for state, key in entry.items():
                if key == UNKNOWN:
                    self._folders.path(state, minion_id).unlink(missing_ok=True)
                    count += 1
        return count

    # -- minions

    def knock(self, minion_id: str, key: str) -> Done:
        """A minion authenticates (``_auth``); no auto-accept."""
        done = Done()
        entry = self._folders.entry(minion_id)
        if REJECTED in entry:
            return done
        order = (ACCEPTED, PENDING) if self._legacy else (PENDING, ACCEPTED)
        there = next((entry[state] for state in order if state in entry), None)
        state = PENDING if there is None else DENIED
        if there in (key, UNKNOWN) or entry.get(state) == key:
            return done
        try:
            self._in_place(state, minion_id, key) if self._legacy else self._store(
                state, minion_id, key
            )
        except OSError:
            done.broken = True
            return done
        done.knocked = key
        act = "pend" if state == PENDING else "denied"
        done.events.append({"tag": "salt/auth", "data": {"act": act, "id": minion_id}})
        return done

    # -- the calls

    def _change(self, minion_id: str, source: str, target: str, done: Done) -> None:
        origin = self._folders.path(source, minion_id)
        try:
            key = self._folders.entry(minion_id).get(source)
            if key is None or key == UNKNOWN:
                return
            if self._legacy:
                shutil.move(origin, self._folders.path(target, minion_id))
            else:
                if source == DENIED:
                    origin.unlink()
                done.broken = True
                self._store(target, minion_id, key)
                done.broken = False
        except OSError:
            return
        done.granted = key if target == ACCEPTED else done.granted
        done.rejected = key if target == REJECTED else done.rejected
        words = {ACCEPTED: ("accept", "accepted"), REJECTED: ("reject", "rejected")}
        done.tell(words[target][0 if self._legacy else 1], minion_id)

    def _store(self, state: str, minion_id: str, key: str) -> None:
        """``localfs_key.store``: it first removes the old file, then writes the new one."""
        for old in SLOT if state != DENIED else (DENIED,):
            with contextlib.suppress(FileNotFoundError):
                self._folders.path(old, minion_id).unlink()
        target = self._folders.path(state, minion_id)
        descriptor, temporary = tempfile.mkstemp(dir=target.parent)
        os.close(descriptor)
        try:
            self._write(temporary, str(target), key)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise

    def _in_place(self, state: str, minion_id: str, key: str) -> None:
        self._folders.path(state, minion_id).write_text(KEYS[key], encoding="utf-8")

    @staticmethod
    def _write(temporary: str, target: str, key: str) -> None:
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.write(KEYS[key])
        Path(temporary).rename(target)


def make_folders(folders: Folders) -> None:
    """Make *folders* like a master that starts."""
    for name in FOLDERS.values():
        (folders.pki_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
