"""Many keys at once: made durable side by side, each file whole, and in a safe order."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from lab.engines import Engine, Place
from saltext_ha.common.errors import StoreError
from saltext_ha.keystore import folders, minion_key, writing
from saltext_ha.keystore.base import Change, Outcome
from saltext_ha.keystore.files import FileStore
from saltext_ha.keystore.folders import FOLDERS
from saltext_ha.replication.plan import DENY, PUT, REMOVE, UNDENY, Step
from saltext_ha.replication.record import ACCEPTED, PENDING, REJECTED
from tests.begun import threads_begun
from tests.functional.keystores import shown
from tests.keys import public_key
from tests.loop import in_a_loop

pytestmark = pytest.mark.core

A, B = public_key(0), public_key(1)
KEYS = {minion_key.fingerprint(text): text for text in (A, B)}
UNDISTURBED = Outcome(set(), {}, set())
IDS = [f"web{number}" for number in range(writing.AT_ONCE * 2 + 3)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in FOLDERS.values():
        (tmp_path / folder).mkdir()
    return tmp_path


def key_of(number: int) -> bytes:
    return list(KEYS)[number % 2]


def moves() -> list[Change]:
    """From pending to accepted, every id; two keys by turns."""
    return [
        Change(minion_id, [Step(PUT, ACCEPTED, key), Step(REMOVE, PENDING, key)], KEYS)
        for minion_id, key in ((i, key_of(number)) for number, i in enumerate(IDS))
    ]


def knock(root: Path, end: str = "\n") -> None:
    """With an *end* that we do not write: such files are written anew, not moved."""
    for number, minion_id in enumerate(IDS):
        (root / "minions_pre" / minion_id).write_text(KEYS[key_of(number)] + end)


def knocked_long_ago(root: Path) -> None:
    knock(root, end="")
    for path in (root / "minions_pre").iterdir():
        path.chmod(0o600)
        os.utime(path, (1, 1))


def inodes(root: Path, folder: str) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (root / folder).iterdir()}


def name_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def descriptors(root: Path) -> set[tuple[str, str]]:
    """Those of this process below *root*; other tests may open and close some at any time."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found.add((each.name, str(each.readlink())))
    return {each for each in found if each[1].startswith(str(root))}


def names(root: Path, folder: str) -> set[str]:
    return {path.name for path in (root / folder).iterdir()}


def test_every_file_holds_its_own_key(root: Path) -> None:
    knock(root)
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert names(root, "minions") == set(IDS)
    assert not names(root, "minions_pre")
    for number, minion_id in enumerate(IDS):
        assert (root / "minions" / minion_id).read_text() == KEYS[key_of(number)]


