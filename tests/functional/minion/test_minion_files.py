"""Another user of a minion's machine, who may write in its cache folder or where its pid stands."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.minion import files as minion_files
from saltext_ha.minion.restarting import restart
from saltext_ha.minion.watchdog.journal import ASKED, KEEP, Journal, RecordedMove
from saltext_ha.modules import ha as modules_ha
from saltext_ha.rollout import record
from saltext_ha.rollout.record import PUT_BACK, RolloutRecord
from saltext_ha.states import ha as states_ha

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be another user")

ENTRY = RecordedMove(time.time(), None, "10.0.0.1", ASKED)
CANARY = "root:*:19000:0:99999:7:::\n"
NOBODY = pwd.getpwnam("nobody") if os.geteuid() == 0 else None


@pytest.fixture
def cachedir() -> Iterator[Path]:
    """World-writable, as no minion's should be."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def his(path: Path) -> None:
    assert NOBODY
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)


def a_folder_of_his(cachedir: Path, canary: Path) -> None:
    (cachedir / "ha").mkdir(mode=0o755)
    for name in ("masters.jsonl", "multi_master.json"):
        (cachedir / "ha" / name).symlink_to(canary)
    his(cachedir / "ha")


def a_link_to_a_folder_of_his(cachedir: Path, canary: Path) -> None:
    a_folder_of_his(cachedir, canary)
    (cachedir / "ha").rename(cachedir / "there")
    (cachedir / "ha").symlink_to(cachedir / "there")


def an_open_folder(cachedir: Path, canary: Path) -> None:
    a_folder_of_his(cachedir, canary)
    os.chown(cachedir / "ha", 0, 0)
    (cachedir / "ha").chmod(0o777)


PLANTED = pytest.mark.parametrize(
    "plant", [a_folder_of_his, a_link_to_a_folder_of_his, an_open_folder]
)


