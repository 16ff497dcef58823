"""The identity of a master."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from saltext_ha.common.errors import TrustError
from saltext_ha.membership.invites import Invites
from saltext_ha.transport import fingerprints, identity, tls
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.trust import Trust
from tests.threads import race


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "ha"


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


@pytest.mark.parametrize("renewals", [0, 1])
def test_open_modes_are_closed(state: Path, renewals: int) -> None:
    made = identity.load_or_create(state, "m1")
    for _ in range(renewals):
        made = identity.succeed(state, "m1")
    made.key_file.chmod(0o644)
    state.chmod(0o755)
    identity.load_or_create(state, "m1")
    assert made.key_file.stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: identity.load_or_create(folder, "m1"),
        Trust,
        Invites,
    ],
    ids=["identity", "trust", "invites"],
)
def test_a_folder_that_others_use_stays_open(state: Path, use: Callable[[Path], object]) -> None:
    """``ha: state_dir: /var/lib``: whoever closes that to others breaks the machine."""
    (state / "dpkg").mkdir(parents=True)
    state.chmod(0o755)
    with pytest.raises(TrustError, match=r"mode 0755.*state_dir: .*ha/salt-ha"):
        use(state)
    assert state.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in state.iterdir()] == ["dpkg"]


@pytest.mark.parametrize(
    ("mode", "content"),
    [(0o755, ()), (0o755, ("lost+found",)), (0o700, ("notes",)), (0o755, ("replica.db",))],
)
def test_a_folder_that_nobody_else_uses_is_taken(
    state: Path, mode: int, content: tuple[str, ...]
) -> None:
    state.mkdir()
    for name in content:
        (state / name).mkdir()
    state.chmod(mode)
    identity.load_or_create(state, "m1")
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