def test_they_are_made_durable_side_by_side(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each waits for the disk until all the others do.
    together = threading.Barrier(writing.WAITERS, timeout=30)
    waited = []
    fsync = os.fsync

    def wait(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert name_of(descriptor).endswith(".ha"), "durable before it has its name"
            waited.append(together.wait())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    knock(root)
    whole = 2 * writing.AT_ONCE
    FileStore(root).apply(moves()[:whole])
    assert names(root, "minions") == set(IDS[:whole])
    assert len(waited) == whole


def test_while_some_become_durable_the_next_are_drafted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = 2 * writing.AT_ONCE
    all_drafted, fsync, draft = threading.Event(), os.fsync, writing.draft
    drafted = []

    def wait(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert all_drafted.wait(30), f"{len(drafted)} are drafted"
        fsync(descriptor)

    def note(temporary: str, text: str, *, mode: int, uid: int) -> writing.Draft:
        drafted.append(temporary)
        if len(drafted) == whole:
            all_drafted.set()
        return draft(temporary, text, mode=mode, uid=uid)

    monkeypatch.setattr(os, "fsync", wait)
    monkeypatch.setattr(writing, "draft", note)
    FileStore(root).apply(moves()[:whole])
    assert names(root, "minions") == set(IDS[:whole])


@pytest.fixture
def synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which folders were made durable, in this order, and how many keys were pending then."""
    found = []

    def note(folder: str) -> None:
        found.append((Path(folder).name, len(names(root, "minions_pre"))))

    monkeypatch.setattr(folders, "sync_dir", note)
    return found


def test_folders_are_durable_once_a_batch_and_before_anything_goes(
    root: Path, synced: list[tuple[str, int]]
) -> None:
    knock(root)
    FileStore(root).apply(moves())
    assert synced == [("minions", len(IDS)), ("minions_pre", 0)]


def failing(monkeypatch: pytest.MonkeyPatch, code: int, when: Callable[[str], bool]) -> list[str]:
    """Renames onto these names fail; the names that were tried."""
    tried: list[str] = []
    rename = os.rename

    def fail(source: str, target: str) -> None:
        tried.append(target)
        if when(Path(target).name):
            raise OSError(code, os.strerror(code))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    return tried


def test_a_full_disk_ends_all_and_removes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knock(root)
    tried = failing(monkeypatch, errno.ENOSPC, lambda name: True)
    threads = threads_begun(monkeypatch)
    with pytest.raises(StoreError, match="No space left"):
        FileStore(root).apply(moves())
    assert not [each for each in threads if each.is_alive()]
    assert len(tried) == 1
    assert names(root, "minions_pre") == set(IDS)
    assert not names(root, "minions"), "nothing unfinished stays, either"


def test_what_there_is_room_for_is_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a disk that is nearly full would be filled, and emptied, again and again."""
    before, room, draft = descriptors(root), writing.AT_ONCE + 5, writing.draft

    def drafted(temporary: str, text: str, *, mode: int, uid: int) -> writing.Draft:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return draft(temporary, text, mode=mode, uid=uid)

    monkeypatch.setattr(writing, "draft", drafted)
    with pytest.raises(StoreError, match="No space left"):
        FileStore(root).apply(moves())
    assert names(root, "minions") == set(IDS[: writing.AT_ONCE + 5])
    assert not descriptors(root) - before


def failing_sync(
    monkeypatch: pytest.MonkeyPatch, code: int, when: Callable[[str], bool]
) -> list[str]:
    """What has such a path cannot be made durable; the paths that were."""
    tried: list[str] = []
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        tried.append(name_of(descriptor))
        if when(tried[-1]):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    return tried


@pytest.mark.parametrize("prepare", [knock, lambda root: None], ids=["moved", "new"])
def test_a_file_that_cannot_be_made_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Path], None]
) -> None:
    prepare(root)
    before = descriptors(root)
    with monkeypatch.context() as patch:
        bad = (".17.ha", f".{17 + writing.AT_ONCE}.ha")
        failing_sync(patch, errno.EIO, lambda path: path.endswith(bad))
        failed = FileStore(root).apply(moves()).failed
    assert set(failed) == {IDS[17], IDS[17 + writing.AT_ONCE]}
    assert names(root, "minions") == {*IDS} - failed.keys()
    failing_sync(monkeypatch, errno.ENOSPC, lambda path: path.endswith(".0.ha"))
    with pytest.raises(StoreError, match="No space left"):
        FileStore(root).apply(moves())
    assert names(root, "minions") == {*IDS} - failed.keys(), "nothing unfinished stays"
    assert not descriptors(root) - before


def test_a_file_that_cannot_be_closed_leaves_no_other_open(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may say then that the disk is full."""
    knock(root)
    before, close = descriptors(root), os.close

    def fail(descriptor: int) -> None:
        name = name_of(descriptor)
        close(descriptor)
        if "/minions/" in name:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "close", fail)
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert not descriptors(root) - before
    assert names(root, "minions") == set(IDS)


def test_what_somebody_cleans_up_is_written_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine that starts on the same folder, for instance."""
    knock(root)
    rename, gone = os.rename, []

    def removed(source: str, target: str) -> None:
        if Path(target).name in IDS[3:100] and target not in gone:
            gone.append(target)
            Path(source).unlink()
        rename(source, target)

    monkeypatch.setattr(os, "rename", removed)
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert len(gone) == 97
    assert names(root, "minions") == set(IDS)


def test_what_is_cleaned_up_again_and_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, errno.ENOENT, lambda name: name == IDS[3])
    with pytest.raises(StoreError, match=f"minions/{IDS[3]}: a temporary file vanished"):
        FileStore(root).apply(moves())


