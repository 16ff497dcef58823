"""Invitations, each of which is used once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from saltext_ha.common.errors import TokenError
from saltext_ha.membership.invites import Invites, name_of
from tests.threads import race


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


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


def test_an_invitation_that_cannot_be_read_now_stays(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with too many open files."""
    invites = Invites(state)
    made = invites.create(b"k" * 32, "prod", 600, False)
    token = invites.lay_down(name_of(made.id), "ha1.x")

    def fails(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("saltext_ha.membership.invites.read_plain", fails)
        with pytest.raises(TokenError, match="cannot be read: Too many open files"):
            invites.find(made.id, "joiner")
        invites.purge()
    assert invites.open() == {name_of(made.id): made.id}
    assert token.exists()


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