@PLANTED
def test_nothing_is_written_through_what_he_planted(
    cachedir: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    canary = tmp_path / "shadow"
    canary.write_text(CANARY)
    plant(cachedir, canary)
    with pytest.raises(PermissionError, match="remove it"):
        Journal(cachedir).add(ENTRY)
    with pytest.raises(PermissionError, match="remove it"):
        record.write(str(cachedir), RolloutRecord(PUT_BACK, "", 0.0))
    assert canary.read_text() == CANARY


@PLANTED
def test_nothing_is_believed_that_he_tells(
    cachedir: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    Journal(tmp_path).add(ENTRY)
    record.write(str(tmp_path), RolloutRecord(PUT_BACK, "", time.time()))
    plant(cachedir, tmp_path / "none")
    for name in ("masters.jsonl", "multi_master.json"):
        planted = (cachedir / "ha").resolve() / name
        planted.unlink()
        planted.write_bytes((tmp_path / "ha" / name).read_bytes())
    assert Journal(cachedir).read() == []
    assert record.read(str(cachedir)) is None


@pytest.mark.timeout(60)
def test_a_pipe_of_the_minions_own_user_holds_root_up_no_longer_than_a_link(
    cachedir: Path, tmp_path: Path
) -> None:
    """The minion may run as another user; root runs salt-call beside it."""
    his(cachedir)
    (cachedir / "ha").mkdir(mode=0o700)
    his(cachedir / "ha")
    os.mkfifo(cachedir / "ha" / "masters.jsonl")
    os.mkfifo(cachedir / "ha" / "multi_master.json")
    assert Journal(cachedir).read() == []
    assert record.read(str(cachedir)) is None
    with pytest.raises(OSError, match="No such device"):  # nobody reads it
        Journal(cachedir).add(ENTRY)
    (cachedir / "ha" / "masters.jsonl").unlink()
    (cachedir / "ha" / "masters.jsonl").symlink_to(tmp_path / "new")
    with pytest.raises(OSError, match="symbolic links"):
        Journal(cachedir).add(ENTRY)
    assert not (tmp_path / "new").exists()


def test_what_was_looked_at_is_what_is_written(
    cachedir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He puts a folder of his in the place of the one that was found to be the minion's own."""
    (tmp_path / "masters.jsonl").write_text(CANARY)
    Journal(cachedir).add(ENTRY)
    really = os.open

    def swapped(path: str, *args: Any, **more: Any) -> int:
        if Path(path).name == "masters.jsonl" and not (cachedir / "was").exists():
            (cachedir / "ha").rename(cachedir / "was")
            (cachedir / "ha").symlink_to(tmp_path)
        return really(path, *args, **more)

    monkeypatch.setattr(os, "open", swapped)
    minion_files.append(Journal(cachedir).path, "one more\n")
    assert (cachedir / "was" / "masters.jsonl").read_text().endswith("\none more\n")
    assert (tmp_path / "masters.jsonl").read_text() == CANARY


def test_a_journal_that_is_cut_does_not_go_through_a_link(cachedir: Path, tmp_path: Path) -> None:
    """The minion runs as another user, whose folder it is; root runs salt-call beside it."""
    canary = tmp_path / "shadow"
    canary.write_text(CANARY)
    journal = Journal(cachedir)
    for _ in range(2 * KEEP):
        journal.add(ENTRY)
    journal.path.with_suffix(".new").symlink_to(canary)
    his(cachedir / "ha")
    his(cachedir)
    journal.add(ENTRY)
    assert len(journal.read()) == KEEP + 1
    assert canary.read_text() == CANARY


@PLANTED
def test_who_asks_is_told_what_he_planted(
    cachedir: Path,
    tmp_path: Path,
    plant: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert minion_files.problem(cachedir) is None
    Journal(cachedir).add(ENTRY)
    assert minion_files.problem(cachedir) is None
    shutil.rmtree(cachedir / "ha")
    plant(cachedir, tmp_path / "none")
    said = str(minion_files.problem(cachedir))
    assert (str(cachedir / "ha") in said, "remove it" in said) == (True, True)
    opts = {"conf_file": str(tmp_path / "minion"), "id": "web1", "cachedir": str(cachedir)}
    monkeypatch.setattr(states_ha, "__opts__", opts, raising=False)
    ret = states_ha.multi_master("x", ["10.0.0.1"])
    assert (ret["result"], said in ret["comment"]) == (False, True)
    monkeypatch.setattr(modules_ha, "__opts__", opts, raising=False)
    assert said in str(modules_ha._unkept())


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize("minion", ["root", "nobody"])
def test_all_of_it_is_its_owners_alone(cachedir: Path, umask: int, minion: str) -> None:
    """Root writes on a minion of another user: by salt-call."""
    if minion == "nobody":
        his(cachedir)
    before = os.umask(umask)
    try:
        Journal(cachedir).add(ENTRY)
        record.write(str(cachedir), RolloutRecord(PUT_BACK, "", 0.0))
        Journal(cachedir, "10.0.0.1").add(ENTRY)
    finally:
        os.umask(before)
    found = {path.name: path.stat() for path in [cachedir / "ha", *(cachedir / "ha").iterdir()]}
    modes = {name: oct(each.st_mode & 0o777) for name, each in found.items()}
    files = ("masters.jsonl", "masters-10.0.0.1.jsonl", "multi_master.json")
    assert modes == {"ha": "0o700", **dict.fromkeys(files, "0o600")}
    assert {each.st_uid for each in found.values()} == {pwd.getpwnam(minion).pw_uid}


def test_a_second_name_of_another_file_is_not_written(cachedir: Path) -> None:
    canary = cachedir / "shadow"
    canary.write_text(CANARY)
    (cachedir / "ha").mkdir(mode=0o700)
    os.link(canary, Journal(cachedir).path)
    with pytest.raises(OSError, match="not a plain file"):
        Journal(cachedir).add(ENTRY)
    assert canary.read_text() == CANARY


SWAPPER = """
import os, sys
os.setgid(65534); os.setuid(65534)
top, canary = sys.argv[1:]
his = os.path.join(top, "his")
os.makedirs(his)
for name in ("masters.jsonl", "multi_master.json"):
    os.symlink(canary, os.path.join(his, name))
ha, number = os.path.join(top, "ha"), 0
print(flush=True)
while True:
    number += 1
    was = os.path.join(top, f"was{number % 5}")
    for act in ((os.rename, ha, was), (os.symlink, his, ha), (os.unlink, ha),
                (os.rename, his, ha), (os.rename, ha, his)):
        try:
            act[0](*act[1:])
        except OSError:
            pass
"""


def test_whatever_he_swaps_while_it_is_written(cachedir: Path) -> None:
    """The folder, his own, and a link, exchanged as fast as he can."""
    with tempfile.TemporaryDirectory() as elsewhere:
        Path(elsewhere).chmod(0o755)
        canary = Path(elsewhere, "shadow")
        canary.write_text(CANARY)
        command = [sys.executable, "-c", SWAPPER, str(cachedir), str(canary)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout
                process.stdout.readline()
                done = {True: 0, False: 0}
                for number in range(300):
                    try:
                        Journal(cachedir).add(ENTRY)
                        record.write(str(cachedir), RolloutRecord(PUT_BACK, "", float(number)))
                        done[True] += 1
                    except OSError:
                        done[False] += 1
                print(done)
            finally:
                process.kill()
                process.wait()
        assert canary.read_text() == CANARY
        his_own = [path for path in cachedir.rglob("*") if path.is_file() and not path.is_symlink()]
        assert all(path.stat().st_uid == 0 for path in his_own)


def test_the_command_line_of_another_users_process_is_not_run() -> None:
    """Whose number he may have written where the pid of the minion stands."""
    assert NOBODY
    script = "import os; os.setgid(%d); os.setuid(%d); os.execv('/bin/sleep', ['minion', '60'])"
    command = [sys.executable, "-c", script % (NOBODY.pw_gid, NOBODY.pw_uid)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            status = Path(f"/proc/{process.pid}/cmdline")
            wait_for(lambda: status.read_bytes().startswith(b"minion"), 60, "it runs")
            with pytest.raises(HaError, match="another user's"):
                restart.way(process.pid, {})
            own = {"minion_restart_command": "restart it"}
            assert restart.way(process.pid, own).command == ("restart", "it")
        finally:
            process.kill()