def test_one_bad_file_holds_up_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knock(root)
    bad = set(IDS[3:5])
    failing(monkeypatch, errno.EIO, lambda name: name in bad)
    missing, failed, _ = FileStore(root).apply(moves())
    assert not missing
    assert set(failed) == bad
    assert names(root, "minions") == {*IDS} - bad
    assert names(root, "minions_pre") == bad


def test_a_folder_that_is_missing_is_made(root: Path) -> None:
    knock(root)
    (root / "minions").rmdir()
    FileStore(root).apply(moves())
    assert names(root, "minions") == set(IDS)


# -- the same file under another name


def test_what_nobody_writes_any_more_is_not_written_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch, synced: list[tuple[str, int]]
) -> None:
    durable: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: durable.add(os.fstat(file).st_ino))
    knocked_long_ago(root)
    before = inodes(root, "minions_pre")
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert inodes(root, "minions") == before
    assert durable == {*before.values()}
    assert synced == [("minions", len(IDS)), ("minions_pre", 0)]


def test_it_may_take_the_place_of_another_key(root: Path) -> None:
    knocked_long_ago(root)
    for number, minion_id in enumerate(IDS):
        (root / "minions" / minion_id).write_text(KEYS[key_of(number + 1)])
    store = FileStore(root)
    changes = [change._replace(shown=shown(store, change.minion_id)) for change in moves()]
    assert store.apply(changes) == UNDISTURBED
    for number, minion_id in enumerate(IDS):
        assert (root / "minions" / minion_id).read_text() == KEYS[key_of(number)]
    assert not names(root, "minions_pre")


@pytest.mark.parametrize("again", [A, B])
@pytest.mark.parametrize("replaces", [False, True])
def test_what_somebody_puts_there_meanwhile_stays(root: Path, again: str, replaces: bool) -> None:
    """Also when it is the same key: it is their decision, too."""
    knocked_long_ago(root)
    if replaces:
        (root / "minions" / IDS[0]).write_text(public_key(2))
    store = FileStore(root)
    seen = shown(store, IDS[0])
    (root / "minions" / IDS[0]).write_text(again)
    first, *rest = moves()
    assert store.apply([first._replace(shown=seen), *rest]) == Outcome(set(), {}, {IDS[0]})
    assert (root / "minions" / IDS[0]).read_text() == again
    assert names(root, "minions_pre") == {IDS[0]}
    assert names(root, "minions") == set(IDS)


