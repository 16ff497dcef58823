"""The folder of pinned peers, which others change and damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from saltext_ha.common import files
from saltext_ha.common.errors import TrustError
from saltext_ha.common.file_looks import Looks
from saltext_ha.transport import pins
from saltext_ha.transport.peer_files import encode
from saltext_ha.transport.pins import RECENT
from saltext_ha.transport.trust import Trust
from tests.peers import some_peer

T = TypeVar("T")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


def test_another_process_pins_and_unpins(state: Path, tmp_path: Path) -> None:
    ours, theirs, peer = Trust(state), Trust(state), some_peer(tmp_path)
    for _ in range(20):
        theirs.pin(peer)
        assert set(ours.peers()) == {"m2"}
        theirs.unpin("m2")
        assert set(ours.peers()) == set()


def test_known_callers_are_let_in_by_a_look_a_moment_ago(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(pins, "boot_clock", lambda: now)
    ours, theirs = Trust(state), Trust(state)
    m2, m3 = some_peer(tmp_path), some_peer(tmp_path, "m3")
    theirs.pin(m2)
    assert ours.by_fingerprint(m2.fingerprint, RECENT), "new ones are looked for"
    theirs.unpin("m2")
    theirs.pin(m3)
    assert ours.by_fingerprint(m2.fingerprint, RECENT)
    now += RECENT
    assert ours.by_fingerprint(m2.fingerprint, RECENT) is None
    assert ours.by_fingerprint(m3.fingerprint, RECENT)
    ours.unpin("m3")
    assert ours.by_fingerprint(m3.fingerprint, RECENT) is None, "what we do counts at once"
    before = ours.generation(RECENT)
    ours.pin(m2)
    assert ours.generation(RECENT) != before


def test_configuration_overrides_the_address_here_only(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state, {"m2": "https://vpn:1"}), some_peer(tmp_path)
    trust.pin(peer)
    assert trust.peers()["m2"].url == "https://vpn:1"
    found = trust.by_fingerprint(peer.fingerprint)
    assert found is not None
    assert found.url == "https://vpn:1"
    assert trust.pinned()["m2"].url == peer.url


def test_a_damaged_file_is_reported_and_the_others_load(state: Path, tmp_path: Path) -> None:
    trust = Trust(state)
    good, other = some_peer(tmp_path), some_peer(tmp_path, "m3")
    trust.pin(good)
    trust.pin(other)
    path = state / "peers" / "m3.json"
    whole = path.read_bytes()
    content = json.loads(whole)
    swapped = {**content, "certificate": good.certificate}
    for damage in (
        b"",
        whole[:-20],
        b"[]",
        b"\xff",
        json.dumps({**content, "name": "m9"}).encode(),
        json.dumps({**content, "url": "http://x"}).encode(),
        json.dumps({**content, "certificate": "-----BEGIN"}).encode(),
        json.dumps({**content, "fingerprint": "00"}).encode(),
        json.dumps(swapped).encode(),
        json.dumps({**swapped, "fingerprint": good.fingerprint}).encode(),
    ):
        files.write_whole(path, damage)
        assert set(trust.peers()) == {"m2"}
        assert list(trust.problems()) == [str(path)]
        assert str(path) in trust.problems()[str(path)]
    files.write_whole(path, whole)
    assert set(trust.peers()) == {"m2", "m3"}
    assert trust.problems() == {}


def test_files_of_a_crash_are_overlooked(state: Path, tmp_path: Path) -> None:
    trust = Trust(state)
    trust.pin(some_peer(tmp_path))
    (state / "peers" / ".m3.json.abc").write_bytes(b"half")
    (state / "peers" / "m4.json~").write_bytes(b"an editor's")
    assert set(trust.peers()) == {"m2"}
    assert trust.problems() == {}


def test_a_folder_that_cannot_be_read_changes_nothing_and_is_said(
    state: Path, tmp_path: Path
) -> None:
    trust, m2, m3 = Trust(state), some_peer(tmp_path), some_peer(tmp_path, "m3")
    trust.pin(m2)
    before = trust.generation()
    there = (state / "peers").rename(tmp_path / "aside")
    (state / "peers").touch()
    assert (set(trust.peers()), trust.generation()) == ({"m2"}, before)
    (said,) = trust.problems().values()
    assert f"{state / 'peers'}: Not a directory; until it can be read" in said
    with pytest.raises(TrustError, match="peers: cannot be written: Not a directory"):
        trust.pin(m3)
    with pytest.raises(TrustError, match="peers: cannot be written: Not a directory"):
        trust.unpin("m2")
    (state / "peers").unlink()
    there.rename(state / "peers")
    assert trust.pin(m3)
    assert (set(trust.peers()), trust.problems()) == ({"m2", "m3"}, {})


def test_a_look_beside_another_one_is_enough_for_a_moment(state: Path, tmp_path: Path) -> None:
    looks = 0

    class Counted(Looks):
        def __call__(self, look: Callable[[], T]) -> T:
            nonlocal looks
            looks += 1
            return super().__call__(look)

    trust = Trust(state, looks=Counted())
    before = trust.generation()
    files.write_whole(state / "peers" / "m2.json", encode(some_peer(tmp_path)))
    trust.look()
    looks = 0
    assert trust.generation(60.0) > before
    assert looks == 0
    assert set(trust.peers()) == {"m2"}
    assert looks == 1, "who asks for the peers is told of those that are pinned now"


def test_a_crash_between_note_and_unpinning_does_not_keep_trust(
    state: Path, tmp_path: Path
) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    path = state / "peers" / "m2.json"
    left_over = path.read_bytes()
    trust.remove("m2")
    files.write_whole(path, left_over)
    assert Trust(state).peers() == {}
