"""
Whom this master trusts: pins peers, and unpins and bars those that are removed.

What may be pinned is said in :mod:`.pinning`, what is pinned in :mod:`.pins`, and what stays out in
:mod:`.removals`.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from saltext_ha.common.disk_work import DiskWork
from saltext_ha.common.errors import TrustError
from saltext_ha.common.fail_points import point
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import create_whole, sync_dir, write_whole
from saltext_ha.transport import peer_files, pinning
from saltext_ha.transport.identity import state_folder
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import Pins
from saltext_ha.transport.removals import Removals, Removed

log = logging.getLogger(__name__)

MAX_MEMBERS = 64
"""Masters in a group, unless the configuration says otherwise."""
WRITING = 10.0
"""
Seconds without a step after which the event loop gives up what writes into the state folder. A
master that joins waits 15 s for the answer.
"""
GIVEN_UP = "what was begun may still be done when it responds"


class Trust(Pins):
    """
    The pinned peers below *state_dir*, and how they change.

    The file system may hang. So the event loop has all changes made in a thread, as in
    ``await trust.disk(trust.pin, peer)``.

    :param urls: name → URL, for peers that this master reaches at another URL than they tell.
    :param most: how many masters a group has at most, including this one.
    :param looks: looks at the folders.
    :ivar disk: the thread for operators and masters that join; also for other work below
        *state_dir*.
    :raises OSError: they cannot be made or read.
    :raises TrustError: as :func:`.identity.state_folder`.
    """

    def __init__(
        self,
        state_dir: Path,
        urls: Mapping[str, str] | None = None,
        most: int = MAX_MEMBERS,
        looks: Looks | None = None,
    ) -> None:
        looks = looks or Looks()
        self.removals = Removals(state_folder(state_dir), looks)
        self._most = most
        self._state_dir = state_dir
        self._undeletable: set[str] = set()
        """Barred peers whose files could not be deleted, as the log says."""
        self.disk = self.thread()
        # Several threads change the same file.
        self._pinning = threading.RLock()
        super().__init__(state_dir, urls or {}, self.removals, looks)

    def thread(self) -> DiskWork:
        """A new thread for changes. It begins when it is used, and ends when it is dropped."""
        return DiskWork(str(self._state_dir), WRITING, GIVEN_UP)

    def pin(self, peer: Peer) -> bool:
        """
        Trust *peer* from now on; pinning it again may change its URL.

        :return: whether that changed anything.
        :raises TrustError: the name is pinned with another certificate, or the certificate under
            another name; the certificate was removed from the group; the group is full; or the
            folder cannot be written.
        """
        with self._changing():
            return self._pin(peer)

    def _pin(self, peer: Peer) -> bool:
        self.check(peer)
        path = self._file(peer.name)
        data = peer_files.encode(replace(peer, added=peer.added or _now()))
        if create_whole(path, data):
            log.info("peer pinned name=%s fingerprint=%s", peer.name, pinning.short(peer))
            return True
        there = peer_files.read(path)
        if self.removals.barred(there):
            self.unpin(peer.name)  # an earlier removal was interrupted after its note
            return self._pin(peer)
        if there.certificate in peer.former:
            return self.renew(peer.name, (*peer.former, peer.certificate))
        now = pinning.merged(there, peer)
        if now == there:
            return False
        write_whole(path, peer_files.encode(now))
        if there.url != peer.url:
            log.info("peer moved name=%s url=%s", peer.name, peer.url)
        return True

    def check(self, *peers: Peer) -> None:
        """
        Check that :meth:`pin` would take all of *peers*; change nothing.

        :raises TrustError: as :meth:`pin`.
        """
        for peer in peers:
            if self.removals.barred(peer):
                raise TrustError(
                    f"{peer.name}: certificate {pinning.short(peer)} was removed from this group "
                    "and stays out; that master needs a new one (salt-run ha.leave on it, then "
                    "join)"
                )
            same = self.by_fingerprint(peer.fingerprint)
            pinning.check_certificate(peer, same, self._folder.pinned.get(peer.name))
        pinning.check_room(peers, self.pinned(), self._most)

    def renew(self, name: str, chain: Sequence[str]) -> bool:
        """
        Take over the new certificate of the pinned master *name*.

        :param chain: all certificates of that master, the oldest first.
        :return: whether it was news.
        :raises TrustError: no such peer, or its new certificate does not follow from the pinned,
            or cannot be written down.
        """
        with self._changing():
            peer = self.pinned().get(peer_files.checked_name(name))
            if peer is None:
                raise TrustError(f"{name}: no such peer")
            renewed = pinning.renewed(peer, chain)
            if renewed == peer:
                return False
            self.check(renewed)
            write_whole(self._file(name), peer_files.encode(renewed))
        log.info("peer renewed name=%s fingerprint=%s", name, pinning.short(renewed))
        return True

    def unpin(self, name: str) -> bool:
        """
        Stop trusting *name* at once, even on open connections; True if it was pinned.

        :raises TrustError: the folder cannot be written.
        """
        path = self._file(peer_files.checked_name(name))
        with self._changing():
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            sync_dir(self._peers_dir)
        log.info("peer unpinned name=%s", name)
        return True

    def remove(self, name: str) -> Removed:
        """
        Unpin *name*, and remember that its certificate must stay out.

        :raises TrustError: no such peer.
        """
        peer = self.pinned().get(peer_files.checked_name(name))
        if peer is None:
            known = ", ".join(sorted(self._folder.pinned)) or "none"
            raise TrustError(f"{name}: no such peer; pinned are: {known}")
        removed = Removed(peer.fingerprint, peer.name, _now())
        self.bar(removed)
        return removed

    def bar(self, removed: Removed) -> bool:
        """
        Note a removal (made here or told by a peer), and unpin the peer with that certificate.

        :return: whether it was news.
        :raises TrustError: the fingerprint is invalid, or the note cannot be written.
        """
        # Write the note first: after a crash in between, or if the file of the peer cannot be
        # deleted, the note still unpins the peer.
        self._refresh()
        news = self.removals.note(removed)
        for peer in self._folder.found.values():
            if removed.fingerprint in peer.fingerprints:
                # Others may know the removed master by another of its certificates: bar all.
                for other in peer.fingerprints:
                    self.removals.note(replace(removed, fingerprint=other))
                point("remove.unpin")
        self.delete_barred()
        return news

    def delete_barred(self) -> None:
        """Delete the files of barred peers; :meth:`undeleted` are those that cannot be."""
        with self._pinning:  # a peer may come back under such a name, with a file of that name
            for name in self.undeleted():
                try:
                    self.unpin(name)
                    self._undeletable.discard(name)
                except TrustError as exc:
                    if name not in self._undeletable:
                        log.warning("peer stays out, its file stays: name=%s %s", name, exc)
                    self._undeletable.add(name)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Work that changes the folder; what it changed counts at once."""
        with self._looks.writing_into(self._peers_dir), self._pinning:
            try:
                yield
            finally:
                self._refresh()

    def _file(self, name: str) -> Path:
        return self._peers_dir / f"{name}.json"


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