def test_what_somebody_puts_there_at_the_last_moment_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look at the place, and before the file has its name there."""
    knocked_long_ago(root)
    link, accepted = os.link, root / "minions" / IDS[0]

    def late(source: str, target: str, **how: int) -> None:
        if not accepted.exists():
            accepted.write_text(B)
        link(source, target, **how)

    monkeypatch.setattr(os, "link", late)
    assert FileStore(root).apply(moves()) == Outcome(set(), {}, {IDS[0]})
    assert accepted.read_text() == B
    assert names(root, "minions_pre") == {IDS[0]}


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_it_is_as_one_that_was_written(root: Path, mode: int) -> None:
    knocked_long_ago(root)
    for path in (root / "minions_pre").iterdir():
        path.chmod(mode)
    FileStore(root, user="nobody", group_readable=True).apply(moves())
    for path in (root / "minions").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        if os.geteuid() == 0:
            assert path.stat().st_uid == pwd.getpwnam("nobody").pw_uid


def test_what_was_removed_or_replaced_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    target = tmp_path / "web1"
    target.write_text(A)
    ours = writing._linked(target.lstat())
    assert not writing.is_spoilt(str(target), ours)
    target.write_text(A[::-1])
    os.utime(target, (1, 2))
    assert writing.is_spoilt(str(target), ours), "as long as before"
    target.write_text("other")
    assert writing.is_spoilt(str(target), ours)
    target.rename(tmp_path / "away")
    target.write_text(A)
    assert not writing.is_spoilt(str(target), ours)
    target.unlink()
    assert not writing.is_spoilt(str(target), ours)


def linked(path: Path) -> None:
    path.with_name("another").hardlink_to(path)


def replaced_by_a_link(path: Path) -> None:
    path.rename(path.with_name("another"))
    path.symlink_to("another")


def just_written(path: Path) -> None:
    os.utime(path)


def written_in_the_future(path: Path) -> None:
    os.utime(path, (4e9, 4e9))


def with_another_key(path: Path) -> None:
    path.write_text(KEYS[key_of(1)])
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    "change",
    [linked, replaced_by_a_link, just_written, written_in_the_future, with_another_key],
)
def test_what_somebody_may_write_is_written_anew(
    root: Path, change: Callable[[Path], None]
) -> None:
    """Salt 3006 and 3007 write keys in place; such a file must never be an accepted one."""
    knocked_long_ago(root)
    first = root / "minions_pre" / IDS[0]
    change(first)
    before = inodes(root, "minions_pre")[IDS[0]]
    FileStore(root).apply(moves())
    accepted = root / "minions" / IDS[0]
    assert (accepted.read_text(), accepted.stat().st_nlink) == (KEYS[key_of(0)], 1)
    assert not accepted.is_symlink()
    assert accepted.stat().st_ino != before


def another_knocked(path: Path, streams: list[IO[str]]) -> None:
    path.unlink()
    path.write_text(KEYS[key_of(1)])


def opened(path: Path, streams: list[IO[str]]) -> None:
    """As Salt opens it; it writes when everything is done."""
    streams.append(path.open("w+"))


def half_removed(path: Path, streams: list[IO[str]]) -> None:
    """As Salt 3008 removes a file (``localfs_key.flush``), were it not gone by then."""
    path.chmod(0o200)


@pytest.mark.parametrize("call", ["link", "unlink"])
@pytest.mark.parametrize("deed", [another_knocked, opened, half_removed])
def test_what_is_done_to_a_file_meanwhile_is_not_done_to_the_accepted_one(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    deed: Callable[[Path, list[IO[str]]], None],
) -> None:
    knocked_long_ago(root)
    real, streams = getattr(os, call), []
    path = root / "minions_pre" / IDS[0]

    def late(source: str, *target: str, **how: int) -> None:
        if IDS[0] in (Path(source).name, *(Path(t).name for t in target[:1])) and not done:
            done.append(True)
            deed(path, streams)
        real(source, *target, **how)

    done: list[bool] = []
    monkeypatch.setattr(os, call, late)
    assert FileStore(root).apply(moves()).failed == {}
    assert done
    for stream in streams:
        stream.write(KEYS[key_of(1)])
        stream.close()
    accepted = root / "minions" / IDS[0]
    assert accepted.read_text() == KEYS[key_of(0)]
    assert stat.S_IMODE(accepted.stat().st_mode) == 0o600
    assert accepted.stat().st_nlink == 1
    assert names(root, "minions") == {*IDS}


@pytest.mark.parametrize("deed", [another_knocked, opened, half_removed])
def test_what_is_done_to_a_file_while_it_is_made_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch, deed: Callable[[Path, list[IO[str]]], None]
) -> None:
    knocked_long_ago(root)
    real, streams = os.fsync, []
    path = root / "minions_pre" / IDS[0]
    inode = path.stat().st_ino

    def sync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode and not done:
            done.append(True)
            deed(path, streams)
        real(descriptor)

    done: list[bool] = []
    monkeypatch.setattr(os, "fsync", sync)
    assert FileStore(root).apply(moves()).failed == {}
    assert done
    for stream in streams:
        stream.close()
    accepted = root / "minions" / IDS[0]
    assert accepted.read_text() == KEYS[key_of(0)]
    assert stat.S_IMODE(accepted.stat().st_mode) == 0o600


def test_an_old_file_that_cannot_be_made_durable_is_written_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems refuse that for a file that is open to be read only."""
    knocked_long_ago(root)
    failing_sync(monkeypatch, errno.EINVAL, lambda path: "/minions_pre/" in path)
    before = inodes(root, "minions_pre")
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert not set(before.values()) & set(inodes(root, "minions").values())
    assert not names(root, "minions_pre")


