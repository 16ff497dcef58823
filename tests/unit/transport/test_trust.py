"""How the pinned peers change: pinned, renewed, unpinned, removed."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from saltext_ha.common import file_looks
from saltext_ha.common.errors import TrustError
from saltext_ha.common.file_looks import Looks
from saltext_ha.transport.peer import make_peer
from saltext_ha.transport.removals import Removals, Removed
from saltext_ha.transport.trust import Trust
from tests.peers import some_peer
from tests.threads import race


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


def test_pin_and_unpin(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    assert trust.peers() == {}
    before = trust.generation()
    assert trust.pin(peer)
    assert trust.generation() > before
    assert trust.by_fingerprint(peer.fingerprint) == trust.peers()["m2"]
    assert trust.peers()["m2"].certificate == peer.certificate
    assert trust.peers()["m2"].added.endswith("+00:00")
    assert not trust.pin(peer)
    assert trust.unpin("m2")
    assert trust.peers() == {}
    assert trust.by_fingerprint(peer.fingerprint) is None
    assert not trust.unpin("m2")


def test_of_two_certificates_with_one_name_one_is_pinned(state: Path, tmp_path: Path) -> None:
    trusts = [Trust(state) for _ in range(10)]
    peers = [some_peer(tmp_path / str(n)) for n in range(10)]
    pairs = list(zip(trusts, peers, strict=True))

    def pin() -> str:
        trust, peer = pairs.pop()
        try:
            return str(trust.pin(peer))
        except TrustError as exc:
            return str(exc)

    told = sorted(map(str, race(10, pin)))
    assert told[0] == "True"
    assert ["pinned already with another certificate" in each for each in told[1:]] == [True] * 9


def test_one_certificate_has_one_name(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    with pytest.raises(TrustError, match="pinned already, as 'm2'"):
        trust.pin(make_peer("m3", peer.url, peer.certificate))


def test_there_is_room_for_all_or_for_none(state: Path, tmp_path: Path) -> None:
    trust = Trust(state, most=3)
    m2, m3, m4 = (some_peer(tmp_path, name) for name in ("m2", "m3", "m4"))
    trust.check(m2, m3)
    with pytest.raises(TrustError, match="this group has 3 masters already, and takes 3"):
        trust.check(m2, m3, m4)
    trust.pin(m2)
    trust.check(m2, m3)
    with pytest.raises(TrustError, match="this group has 3 masters already, and takes 3"):
        trust.check(m3, m4)
    trust.pin(m3)
    trust.check(m2, m3)
    with pytest.raises(TrustError, match=r"^m4: this group has 3 masters already, and takes 3"):
        trust.check(m4)


def test_removed_for_good(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    assert trust.remove("m2").fingerprint == peer.fingerprint
    assert trust.peers() == {}
    with pytest.raises(TrustError, match="was removed from this group"):
        trust.pin(peer)
    assert [note.name for note in trust.removals.notes()] == ["m2"]
    # The name is free for the machine that takes its place.
    assert trust.pin(some_peer(tmp_path / "new"))


def test_a_removal_bars_also_while_the_file_of_the_peer_is_there(
    state: Path, tmp_path: Path
) -> None:
    """As it stays if it cannot be deleted, or if the process that removes the peer is killed."""
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    generation = trust.generation()
    Removals(state, Looks()).note(Removed(peer.fingerprint, peer.name))
    assert (state / "peers" / "m2.json").exists()
    assert trust.by_fingerprint(peer.fingerprint) is None
    assert trust.peers() == trust.pinned() == {}
    assert trust.generation() > generation  # so its connections end
    # Again, now that the folder can be written.
    trust.bar(Removed(peer.fingerprint, peer.name))
    assert not (state / "peers" / "m2.json").exists()


def test_a_removal_is_done_although_the_file_of_the_peer_cannot_be_deleted(
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If it counted as failed, the others would not be told at once."""
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)

    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "m2.json":
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    removed = trust.remove("m2")
    assert removed.fingerprint == peer.fingerprint
    assert (state / "peers" / "m2.json").exists()
    assert trust.pinned() == {}
    assert not trust.bar(removed)  # as a peer may tell of it, too
    assert caplog.text.count("its file stays") == 1
    assert trust.undeleted() == {
        "m2": f"{state}/peers/m2.json: m2 was removed from the group and stays out, but this file "
        "of it could not be deleted; delete it"
    }
    monkeypatch.setattr(Path, "unlink", unlink)
    trust.delete_barred()
    assert trust.undeleted() == {}


def test_removing_nobody(state: Path) -> None:
    with pytest.raises(TrustError, match="pinned are: none"):
        Trust(state).remove("m2")
    for name in ("../m2", "", ".m2"):
        with pytest.raises(TrustError):
            Trust(state).unpin(name)


def test_who_introduced_a_peer_and_when_is_kept(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), replace(some_peer(tmp_path), introducer="m3")
    trust.pin(peer)
    there = Trust(state).pinned()["m2"]
    assert there.introducer == "m3"
    assert there.added
    # Telling of it again changes nothing; whoever lets it in here vouches for it.
    assert not trust.pin(replace(peer, introducer="m4"))
    assert trust.pin(replace(peer, introducer=""))
    assert trust.pinned()["m2"] == replace(there, introducer="")
    assert not trust.pin(peer)
    # A file of an older release says nothing.
    file = state / "peers" / "m2.json"
    content = json.loads(file.read_text())
    del content["introducer"]
    file.write_text(json.dumps(content))
    assert trust.pinned()["m2"].introducer is None
    file.write_text(json.dumps({**content, "introducer": "no name"}))
    assert trust.pinned()["m2"].introducer is None


def test_a_large_group_may_take_long_to_read_at_first(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six hundred certificates took more than a second, and the engine never started."""
    trust = Trust(state)
    trust.pin(some_peer(tmp_path))
    trust.pin(some_peer(tmp_path, "m3"))
    trust.remove("m3")
    monkeypatch.setattr(file_looks, "HANGS_AFTER", 0.0)
    again = Trust(state)
    assert (set(again.peers()), [note.name for note in again.removals.notes()]) == ({"m2"}, ["m3"])
