"""Minion keys in Salt's folders: real files, read and written."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.wait import wait_for
from saltext_ha.common.errors import StoreError
from saltext_ha.keystore import writing
from saltext_ha.keystore.base import Change
from saltext_ha.keystore.files import FileStore
from saltext_ha.keystore.folders import FOLDERS
from saltext_ha.keystore.marks import Marks
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE, UNDENY, Step
from saltext_ha.replication.record import ACCEPTED, DENIED, PENDING, REJECTED
from tests.functional.keystores import KEYS, TEXTS, A, B, C, look, shown, take

pytestmark = pytest.mark.core


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in FOLDERS.values():
        (tmp_path / folder).mkdir()
    return tmp_path


def put(root: Path, state: str, minion_id: str, key: bytes) -> Path:
    path = root / FOLDERS[state] / minion_id
    path.write_text(KEYS[key] + "\n")
    return path


# -- reading


def test_each_folder_is_read_as_its_state(root: Path) -> None:
    for state in (ACCEPTED, PENDING, REJECTED):
        put(root, state, state, A)
    put(root, DENIED, DENIED, B)
    store = FileStore(root)
    assert look(store) == {ACCEPTED, PENDING, REJECTED, DENIED}
    for state in (ACCEPTED, PENDING, REJECTED):
        assert shown(store, state) == Stored(state, A)
    assert shown(store, DENIED) == Stored(denied=frozenset({B}))
    content = store.read(ACCEPTED)
    assert content is not None
    assert content.keys == {A: TEXTS[0]}


@pytest.mark.parametrize("state", FOLDERS)
def test_what_a_listing_showed_is_read_as_without_it(root: Path, state: str) -> None:
    put(root, state, "web1", A)
    store = FileStore(root)
    store.changed()
    assert store.read("web1") == store.read("web1")


def test_a_pipe_that_took_the_place_of_a_listed_file_is_no_key(root: Path) -> None:
    path = put(root, ACCEPTED, "web1", A)
    store = FileStore(root)
    store.changed()
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, KEYS[A].encode())
    content = store.read("web1")
    os.close(writer)
    assert content is not None
    assert content.stored == Stored()


def test_a_listing_counts_once(root: Path) -> None:
    put(root, PENDING, "web1", A)
    store = FileStore(root)
    store.changed()
    for beside, shows in ((ACCEPTED, PENDING), (REJECTED, REJECTED)):
        put(root, beside, "web1", A)
        content = store.read("web1")
        assert content is not None
        assert content.stored.state == shows


def test_reading_leaves_no_trace(root: Path) -> None:
    path = put(root, ACCEPTED, "web1", A)
    os.utime(path, (1, 2))  # one that is older than the file is noted at the next reading
    assert shown(FileStore(root), "web1") == Stored(ACCEPTED, A)
    assert path.stat().st_atime == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_belongs_to_somebody_else_is_read_all_the_same() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's are closed to all others
        root = Path(folder)
        root.chmod(0o755)
        (root / FOLDERS[ACCEPTED]).mkdir()
        (root / FOLDERS[ACCEPTED]).chmod(0o755)
        put(root, ACCEPTED, "web1", A).chmod(0o644)
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            assert shown(FileStore(root), "web1") == Stored(ACCEPTED, A)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("pending_first", "order"),
    [(False, (REJECTED, ACCEPTED, PENDING)), (True, (REJECTED, PENDING, ACCEPTED))],
)
def test_of_several_states_the_one_counts_that_salt_reads_first(
    root: Path, pending_first: bool, order: tuple[str, ...]
) -> None:
    paths = {state: put(root, state, "web1", A) for state in order}
    store = FileStore(root, pending_first=pending_first)
    for number, state in enumerate(order):
        rest = frozenset((other, A) for other in order[number + 1 :])
        assert shown(store) == Stored(state, A, extra=rest)
        paths[state].unlink()
    assert shown(store) == Stored()


def test_a_change_is_named_until_it_was_read(root: Path) -> None:
    store = FileStore(root)
    path = put(root, PENDING, "web1", A)
    assert set(store.changed()) == set(store.changed()) == {"web1"}
    store.read("web1")
    assert not set(store.changed())
    shutil.move(path, root / "minions" / "web1")
    assert look(store) == {"web1"}
    (root / "minions" / "web1").write_text(TEXTS[1])
    assert look(store) == {"web1"}
    assert shown(store) == Stored(ACCEPTED, B)
    (root / "minions" / "web1").unlink()
    assert look(store) == {"web1"}
    assert not set(store.changed())


def test_a_folder_that_is_gone_names_all_its_ids(root: Path) -> None:
    put(root, ACCEPTED, "web1", A)
    store = FileStore(root)
    look(store)
    shutil.rmtree(root / "minions")
    assert look(store) == {"web1"}
    assert shown(store) == Stored()


def test_the_mark_of_the_slot_changes_with_the_slot_only(root: Path) -> None:
    def mark() -> int:
        content = FileStore(root).read("web1")
        assert content is not None
        return content.slot_mark

    path = put(root, ACCEPTED, "web1", A)
    before = mark()
    denied = put(root, DENIED, "web1", B)
    assert mark() == before
    denied.unlink()
    os.utime(path, (1, 1))
    assert mark() not in (before, 0)


def test_touched_tells_a_folder_that_changed(root: Path) -> None:
    store = FileStore(root)
    # Some file systems tell times apart that are some milliseconds apart.
    os.utime(root / "minions_pre", (1, 1))
    store.touched()
    assert not store.touched()
    put(root, PENDING, "web1", A)
    assert store.touched()
    assert not store.touched()
    shutil.rmtree(root / "minions_pre")
    assert store.touched()


def test_a_store_is_at_rest_when_no_decision_came_or_went_for_a_while(root: Path) -> None:
    store = FileStore(root)
    wait_for(store.at_rest, 30, "at rest")
    for state in (PENDING, DENIED):
        put(root, state, "web1", B)
    assert store.at_rest(), "minions may knock all the time"
    for state in (ACCEPTED, REJECTED):
        path = put(root, state, "web2", A)
        os.utime(path.parent, (1, 1))  # as a tool that copies a folder with its times
        assert not store.at_rest()
        wait_for(store.at_rest, 30, "at rest again")
        path.unlink()
        assert not store.at_rest()
        wait_for(store.at_rest, 30, "at rest again")


def test_the_first_pass_is_not_followed_by_a_second(root: Path) -> None:
    os.utime(root / "minions_pre", (1, 1))
    store = FileStore(root)
    assert list(store.changed()) == []
    assert not store.touched()
    put(root, PENDING, "web1", A)
    assert store.touched()


def test_a_folder_that_could_not_be_listed_counts_as_touched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what was added is found by the next regular pass, a minute later."""
    store = FileStore(root)
    put(root, ACCEPTED, "web1", A)
    assert store.touched()

    def fail(folder: str) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as full:
        full.setattr(os, "scandir", fail)
        with pytest.raises(StoreError):
            store.changed()
    assert store.touched()
    assert look(store) == {"web1"}
    assert not store.touched()


