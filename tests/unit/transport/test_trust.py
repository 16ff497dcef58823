"""The identity of a master, and the folder of those it trusts."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from saltext_ha.common import files, looks
from saltext_ha.common.errors import TokenError, TrustError
from saltext_ha.membership.invites import Invites, name_of
from saltext_ha.transport import fingerprints, identity, tls
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer, Removed, make_peer
from saltext_ha.transport.trust import Trust


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


def some_peer(tmp_path: Path, name: str = "m2") -> Peer:
    made = identity.load_or_create(tmp_path / f"of-{name}", name)
    return make_peer(name, "https://10.0.0.2:4530", made.certificate)


def race(count: int, action: object) -> list[object]:
    start, results = threading.Barrier(count), []

    def run() -> None:
        start.wait()
        results.append(action())  # type: ignore[operator]

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# identity


def test_an_identity_is_made_once_and_kept(state: Path) -> None:
    made = identity.load_or_create(state, "m1")
    assert identity.load_or_create(state, "m1") == made
    assert state.stat().st_mode & 0o777 == 0o700
    assert made.key_file.stat().st_mode & 0o777 == 0o600
    assert made.fingerprint == fingerprints.of_pem(made.certificate)
    assert len(made.fingerprint) == 95


def test_two_who_are_first_get_one_identity(state: Path) -> None:
    made = race(20, lambda: identity.load_or_create(state, "m1"))
    assert len(made) == 20
    assert len({one.fingerprint for one in made if isinstance(one, Identity)}) == 1
    assert not [path for path in state.iterdir() if path.name.startswith(".")]


def test_a_crash_between_key_and_certificate_is_finished(state: Path) -> None:
    made = identity.load_or_create(state, "m1")
    made.certificate_file.unlink()
    again = identity.load_or_create(state, "m1")
    assert again.key_file.read_bytes() == made.key_file.read_bytes()
    tls.server_context(again, [])


def test_renewing_makes_another(state: Path) -> None:
    made = identity.load_or_create(state, "m1")
    assert identity.renew(state, "m1").fingerprint != made.fingerprint


def test_open_modes_are_closed(state: Path) -> None:
    made = identity.load_or_create(state, "m1")
    made.key_file.chmod(0o644)
    state.chmod(0o755)
    identity.load_or_create(state, "m1")
    assert made.key_file.stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damaged", [identity.KEY_FILE, identity.CERTIFICATE_FILE])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe"])
def test_damage_is_named(state: Path, damaged: str, content: bytes) -> None:
    identity.load_or_create(state, "m1")
    (state / damaged).write_bytes(content)
    with pytest.raises(TrustError, match=str(state)):
        identity.load_or_create(state, "m1")


def test_halves_of_different_identities(state: Path, tmp_path: Path) -> None:
    made = identity.load_or_create(state, "m1")
    other = identity.load_or_create(tmp_path / "other", "m1")
    made.key_file.write_bytes(other.key_file.read_bytes())
    with pytest.raises(TrustError, match="does not belong to"):
        identity.load_or_create(state, "m1")
    made.key_file.unlink()
    with pytest.raises(TrustError, match="missing"):
        identity.load_or_create(state, "m1")


# trust


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


def test_another_process_pins_and_unpins(state: Path, tmp_path: Path) -> None:
    ours, theirs, peer = Trust(state), Trust(state), some_peer(tmp_path)
    for _ in range(20):
        theirs.pin(peer)
        assert set(ours.peers()) == {"m2"}
        theirs.unpin("m2")
        assert set(ours.peers()) == set()


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


def test_removed_for_good(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    assert trust.remove("m2").fingerprint == peer.fingerprint
    assert trust.peers() == {}
    with pytest.raises(TrustError, match="was removed from this group"):
        trust.pin(peer)
    assert [note.name for note in trust.removed()] == ["m2"]
    # The name is free for the machine that takes its place.
    assert trust.pin(some_peer(tmp_path / "new"))


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


def test_a_damaged_note_still_bars(state: Path, tmp_path: Path) -> None:
    trust, peer = Trust(state), some_peer(tmp_path)
    trust.pin(peer)
    trust.remove("m2")
    next((state / "removed").iterdir()).write_bytes(b"")
    assert [note.fingerprint for note in trust.removed()] == [peer.fingerprint]
    with pytest.raises(TrustError):
        trust.pin(peer)


def test_removing_nobody(state: Path) -> None:
    with pytest.raises(TrustError, match="pinned are: none"):
        Trust(state).remove("m2")
    for name in ("../m2", "", ".m2"):
        with pytest.raises(TrustError):
            Trust(state).unpin(name)


def test_the_bytes_of_a_fingerprint() -> None:
    assert fingerprints.digest(fingerprints.of(b"x")) == hashlib.sha256(b"x").digest()


@pytest.mark.parametrize("text", ["", "abcd", "aa:bb", "z" * 95, "aa" * 32, ":".join(["AA"] * 32)])
def test_what_is_no_fingerprint_has_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        fingerprints.digest(text)


@pytest.mark.parametrize("fingerprint", ["", "../x", "aa:bb", "a" * 95])
def test_only_certificates_are_barred(state: Path, fingerprint: str) -> None:
    trust = Trust(state)
    with pytest.raises(TrustError, match="is not the fingerprint of a certificate"):
        trust.bar(Removed(fingerprint, "m2"))
    assert trust.removed() == []


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


def test_a_large_group_may_take_long_to_read_at_first(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six hundred certificates took more than a second, and the engine never started."""
    trust = Trust(state)
    trust.pin(some_peer(tmp_path))
    trust.pin(some_peer(tmp_path, "m3"))
    trust.remove("m3")
    monkeypatch.setattr(looks, "PATIENCE", 0.0)
    again = Trust(state)
    assert (set(again.peers()), [note.name for note in again.removed()]) == ({"m2"}, ["m3"])


