"""The join token: nobody sees it but who may join by it."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lab import Lab, Master, wait_for
from saltext_ha.membership.invites import name_of
from saltext_ha.membership.token import decode
from tests.integration.bus import Events, heard
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, group

TOKEN = re.compile(rb"ha1\\?\.[\w-]{40,}")


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """m1 and m2 run, and are not joined; the stranger was never started."""
    with group(make_lab, "m1", "m2", joined=False, config={"log_level_logfile": "debug"}) as lab:
        lab.add_master("stranger")
        yield lab


@contextmanager
def seen(*masters: Master) -> Iterator[list[str]]:
    """
    Tokens, and where other users of the machine, or of Salt, could see them from now on: events,
    lists of processes, and, in the end, everything that *masters* keep outside of ``pki/ha``.
    """
    found: list[str] = []
    over = threading.Event()
    home = masters[0].root.parent

    def watch() -> None:
        while not over.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    words = path.read_bytes()
                    # Of this lab: others may run on this machine, and test other releases.
                    ours = str(home).encode() in words
                    if TOKEN.search(words) and (ours or _works_in(path.parent, home)):
                        found.append(str(path))

    thread = threading.Thread(target=watch)
    thread.start()
    buses: list[Events] = []
    try:
        with heard(masters[0], "") as first, heard(masters[-1], "") as last:
            buses += [first, last]
            yield found
            # A runner's return is fired before it ends; what it fires last has come by then.
            wait_for(lambda: all(map(_returned, buses)), SOON, "the runners' returns are heard")
    finally:
        over.set()
        thread.join()
    found += [tag for bus in buses for tag, data in bus if TOKEN.search(repr(data).encode())]
    for master in masters:
        found += [str(path) for path in files(master) if TOKEN.search(path.read_bytes())]


def _works_in(process: Path, folder: Path) -> bool:
    return (process / "cwd").readlink().is_relative_to(folder)


def _returned(events: Events) -> bool:
    tags = {tag for tag, _ in events}
    begun = {tag for tag in tags if tag.startswith("salt/run/") and tag.endswith("/new")}
    return {tag[: -len("new")] + "ret" for tag in begun} <= tags


def files(master: Master) -> Iterator[Path]:
    """What others may come to read: job cache, logs, all but its state folder."""
    for path in master.root.rglob("*"):
        if path.is_file() and not path.is_relative_to(master.pki_dir / "ha"):
            yield path


def invitations(master: Master) -> list[Path]:
    return sorted((master.pki_dir / "ha" / "invites").glob("*.token"))


def test_an_invitation_by_salt_run_is_a_file_of_its_own(m1: Master) -> None:
    with seen(m1) as found:
        invited = m1.salt_run("ha.invite").check().data
        text = m1.salt_run_text("ha.invite").check().stdout
    assert found == []
    assert not TOKEN.search(text.encode())
    path = Path(invited["token_file"])
    assert path in invitations(m1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert name_of(decode(path.read_text()).invite) == invited["invitation"]
    assert str(path) in invited["command"]
    # By the id, which only the token tells, others could use it up.
    assert decode(path.read_text()).invite not in text + str(invited)
    # Both are open; the second one goes, and with it its file.
    (other,) = {one.stem for one in invitations(m1)} - {invited["invitation"]}
    assert m1.salt_run("ha.withdraw", other).check().data["notes"] == [
        f"invitation {other} is withdrawn"
    ]
    assert invitations(m1) == [path]
    assert m1.salt_run("ha.withdraw", other).returncode == 1


def test_nobody_sees_the_token_of_a_join(m1: Master, m2: Master, tmp_path: Path) -> None:
    copy = tmp_path / "token"
    with seen(m1, m2) as found:
        laid_down = Path(m1.salt_run("ha.invite").check().data["token_file"])
        copy.touch(mode=0o600)
        copy.write_text(laid_down.read_text())
        copy.chmod(0o644)
        open_to_all = m2.salt_run("ha.join", token_file=str(copy))
        assert open_to_all.returncode == 2
        assert "chmod 600" in open_to_all.data["error"]
        copy.chmod(0o600)
        plan = m2.salt_run("ha.join", token_file=str(copy), test=True).check().data
        assert plan["problems"] == []
        assert laid_down.exists()
        joined = m2.salt_run("ha.join", token_file=str(copy)).check().data
        assert joined["members"] == ["m1"]
        assert not laid_down.exists()
        # By standard input, and by a file of who calls: the same master once more.
        token = m1.invite()
        assert m2.join(token, test=True).check().data["problems"] == []
        m2.join(token).check()
        copy.write_text(m1.invite())
        m2.salt_ha("join", "--token-file", str(copy)).check()
    assert found == []


def test_an_invitation_is_printed_alone(m1: Master) -> None:
    printed = m1.cli("salt-ha", "invite", out=None).check()
    assert name_of(decode(printed.stdout).invite) in printed.stderr
    assert printed.stdout.strip() not in printed.stderr


def test_a_token_as_an_argument_is_refused(lab: Lab, m1: Master) -> None:
    stranger, token = lab.masters["stranger"], m1.invite()
    members = m1.control("status")["masters"]
    # Why it is refused; and what the other tests look for is found where it is.
    with seen(m1) as found:
        assert m1.salt_run("ha.join", token).returncode == 2
    for place in ("/proc/", "salt/run/", str(m1.root / "cache" / "jobs")):
        assert any(one.startswith(place) for one in found), place
    for answer in (
        stranger.salt_run("ha.join", token),
        stranger.salt_run("ha.join", token=token),
        stranger.salt_run("ha.join", token, test=True),
        stranger.salt_run("ha.join", token_file=token),
        stranger.salt_ha("join", token),
        stranger.salt_ha("join", f"token={token}", test=True),
    ):
        assert answer.returncode == 2, answer
        said = answer.stdout + answer.stderr
        assert "others may know that token" in said
        assert f"ha.withdraw {name_of(decode(token).invite)}" in said
        assert "salt-ha join --token-file -" in said
        assert token not in said
    assert not (stranger.pki_dir / "ha").exists()
    assert len(m1.control("status")["masters"]) == len(members)
    m1.salt_run("ha.withdraw").check()
    late = stranger.join(token)
    assert late.returncode == 2
    assert "not known here" in late.data["error"]
