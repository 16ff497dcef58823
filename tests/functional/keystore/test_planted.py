"""Links, pipes and other users: what somebody with a foot in a folder may plant there."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.engines import Engine, Place
from saltext_ha.common.errors import HaError, TokenError, TrustError
from saltext_ha.keystore.base import Change
from saltext_ha.keystore.files import FileStore
from saltext_ha.keystore.minion_key import fingerprint
from saltext_ha.keystore.reading import read_key
from saltext_ha.membership.invites import Invites
from saltext_ha.replication.plan import PUT, Step
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.transport import identity
from saltext_ha.transport.control_server import ControlServer
from saltext_ha.transport.trust import Trust
from tests.functional.keepers import Master
from tests.keys import public_key
from tests.loop import in_a_loop

SECRET = "root:$6$canary:19000:0:99999:7:::\n"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file like /etc/shadow, but for its mode."""
    path = tmp_path / "canary"
    path.write_text(SECRET)
    path.chmod(0o644)
    return path


@pytest.fixture
def place() -> Iterator[Place]:
    # A short path: unix sockets lie below.
    with tempfile.TemporaryDirectory(prefix="ha-") as folder:
        yield Place(Path(folder), "m1")


def untouched(path: Path) -> bool:
    if path.is_dir():
        return stat.S_IMODE(path.stat().st_mode) == 0o755 and not list(path.iterdir())
    return path.read_text() == SECRET and stat.S_IMODE(path.stat().st_mode) == 0o644


# -- the state folder


@pytest.mark.parametrize("name", ["", "peers", "removed", "invites"])
def test_a_folder_of_the_state_that_is_a_link(tmp_path: Path, name: str) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    if name:
        state.mkdir(mode=0o700)
    (state / name if name else state).symlink_to(elsewhere)
    with pytest.raises(TrustError, match="is a link"):
        Invites(state) if name == "invites" else Trust(state)
    assert untouched(elsewhere)


@pytest.mark.parametrize("name", [identity.KEY_FILE, identity.CERTIFICATE_FILE])
def test_an_identity_that_is_a_link(tmp_path: Path, canary: Path, name: str) -> None:
    state = tmp_path / "state"
    identity.load_or_create(state, "m1")
    (state / name).unlink()
    (state / name).symlink_to(canary)
    with pytest.raises(TrustError, match="is a link") as caught:
        identity.load_or_create(state, "m1")
    assert "canary:" not in str(caught.value)
    assert untouched(canary)


@pytest.mark.parametrize("name", ["replica.db", "replica.db-wal"])
def test_a_replica_that_is_a_link(place: Place, canary: Path, name: str) -> None:
    place.config.state_dir.mkdir(mode=0o700)
    (place.config.state_dir / name).symlink_to(canary)

    async def main() -> None:
        async with Engine(place):
            pass

    with pytest.raises(HaError, match="is a link"):
        asyncio.run(main())
    assert untouched(canary)


def _link(path: Path, canary: Path) -> None:
    path.symlink_to(canary)


def _pipe(path: Path, canary: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [_link, _pipe])
@pytest.mark.timeout(60)
def test_pins_notes_and_invitations_that_are_no_files(
    tmp_path: Path, canary: Path, plant: Callable[[Path, Path], None]
) -> None:
    """None of them is read; a pipe, which nobody writes to, holds nothing up."""
    state = tmp_path / "state"
    trust, invites = Trust(state), Invites(state)
    plant(state / "peers" / "m9.json", canary)
    plant(state / "removed" / f"{'0' * 64}.json", canary)
    plant(state / "invites" / f"{'0' * 32}.json", canary)
    assert trust.peers() == {}
    assert [Path(file).name for file in trust.problems()] == ["m9.json"]
    assert [note.name for note in trust.removals.notes()] == [""]
    with pytest.raises(TokenError, match="cannot be read"):
        invites.find("0" * 32, "")
    invites.purge()
    assert not list((state / "invites").iterdir())
    assert untouched(canary)


# -- the key folders


def test_a_key_folder_that_is_a_link(m1: Master, m2: Master, tmp_path: Path) -> None:
    """It is followed, as Salt does; what lies there and is no key goes nowhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shadow").write_text(SECRET)
    private = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    (elsewhere / "master.pem").write_text(private)
    folder = m1.root / "minions"
    if folder.exists():
        shutil.rmtree(folder)
    folder.symlink_to(elsewhere)
    m1.scan_once()
    m1.keeper.observe(["shadow", "master.pem"], certain=True)
    assert set(m1.keeper.refused.reasons) == {"shadow", "master.pem"}
    assert m1.replica.get("shadow") == m1.replica.get("master.pem") == {}
    assert sorted(path.name for path in elsewhere.glob("[!.]*")) == ["master.pem", "shadow"]


def test_a_link_under_our_temporary_name_is_not_written_through(
    tmp_path: Path, canary: Path
) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "minions").mkdir()
    temporary = tmp_path / "minions" / f".{os.getpid()}.0.ha"
    temporary.symlink_to(canary)
    target = tmp_path / "minions" / "web1"
    key = fingerprint(public_key(0))
    store.apply([Change("web1", [Step(PUT, ACCEPTED, key)], {key: public_key(0)})])
    assert untouched(canary)
    assert target.read_text() == public_key(0)
    assert not target.is_symlink()


@pytest.mark.timeout(60)
def test_a_pipe_that_took_the_place_of_a_key_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web1")
    assert read_key(str(tmp_path / "web1")) is None


# -- the control socket, and other users of the machine


def test_a_control_socket_that_is_a_link(tmp_path: Path, canary: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ha-") as folder:
        path = Path(folder) / "control.ipc"
        path.symlink_to(canary)

        async def main() -> None:
            server = ControlServer(path, {})
            await server.start()
            try:
                assert stat.S_ISSOCK(path.lstat().st_mode)
            finally:
                await server.stop()

        asyncio.run(main())
    assert untouched(canary)


@in_a_loop
async def test_another_user_of_the_machine_gets_nowhere(place: Place) -> None:
    """With every folder above open to all, as Salt's own are; by modes where we are not root."""
    for folder in (place.root, place.folder, place.pki_dir, Path(place.opts["sock_dir"])):
        folder.chmod(0o755)
    state, control = place.config.state_dir, place.config.control_socket
    refused: list[str] = []

    async with Engine(place):
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE((state / identity.KEY_FILE).stat().st_mode) == 0o600
        assert stat.S_IMODE(control.stat().st_mode) == 0o600
        if os.geteuid() == 0:
            tries: dict[str, Callable[[], object]] = {
                "socket": lambda: socket.socket(socket.AF_UNIX).connect(str(control)),
                "list": lambda: os.listdir(state),  # noqa: PTH208
                "key": lambda: (state / identity.KEY_FILE).read_bytes(),
                "replica": lambda: (state / "replica.db").read_bytes(),
                "plant": lambda: (state / "peers" / "evil.json").write_text("{}"),
                "unlink": control.unlink,
            }
            refused.extend(name for name, attempt in tries.items() if _refused(attempt))
            assert refused == list(tries)


def _refused(attempt: Callable[[], object]) -> bool:
    """Whether *attempt*, made by the user nobody, fails for lack of permission."""
    nobody = pwd.getpwnam("nobody")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
            attempt()
        except PermissionError:
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0
