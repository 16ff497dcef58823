"""
Turns changes of the store into key files: writes new entries, then removes old ones.

Every new entry is whole and durable before an old one is removed, so a crash loses no key.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import StoreError
from saltext_ha.common.fail_points import point
from saltext_ha.keystore import minion_key, reading, writing
from saltext_ha.keystore.base import Change, Outcome
from saltext_ha.keystore.folders import ONE_FILE, Folders
from saltext_ha.replication.plan import DENY, PUT, REMOVE, Step
from saltext_ha.replication.record import DENIED

# The actions that write a new entry; the others remove one.
NEW = (PUT, DENY)


class NewEntry(NamedTuple):
    """A step that writes a new entry, and the change to which it belongs."""

    change: Change
    step: Step
    state: str
    """The state whose folder it is written to."""
    path: str
    replaces: frozenset[bytes]
    """The key whose file it replaces; empty if there must be no file."""


class Progress(NamedTuple):
    """What has been done of some changes so far."""

    touched: set[str]
    """The states whose folders got new entries."""
    links: dict[str, tuple[NewEntry, writing.Linked]]
    """Minion id → the new entry, if it is the old file under another name."""
    missing: set[str]
    failed: dict[str, str]
    taken: set[str]

    def is_left(self, minion_id: str) -> bool:
        """Whether nothing more must be done about an id."""
        return minion_id in self.failed or minion_id in self.taken

    def fail(self, change: Change, exc: OSError) -> None:
        """
        Fail *change*, and no other, for an error of one file.

        :raises OSError: *exc* is not an error of one file.
        """
        if exc.errno not in ONE_FILE:
            raise exc
        self.failed[change.minion_id] = str(exc)


@dataclass
class Portion:
    """Drafts that become durable side by side."""

    drafts: list[tuple[NewEntry, writing.Draft]] = field(default_factory=list)
    flaws: Iterable[OSError | None] = ()
    """For each draft, once the disk has answered, why it is not durable, or None."""
    end: OSError | None = None
    """Why no more drafts were made."""

    def discard(self) -> None:
        """Wait for the disk, close the drafts, and remove those that did not get their names."""
        deque(self.flaws, maxlen=0)
        for _, draft in self.drafts:
            writing.discard(draft)


class Applying:
    """
    One call of :meth:`KeyStore.apply` for key files in *folders*.

    :param writer: the number of the store that writes; see :func:`.writing.temporary`.
    """

    def __init__(self, folders: Folders, writer: int) -> None:
        self._folders = folders
        self._writer = writer
        self._waiters: Executor | None = None
        self._done = Progress(set(), {}, set(), {}, set())

    def run(self, changes: Sequence[Change]) -> Outcome:
        """Take all steps of *changes*; call it once."""
        done = self._done
        new = [
            self._new(each, step) for each in changes for step in each.steps if step.action in NEW
        ]
        try:
            with writing.waiters(len(new)) as self._waiters:
                self._write_all(new)
                self._folders.sync(done.touched | _staying(changes))
                self._folders.sync(self._remove_old(changes))
                spoilt = [
                    entry
                    for entry, linked in done.links.values()
                    if writing.is_spoilt(entry.path, linked)
                ]
                self._write_all(spoilt, link=False)
                self._folders.sync({entry.state for entry in spoilt})
        except OSError as exc:
            raise StoreError(f"{self._folders.root}: key folders cannot be written: {exc}") from exc
        return Outcome(done.missing, done.failed, done.taken)

    def _new(self, change: Change, step: Step) -> NewEntry:
        state = step.state or DENIED
        replaces = frozenset(key for shown, key in change.shown.entries if shown == state)
        path = self._folders.path(state, change.minion_id)
        return NewEntry(change, step, state, path, replaces)

    def _write_all(self, new: Sequence[NewEntry], *, link: bool = True) -> None:
        """
        Write *new*, each whole and durable.

        :param link: if a key only moves to another folder, link its old file where possible;
            otherwise write only new files.
        """
        anew: list[NewEntry] = []
        begun: deque[Portion] = deque()
        try:
            for number, some in enumerate(batches(new, writing.AT_ONCE)):
                begun.append(Portion())
                self._begin(begun[-1], some, number, link)
                if begun[-1].end:
                    break
                if len(begun) > 1:  # the disk had time for the first, and has the next
                    anew += self._finish(begun.popleft())
            while begun:
                anew += self._finish(begun.popleft())
        finally:
            for portion in begun:
                portion.discard()
        if anew and not link:
            raise StoreError(
                f"{anew[0].path}: a temporary file vanished before it got this name; does "
                "something clean up that folder?"
            )
        if anew:
            self._write_all(anew, link=False)

    def _begin(self, portion: Portion, new: Sequence[NewEntry], number: int, link: bool) -> None:
        """
        Draft *new*, few enough to be open at the same time, and have the disk make them durable.

        :param number: the number of *portion*; two successive portions may be open.
        """
        try:
            for place, entry in enumerate(new, number % 2 * writing.AT_ONCE):
                try:
                    portion.drafts.append((entry, self._draft(entry, place, link)))
                except OSError as exc:
                    self._done.fail(entry.change, exc)
        except OSError as exc:
            portion.end = exc
        drafts = [draft for _, draft in portion.drafts]
        portion.flaws = writing.make_durable(drafts, self._waiters)

    def _finish(self, portion: Portion) -> list[NewEntry]:
        """
        Give the drafts of *portion* their names once they are durable.

        :return: the entries that could not be linked, and need a new file.
        :raises OSError: the disk is full, or cannot be written. Files that got their names stay, so
            the next try needs less room.
        """
        anew = []
        try:
            for (entry, draft), flaw in zip(portion.drafts, portion.flaws, strict=True):
                if self._done.is_left(entry.change.minion_id):
                    continue
                try:
                    if not self._name(entry, draft, flaw):
                        anew.append(entry)
                except OSError as exc:
                    self._done.fail(entry.change, exc)
            if portion.end:
                raise portion.end
        finally:
            portion.discard()
        return anew

    def _name(self, entry: NewEntry, draft: writing.Draft, flaw: OSError | None) -> bool:
        """
        Put *draft* in the place of *entry*, unless that place is taken.

        :param flaw: why the draft is not durable. :return: False if a new file must be written.
        """
        done, minion_id = self._done, entry.change.minion_id
        if flaw and not draft.linked:
            raise flaw
        if self._is_taken(entry):
            done.taken.add(minion_id)
            return True
        replaced = None if flaw else writing.name(draft, entry.path, bool(entry.replaces))
        if replaced is None:
            return False
        done.touched.add(entry.state)
        if draft.linked:
            done.links[minion_id] = entry, draft.linked
        if entry.replaces and not replaced:
            done.missing.add(minion_id)
        return True

    def _is_taken(self, entry: NewEntry) -> bool:
        """Whether the place of *entry* has a file that was neither shown nor put there by us."""
        ours, _ = self._done.links.get(entry.change.minion_id, (None, None))
        if entry.step.action != PUT or ours == entry:
            return False
        try:
            if not stat.S_ISREG(os.lstat(entry.path).st_mode):
                return False  # the store does not show it either
            text = reading.read_key(entry.path) if entry.replaces else None
        except FileNotFoundError:
            return False
        return text is None or minion_key.fingerprint(text) not in entry.replaces

    def _draft(self, entry: NewEntry, number: int, link: bool) -> writing.Draft:
        mode, uid = self._folders.mode, self._folders.uid
        text = entry.change.keys[entry.step.key]
        temporary = writing.temporary(self._folders.paths[entry.state], self._writer, number)
        source = self._source(entry) if link else None
        draft = source and writing.draft_link(source, temporary, text, mode=mode, uid=uid)
        if draft:
            return draft
        # Do not keep two names for one file: Salt 3006 and 3007 write pending and denied keys in
        # place, and would write into an accepted key.
        try:
            return writing.draft(temporary, text, mode=mode, uid=uid)
        except FileNotFoundError:
            self._folders.make(entry.state)
            return writing.draft(temporary, text, mode=mode, uid=uid)

    def _source(self, entry: NewEntry) -> str | None:
        """The old file of a key that only moves to another folder."""
        change, step = entry.change, entry.step
        for old in change.steps:
            if (step.action, old.action, old.key) == (PUT, REMOVE, step.key):
                return self._folders.path(old.state, change.minion_id)
        return None

    def _remove_old(self, changes: Sequence[Change]) -> set[str]:
        """Take the steps that remove entries; return the states whose folders changed."""
        done = self._done
        touched = set()
        for change in changes:
            minion_id = change.minion_id
            _, linked = done.links.get(minion_id, (None, None))
            for step in change.steps:
                if step.action in NEW or done.is_left(minion_id):
                    continue
                state = step.state or DENIED
                try:
                    if _remove(self._folders.path(state, minion_id), step.key, linked):
                        touched.add(state)
                    elif state != DENIED:  # a denied key replaces another one
                        done.missing.add(minion_id)
                except OSError as exc:
                    done.fail(change, exc)
        return touched


def _remove(path: str, key: bytes, linked: writing.Linked | None) -> bool:
    """Remove *path* if it still holds *key*; the unchanged *linked* file does."""
    try:
        if not (linked and writing.is_still(path, linked)):
            text = reading.read_key(path)
            if text is None or minion_key.fingerprint(text) != key:
                return False
        point("store.remove")
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _staying(changes: Iterable[Change]) -> set[str]:
    """
    The states of entries that stay while others of the id are removed: after a crash they may not
    be durable yet.
    """
    return {
        state
        for change in changes
        if any(step.action == REMOVE for step in change.steps)
        for state, key in change.shown.entries
        if Step(REMOVE, state, key) not in change.steps
    }