def test_a_change_that_fails_in_one_part_is_not_begun(root: Path) -> None:
    knocked_long_ago(root)
    (root / "minions_denied").rmdir()
    (root / "minions_denied").symlink_to("minions_denied")
    change = moves()[0]
    change = change._replace(steps=[*change.steps, Step(DENY, "", key_of(1))])
    assert set(FileStore(root).apply([change, *moves()[1:]]).failed) == {IDS[0]}
    assert names(root, "minions") == {*IDS[1:]}
    assert names(root, "minions_pre") == {IDS[0]}


def test_what_stays_is_durable_before_anything_goes(
    root: Path, synced: list[tuple[str, int]]
) -> None:
    """A crash came before it was, and only the removal is left to be done."""
    for folder in ("minions", "minions_pre"):
        (root / folder / IDS[0]).write_text(KEYS[key_of(0)])
    content = FileStore(root).read(IDS[0])
    assert content is not None
    steps = [Step(REMOVE, PENDING, key_of(0))]
    FileStore(root).apply([Change(IDS[0], steps, KEYS, content.stored)])
    assert synced == [("minions", 1), ("minions_pre", 0)]


@pytest.mark.parametrize("action", [REMOVE, UNDENY])
def test_a_folder_that_cannot_be_entered_holds_up_no_other(root: Path, action: str) -> None:
    state, folder = (REJECTED, "minions_rejected") if action == REMOVE else ("", "minions_denied")
    (root / folder).rmdir()
    (root / folder).symlink_to(folder)
    knock(root)
    removal = Change(IDS[0], [Step(action, state, key_of(0))], KEYS)
    assert set(FileStore(root).apply([removal, *moves()[1:]]).failed) == {IDS[0]}
    assert names(root, "minions") == {*IDS[1:]}


def test_a_file_system_without_second_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str, src_dir_fd: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    knocked_long_ago(root)
    monkeypatch.setattr(os, "link", refuse)
    assert FileStore(root).apply(moves()) == UNDISTURBED
    assert names(root, "minions") == {*IDS}
    assert not names(root, "minions_pre")


def test_a_folder_that_cannot_be_made_holds_up_no_other_id(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there to be made durable, either."""

    def refuse(path: str, mode: int, exist_ok: bool) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    knocked_long_ago(root)
    (root / "minions_denied").rmdir()
    monkeypatch.setattr(os, "makedirs", refuse)
    first = Change(IDS[0], [Step(DENY, "", key_of(1))], KEYS)
    missing, failed, _ = FileStore(root).apply([first, *moves()[1:]])
    assert (missing, set(failed)) == (set(), {IDS[0]})
    assert names(root, "minions") == {*IDS[1:]}


@in_a_loop
async def test_a_start_removes_what_a_crash_left(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    ours = {".4711.ha", ".4711.7.ha"}
    others = {".web1.ha", ".4711.new"}
    for folder in FOLDERS.values():
        (place.pki_dir / folder).mkdir(mode=0o700)
        for name in ours | others:
            (place.pki_dir / folder / name).write_text(A)

    async with Engine(place):
        pass
    for folder in FOLDERS.values():
        assert names(place.pki_dir, folder) & (ours | others) == others


def test_a_second_name_that_is_there_already_leaves_no_third(tmp_path: Path) -> None:
    """Renaming one name of a file to another does nothing, and reports no error."""
    text, source, target = public_key(0), tmp_path / "source", tmp_path / "target"
    source.write_text(text)
    os.utime(source, (0, 0))
    draft = writing.draft_link(str(source), str(tmp_path / ".1.ha"), text, mode=0o600, uid=-1)
    assert draft is not None
    os.link(source, target)
    assert writing.name(draft, str(target), replaces=True)
    writing.discard(draft)
    assert names(tmp_path, ".") == {"source", "target"}
