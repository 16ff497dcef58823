"""Caches that are cleaned when keys go: what Salt itself would clean, without reading every key."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import salt.cache
import salt.key
import salt.version

from lab import key_folders
from lab.engines import Place
from saltext_ha.common.errors import StoreError
from saltext_ha.keystore import open_store
from saltext_ha.keystore.revoke import revoke
from saltext_ha.reconciler.revocations import Revocations
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.replica import Replica

pytestmark = pytest.mark.core

IS_3008 = salt.version.__saltstack_version__.major >= 3008


@pytest.fixture
def opts(tmp_path: Path) -> dict[str, Any]:
    """A master that has keys of *web1* and *web2*, and caches of *web3*, too."""
    return with_caches(tmp_path, "web3")


def with_caches(root: Path, gone: str) -> dict[str, Any]:
    place = Place(root, "m1")
    key_folders.plant(place.pki_dir, ["web1", "web2"])
    cache = salt.cache.factory(place.opts)
    for minion_id in ("web1", "web2", gone):
        # 3006 and 3007, then 3008.
        cache.store(f"minions/{minion_id}", "data", {"grains": {"id": minion_id}})
        cache.store(f"minions/{minion_id}", "mine", {"test.ping": True})
        cache.store("grains", minion_id, {"id": minion_id})
        cache.store("pillar", minion_id, {"secret": 1})
        cache.store("pillar", f"{minion_id}:dev", {"secret": 2})
    return place.opts


def cached(opts: dict[str, Any]) -> set[str]:
    root = Path(opts["cachedir"])
    files = (str(path.relative_to(root)) for path in root.rglob("*.p"))
    return {name for name in files if name.startswith(("minions/", "grains/", "pillar/"))}


@pytest.mark.parametrize("gone", ["web3", "52:54:00:12:34:56"])
def test_all_is_cleaned_that_salt_cleans(gone: str, tmp_path: Path) -> None:
    opts, kept = with_caches(tmp_path, gone), tmp_path / "kept"
    shutil.copytree(opts["cachedir"], kept)
    before = cached(opts)
    revoke(opts, {gone})
    ours = before - cached(opts)
    shutil.rmtree(opts["cachedir"])
    kept.rename(opts["cachedir"])
    key = salt.key.get_key(opts)
    key.check_minion_cache()
    key.event.destroy()
    salts = before - cached(opts)
    assert salts
    assert ours == salts
    assert all(gone in name for name in ours)


@pytest.mark.skipif(not IS_3008, reason="3006 and 3007 remove them, too")
def test_what_a_minion_has_sent_stays(opts: dict[str, Any]) -> None:
    sent = Path(opts["cachedir"], "minions", "web3", "files", "backup.tar")
    sent.parent.mkdir(parents=True)
    sent.write_text("by cp.push")
    revoke(opts, {"web3"})
    assert sent.exists()


def test_the_aes_key_is_rotated_before_anybody_asks_who_is_gone(opts: dict[str, Any]) -> None:
    def cannot_be_read() -> Iterator[str]:
        raise StoreError("the key store cannot be read")
        yield ""

    with pytest.raises(StoreError, match="tried again"):
        revoke(opts, cannot_be_read())
    assert Path(opts["cachedir"], ".dfn").exists()


def test_nothing_is_cleaned_of_ids_that_are_not_gone(opts: dict[str, Any]) -> None:
    before = cached(opts)
    revoke(opts, set())
    assert cached(opts) == before


def test_where_it_is_not_known_who_is_gone_salt_looks(opts: dict[str, Any]) -> None:
    before = cached(opts)
    revoke(opts, None)
    gone = before - cached(opts)
    assert gone
    assert all("web3" in name for name in gone)


def test_caches_stay_where_the_configuration_says_so(opts: dict[str, Any]) -> None:
    before = cached(opts)
    revoke({**opts, "preserve_minion_cache": True}, {"web3"})
    revoke({**opts, "preserve_minion_cache": True}, None)
    assert cached(opts) == before


def test_the_aes_key_is_rotated_unless_the_configuration_says_no(opts: dict[str, Any]) -> None:
    rotate = Path(opts["cachedir"], ".dfn")
    revoke({**opts, "rotate_aes_key": False}, {"web3"})
    assert not rotate.exists()
    revoke(opts, {"web3"})
    assert rotate.exists()


@pytest.mark.parametrize("known", [True, False], ids=["ids are known", "after a crash"])
def test_caches_that_cannot_be_cleaned_do_not_have_the_aes_key_rotated_again(
    opts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """All minions would authenticate anew, each minute, until the caches can be cleaned."""

    def fail(*args: Any, **how: Any) -> None:
        raise PermissionError("not yours")

    before = cached(opts)
    rotate, replica = Path(opts["cachedir"], ".dfn"), Replica(None)

    def due() -> None:
        with replica.transaction():
            replica.meta.revocation_due = True

    def follow_up(fails: bool = False) -> bool:
        """Whether the AES key is to be rotated; salt-master does so at once."""
        expected = pytest.raises(StoreError, match="caches of their minions")
        with expected if fails else contextlib.nullcontext():
            revocations.follow_up()
        is_due = rotate.exists()
        rotate.unlink(missing_ok=True)
        return is_due

    if not known:
        due()
    revocations = Revocations(
        open_store(opts), replica, WriteMode(), lambda gone, rotate: revoke(opts, gone, rotate)
    )
    due()
    revocations.is_gone("web3")
    with monkeypatch.context() as cache:
        cache.setattr(salt.cache, "factory", fail)
        cache.setattr(salt.key, "get_key", fail)
        assert [follow_up(fails=True) for _ in range(3)] == [True, False, False]
        due()  # another key is revoked
        assert follow_up(fails=True)
    assert cached(opts) == before
    assert not follow_up()
    assert cached(opts) < before
    assert not follow_up()


class Due:
    """A rotation and the caches of *web3* are due on a master in a mode."""

    def __init__(self, opts: dict[str, Any], mode: WriteMode) -> None:
        self.opts, self.mode, self.replica = opts, mode, Replica(None)
        self.revocations = Revocations(
            open_store(opts), self.replica, mode, lambda gone, rotate: revoke(opts, gone, rotate)
        )
        self.cached = cached(opts)
        with self.replica.transaction():
            self.replica.meta.revocation_due = True
        self.revocations.is_gone("web3")

    def done(self) -> tuple[bool, bool]:
        """Whether the AES key was rotated now, and whether the caches were cleaned."""
        self.revocations.follow_up()
        rotate = Path(self.opts["cachedir"], ".dfn")
        rotated = rotate.exists()
        rotate.unlink(missing_ok=True)
        return rotated, cached(self.opts) < self.cached


def test_while_the_store_is_in_doubt_the_caches_wait(opts: dict[str, Any]) -> None:
    """It may come between two batches of one task; what shows no key then may have one."""
    mode = WriteMode()
    due = Due(opts, mode)
    mode.doubt = "the folder is not mounted"
    assert due.done() == (True, False)
    assert due.done() == (False, False)
    mode.doubt = ""
    assert due.done() == (False, True)


def test_on_a_paused_master_the_caches_wait_until_it_is_resumed(opts: dict[str, Any]) -> None:
    mode = WriteMode()
    mode.pause("since noon")
    due = Due(opts, mode)
    assert due.done() == (True, False)
    mode.resume()
    assert due.done() == (False, True)


def test_a_master_that_observes_changes_nothing_before_it_is_resumed(opts: dict[str, Any]) -> None:
    mode = WriteMode("observe")
    mode.pause("")
    due = Due(opts, mode)
    assert due.done() == (False, False)
    mode.resume()
    assert due.done() == (True, True)


def test_who_does_not_write_a_shared_store_leaves_the_caches_to_the_one_who_does(
    opts: dict[str, Any],
) -> None:
    mode = WriteMode()
    mode.shared = "m2 writes it"
    due = Due(opts, mode)
    assert due.done() == (True, False)
    assert due.done() == (False, False)
    mode.shared = ""  # m2 is gone, after it cleaned them
    assert due.done() == (False, False)