def test_notes_of_removals_that_cannot_be_read_still_count(state: Path, tmp_path: Path) -> None:
    trust, m3 = Trust(state), some_peer(tmp_path, "m3")
    trust.pin(some_peer(tmp_path))
    trust.pin(m3)
    trust.remove("m2")
    known = trust.removed()
    (state / "removed").rename(tmp_path / "aside")
    assert trust.removed() == known
    (state / "removed").touch()
    with pytest.raises(TrustError, match="removed: cannot be written: Not a directory"):
        trust.remove("m3")
    assert set(trust.peers()) == {"m3"}


# invitations


def test_of_fifty_threads_one_uses_the_invitation(state: Path) -> None:
    made = Invites(state).create(b"k" * 32, "prod", 600, False)
    numbers = list(range(50))

    def use() -> object:
        return Invites(state).consume(made.id, f"joiner {numbers.pop()}")

    assert sum(map(bool, race(50, use))) == 1


def test_expired_invitations_are_cleared_away(state: Path) -> None:
    invites = Invites(state)
    used = invites.create(b"k" * 32, "prod", -1, False)
    invites.consume(used.id, "joiner")
    (state / "invites" / "damaged.json").write_bytes(b"")
    kept = invites.create(b"k" * 32, "prod", 600, False)
    assert [path.stem for path in (state / "invites").iterdir()] == [kept.id]


def test_a_token_in_a_file_goes_with_its_invitation(state: Path) -> None:
    invites = Invites(state)
    ids = [invites.create(b"k" * 32, "prod", 600, False).id for _ in range(4)]
    used, taken_back, expired, kept = ids
    paths = {one: invites.lay_down(name_of(one), "ha1.x") for one in ids}
    assert {path.stat().st_mode & 0o777 for path in paths.values()} == {0o600}
    assert not any(one in str(paths[one]) for one in ids), "the id is for who has the token"
    assert invites.consume(used, "joiner")
    invites.discard(taken_back)
    assert not paths[used].exists()
    assert not paths[taken_back].exists()
    open_one = state / "invites" / f"{expired}.json"
    open_one.write_text(open_one.read_text().replace('"expires": 1', '"expires": 0'))
    assert invites.open() == {name_of(kept): kept}
    assert not paths[expired].exists()
    assert paths[kept].read_text() == "ha1.x\n"
    assert invites.used() == {name_of(used)}


@pytest.mark.parametrize("invite_id", [None, 7, "", "../peers/m2", "0" * 31, "0" * 32 + "\n"])
def test_no_invitation(state: Path, invite_id: object) -> None:
    with pytest.raises(TokenError, match="not known here"):
        Invites(state).find(invite_id, "joiner")


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