def test_what_is_no_key_file_of_an_id_is_not_looked_at(root: Path) -> None:
    secret = root / "master.pem"
    secret.write_text(TEXTS[2])
    accepted = root / "minions"
    (accepted / "link").symlink_to(secret)
    (accepted / "dangling").symlink_to(root / "nowhere")
    (accepted / "folder").mkdir()
    (accepted / ".key_cache").write_text(TEXTS[0])
    (accepted / "two\nlines").write_text(TEXTS[0])
    (accepted / "back\\slash").write_text(TEXTS[0])
    os.mkfifo(accepted / "fifo")
    store = FileStore(root)
    assert not set(store.changed())
    for minion_id in ("link", "dangling", "folder", "fifo", ".key_cache"):
        assert shown(store, minion_id) == Stored()


def test_a_file_of_salt_among_the_keys_makes_no_pass_slow(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``key_cache: sched`` there is one; to go through all marks takes ten times as long."""

    def gone_through(marks: Marks) -> Iterator[tuple[str, int]]:
        raise AssertionError

    put(root, ACCEPTED, "web1", A)
    (root / "minions" / ".key_cache").write_bytes(b"\x90")
    store = FileStore(root)
    look(store)
    monkeypatch.setattr(Marks, "__iter__", gone_through)
    assert not set(store.changed())


@pytest.mark.parametrize(
    "minion_id", ["../master.pub", "../minions/web1", "..", "", "a\0b", "x" * 300, "\ud800"]
)
def test_an_id_that_is_a_path_reads_as_nothing(root: Path, minion_id: str) -> None:
    (root / "master.pub").write_text(TEXTS[0])
    put(root, ACCEPTED, "web1", A)
    store = FileStore(root)
    content = store.read(minion_id)
    assert content is not None
    assert content.stored == Stored()
    assert not content.keys


@pytest.mark.parametrize("state", [ACCEPTED, PENDING, REJECTED])
@pytest.mark.parametrize("junk", ["", TEXTS[0][:100], "\xff\xfe", "A" * 40_000])
def test_a_key_that_is_being_written_is_named_until_it_is_whole(
    root: Path, state: str, junk: str
) -> None:
    path = root / FOLDERS[state] / "web1"
    path.write_bytes(junk.encode("latin-1"))
    store = FileStore(root)
    assert set(store.changed()) == {"web1"}
    assert store.read("web1") is None
    assert set(store.changed()) == {"web1"}
    path.write_text(TEXTS[0])
    assert look(store) == {"web1"}
    assert shown(store) == Stored(state, A)


def test_only_what_has_been_no_key_for_a_while_is_junk(root: Path) -> None:
    """A file that is being written holds no key either."""
    old = time.time() - writing.SETTLED - 60
    store = FileStore(root)
    key = put(root, ACCEPTED, "web1", A)
    junk = put(root, PENDING, "web1", B)
    junk.write_text("no key")
    assert store.junk("web1") == []
    for path in (key, junk):
        os.utime(path, (old, old))
    assert store.junk("web1") == [PENDING]
    store.discard_junk("web1")
    assert key.exists()
    assert not junk.exists()


def test_junk_in_the_place_of_a_request_keeps_no_order_waiting(root: Path) -> None:
    """Salt writes whatever was sent; elsewhere only a person can have put it."""
    for state in (PENDING, ACCEPTED, REJECTED, DENIED):
        put(root, state, state, A).write_text("no key")
    put(root, DENIED, PENDING, B)
    store = FileStore(root)
    content = store.read(PENDING, certain=True)
    assert content is not None
    assert (content.stored, content.junk) == (Stored(denied=frozenset({B})), True)
    assert store.read(PENDING) is None
    for state in (ACCEPTED, REJECTED):
        assert store.read(state, certain=True) is store.read(state) is None
    content = store.read(DENIED, certain=True)
    assert content is not None
    assert (content.stored, content.junk) == (Stored(), False)


def test_junk_among_the_denied_does_not_hide_the_key(root: Path) -> None:
    # Salt writes there what anybody sent; were it waited for, that would stop a revocation.
    put(root, ACCEPTED, "web1", A)
    junk = root / "minions_denied" / "web1"
    junk.write_bytes(b"\xff no key")
    store = FileStore(root)
    assert look(store) == {"web1"}
    assert shown(store) == Stored(ACCEPTED, A)
    assert not set(store.changed())
    junk.write_text(TEXTS[1])
    assert look(store) == {"web1"}
    assert shown(store) == Stored(ACCEPTED, A, frozenset({B}))


def test_a_folder_of_denied_keys_that_cannot_be_entered_hides_no_other_key(root: Path) -> None:
    (root / "minions_denied").rmdir()
    (root / "minions_denied").symlink_to("minions_denied")
    put(root, ACCEPTED, "web1", A)
    assert shown(FileStore(root), "web1") == Stored(ACCEPTED, A)
    assert shown(FileStore(root), "web2") == Stored()


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(root: Path) -> None:
    put(root, ACCEPTED, "web1", A)
    store = FileStore(root)
    look(store)
    shutil.rmtree(root / "minions")
    (root / "minions").write_text("not a folder")
    with pytest.raises(StoreError, match="minions: cannot be listed"):
        set(store.changed())


# -- writing


def test_a_move_writes_the_new_and_removes_the_old(root: Path) -> None:
    put(root, ACCEPTED, "web1", A)
    store = FileStore(root)
    look(store)
    assert take(store, (PUT, REJECTED, A), (REMOVE, ACCEPTED, A)) == set()
    assert shown(store) == Stored(REJECTED, A)
    assert (root / "minions_rejected" / "web1").read_text().strip() == TEXTS[0]
    # A change of our own is seen only as long as it has not been read.
    assert not set(store.changed())


def test_everything_new_is_there_before_anything_goes(root: Path) -> None:
    put(root, ACCEPTED, "web1", A)
    put(root, ACCEPTED, "web2", A)
    changes = [
        Change("web1", [Step(REMOVE, ACCEPTED, A)], KEYS),
        # The folder in which this is to be written cannot be made.
        Change("web2", [Step(PUT, REJECTED, A), Step(REMOVE, ACCEPTED, A)], KEYS),
    ]
    shutil.rmtree(root / "minions_rejected")
    (root / "minions_rejected").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be written"):
        FileStore(root).apply(changes)
    assert {path.name for path in (root / "minions").iterdir()} == {"web1", "web2"}


def test_only_the_key_that_was_meant_is_removed(root: Path) -> None:
    put(root, ACCEPTED, "web1", B)
    store = FileStore(root)
    assert take(store, (REMOVE, ACCEPTED, A)) == {"web1"}
    assert shown(store) == Stored(ACCEPTED, B)
    assert take(store, (REMOVE, PENDING, A)) == {"web1"}


def test_deny_and_undeny(root: Path) -> None:
    store = FileStore(root)
    assert take(store, (DENY, "", A)) == set()
    assert shown(store) == Stored(denied=frozenset({A}))
    assert take(store, (UNDENY, "", B)) == set()
    assert shown(store) == Stored(denied=frozenset({A}))
    assert take(store, (UNDENY, "", A)) == set()
    assert shown(store) == Stored()


def test_folders_that_are_missing_are_made_for_their_owner_only(root: Path) -> None:
    shutil.rmtree(root / "minions")
    take(FileStore(root), (PUT, ACCEPTED, A))
    assert stat.S_IMODE((root / "minions").stat().st_mode) == 0o700


@pytest.mark.parametrize(("group_readable", "mode"), [(False, 0o600), (True, 0o640)])
@pytest.mark.parametrize("umask", [0, 0o777])
def test_the_mode_of_a_file_does_not_depend_on_the_umask(
    root: Path, group_readable: bool, mode: int, umask: int
) -> None:
    before = os.umask(umask)
    try:
        take(FileStore(root, group_readable=group_readable), (PUT, ACCEPTED, A))
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "minions" / "web1").stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_belong_to_the_user_of_the_master(root: Path) -> None:

    take(FileStore(root, user="nobody"), (PUT, ACCEPTED, A))
    assert (root / "minions" / "web1").stat().st_uid == pwd.getpwnam("nobody").pw_uid


def test_a_user_that_does_not_exist_is_no_obstacle(root: Path) -> None:
    take(FileStore(root, user="no-such-user"), (PUT, ACCEPTED, A))
    assert (root / "minions" / "web1").stat().st_uid == os.geteuid()


def test_a_link_in_the_way_is_replaced_and_not_followed(root: Path) -> None:
    outside = root / "outside"
    outside.write_text("untouched")
    (root / "minions" / "web1").symlink_to(outside)
    take(FileStore(root), (PUT, ACCEPTED, A))
    assert outside.read_text() == "untouched"
    assert not (root / "minions" / "web1").is_symlink()


def test_nothing_is_left_beside_the_keys(root: Path) -> None:
    take(FileStore(root), (PUT, ACCEPTED, A))
    (root / "minions_pre" / "web1").mkdir()
    outcome = FileStore(root).apply([Change("web1", [Step(PUT, PENDING, A)], KEYS)])
    assert list(outcome.failed) == ["web1"]
    for folder in FOLDERS.values():
        assert {path.name for path in (root / folder).iterdir()} <= {"web1"}


FULL_DISK = """
import resource, signal, sys
from collections.abc import Iterator
from pathlib import Path
from saltext_ha.common.errors import StoreError
from saltext_ha.keystore.base import Change
from saltext_ha.keystore.files import FileStore
from saltext_ha.replication.plan import PUT, Step
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    change = Change("web1", [Step(PUT, "accepted", b"k")], {b"k": "x" * 500})
    FileStore(Path(sys.argv[1])).apply([change])
except StoreError:
    sys.exit(3)
"""


def test_a_disk_that_fills_up_in_mid_write_leaves_the_old_key(root: Path) -> None:
    # The limit makes write(2) short, as a full disk does, and then fail.
    path = put(root, ACCEPTED, "web1", A)
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(root)], timeout=60)
    assert done.returncode == 3
    assert path.read_text() == TEXTS[0] + "\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["web1"]


def test_marks_of_another_process_spare_reading(root: Path) -> None:
    put(root, ACCEPTED, "web1", A)
    os.utime(put(root, ACCEPTED, "web2", A), (1, 1))
    before = FileStore(root)
    marks = {name: content.mark for name in ("web1", "web2") if (content := before.read(name))}
    put(root, ACCEPTED, "web2", B)
    after = FileStore(root)
    after.recall(marks.items())
    assert set(after.changed()) == {"web2"}
    (root / "minions" / "web1").unlink()
    assert set(after.changed()) == {"web1", "web2"}


def test_a_move_does_not_carry_a_key_that_came_in_between(root: Path) -> None:
    put(root, PENDING, "web1", A)
    store = FileStore(root)
    look(store)
    put(root, PENDING, "web1", B)
    assert take(store, (PUT, ACCEPTED, A), (REMOVE, PENDING, A)) == {"web1"}
    assert (root / "minions" / "web1").read_text().strip() == TEXTS[0]
    assert (root / "minions_pre" / "web1").read_text().strip() == TEXTS[1]


def test_an_entry_that_had_gone_before_another_took_its_place(root: Path) -> None:
    store = FileStore(root)
    there = Stored(ACCEPTED, A, frozenset({B}))
    assert take(store, (PUT, ACCEPTED, C), shown=there) == {"web1"}
    assert take(store, (PUT, ACCEPTED, A), shown=Stored(ACCEPTED, C)) == set()
    # Of denied keys one pushes the other out.
    assert take(store, (DENY, "", C), (UNDENY, "", B), shown=there) == set()
    # Nobody expected to find anything there.
    assert (
        take(store, (PUT, REJECTED, B), (REMOVE, ACCEPTED, A), shown=Stored(ACCEPTED, A)) == set()
    )
    # One that is moved, and takes the place of another.
    path = root / "minions_pre" / "web2"
    path.write_text(TEXTS[1])
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    moved = (PUT, ACCEPTED, B), (REMOVE, PENDING, B)
    both = Stored(PENDING, B, extra=frozenset({(ACCEPTED, A)}))
    assert take(store, *moved, minion_id="web2", shown=both) == {"web2"}
    assert (root / "minions" / "web2").stat().st_ino == inode
