"""The notes of removed certificates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from saltext_ha.common.errors import TrustError
from saltext_ha.transport.removals import Removed
from saltext_ha.transport.trust import Trust
from tests.peers import some_peer


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


def test_a_damaged_note_still_bars(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    trust.remove("m2")
    next((state / "removed").iterdir()).write_bytes(b"")
    assert [note.fingerprint for note in trust.removals.notes()] == [peer.fingerprint]
    with pytest.raises(TrustError):
        trust.pin(peer)


@pytest.mark.parametrize("name", ["{}.bak.json", "copy-of-{}.json", "{}.json~", "x.json"])
def test_other_files_beside_the_notes_bar_nobody(state: Path, tmp_path: Path, name: str) -> None:
    """They were offered to all peers, which refused them in a note of ``ha.status``."""
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    trust.remove("m2")
    (note,) = (state / "removed").iterdir()
    shutil.copy(note, note.with_name(name.format(note.stem)))
    assert [removed.fingerprint for removed in trust.removals.notes()] == [peer.fingerprint]


@pytest.mark.parametrize("fingerprint", ["", "../x", "aa:bb", "a" * 95])
def test_only_certificates_are_barred(state: Path, fingerprint: str) -> None:
    trust = Trust(state)
    with pytest.raises(TrustError, match="is not the fingerprint of a certificate"):
        trust.bar(Removed(fingerprint, "m2"))
    assert trust.removals.notes() == []


def test_notes_of_removals_that_cannot_be_read_still_count(state: Path, tmp_path: Path) -> None:
    trust, m3 = Trust(state), some_peer(tmp_path, "m3")
    trust.pin(some_peer(tmp_path))
    trust.pin(m3)
    trust.remove("m2")
    known = trust.removals.notes()
    (state / "removed").rename(tmp_path / "aside")
    assert trust.removals.notes() == known
    (state / "removed").touch()
    with pytest.raises(TrustError, match="removed: cannot be written: Not a directory"):
        trust.remove("m3")
    assert set(trust.peers()) == {"m3"}
