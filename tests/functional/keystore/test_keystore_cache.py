"""Minion keys behind the ``salt.cache`` drivers of 3008, and the choice of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import salt.cache
import salt.config
import salt.version

from saltext_ha.common.errors import StoreError
from saltext_ha.keystore import open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.keystore.cache import CacheStore
from saltext_ha.keystore.files import FileStore
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.plan import DENY, PUT, REMOVE, UNDENY
from saltext_ha.replication.record import ACCEPTED, PENDING, REJECTED
from tests.functional.keystores import KEYS, TEXTS, A, B, change, look, shown, take

pytestmark = pytest.mark.core

HAS_DRIVERS = salt.version.__saltstack_version__.major >= 3008
drivers = pytest.mark.skipif(not HAS_DRIVERS, reason="keys.cache_driver is new in 3008")


def master_opts(root: Path, **more: Any) -> dict[str, Any]:
    opts: dict[str, Any] = salt.config.master_config(None)
    folders = {
        "root_dir": str(root),
        "pki_dir": str(root / "pki"),
        "cachedir": str(root / "cache"),
        "sock_dir": str(root / "run"),
        "extension_modules": str(root / "extmods"),
        "user": None,
    }
    for folder in ("pki", "cache"):
        (root / folder).mkdir(exist_ok=True)
    return {**opts, **folders, **more}


@pytest.fixture(params=["mmap_key", "localfs"])
def opts(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return master_opts(tmp_path, **{"keys.cache_driver": request.param})


@pytest.fixture
def store(opts: dict[str, Any]) -> KeyStore:
    return open_store(opts)


@pytest.fixture
def cache(opts: dict[str, Any]) -> Any:
    """The key cache as ``salt.key.Key`` opens it."""
    return salt.cache.Cache(opts, driver=opts["keys.cache_driver"])


def put(cache: Any, minion_id: str, state: str, key: bytes = A) -> None:
    cache.store("keys", minion_id, {"state": state, "pub": KEYS[key] + "\n"})


def test_the_default_of_every_release_is_files(tmp_path: Path) -> None:
    opts = master_opts(tmp_path)
    assert ("keys.cache_driver" in opts) is HAS_DRIVERS
    store = open_store(opts)
    assert isinstance(store, FileStore)
    for state in ("minions", "minions_pre"):
        (tmp_path / "pki" / state).mkdir()
        (tmp_path / "pki" / state / "web1").write_text(TEXTS[0])
    # Where an id is both, 3008 reads the pending file first; 3006 and 3007 the accepted one.
    assert shown(store).state == (PENDING if HAS_DRIVERS else ACCEPTED)


@pytest.mark.skipif(
    salt.version.__saltstack_version__.major < 3007, reason="Salt 3006 knows no cluster_id"
)
def test_a_cluster_has_its_keys_in_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "shared" / "minions").mkdir(parents=True)
    (tmp_path / "shared" / "minions" / "web1").write_text(TEXTS[0])
    opts = master_opts(tmp_path, cluster_id="c1", cluster_pki_dir=str(tmp_path / "shared"))
    assert set(open_store(opts).changed()) == {"web1"}


def test_a_release_without_drivers_keeps_files_whatever_the_option_says(tmp_path: Path) -> None:
    """As salt-master does, where one configuration file is for masters of 3008, too."""
    store = open_store(master_opts(tmp_path, **{"keys.cache_driver": "mmap_key"}))
    assert isinstance(store, CacheStore if HAS_DRIVERS else FileStore)


@drivers
class TestDrivers:
    def test_the_driver_is_the_one_that_is_configured(self, store: KeyStore) -> None:
        assert isinstance(store, CacheStore)

    def test_an_empty_store_shows_nothing(self, store: KeyStore) -> None:
        assert look(store) == set()
        assert shown(store) == Stored()
        assert not store.touched()

    def test_each_state_is_read_as_salt_wrote_it(self, store: KeyStore, cache: Any) -> None:
        for state in (ACCEPTED, PENDING, REJECTED):
            put(cache, state, state)
        cache.store("denied_keys", ACCEPTED, [TEXTS[1]])
        cache.store("denied_keys", "only-denied", [TEXTS[1]])
        assert look(store) == {ACCEPTED, PENDING, REJECTED, "only-denied"}
        assert shown(store, ACCEPTED) == Stored(ACCEPTED, A, frozenset({B}))
        assert shown(store, PENDING) == Stored(PENDING, A)
        assert shown(store, REJECTED) == Stored(REJECTED, A)
        assert shown(store, "only-denied") == Stored(denied=frozenset({B}))
        content = store.read(ACCEPTED)
        assert content is not None
        assert content.keys == {A: TEXTS[0], B: TEXTS[1]}

    def test_a_change_is_named_until_it_was_read(self, store: KeyStore, cache: Any) -> None:
        put(cache, "web1", PENDING)
        assert set(store.changed()) == set(store.changed()) == {"web1"}
        store.read("web1")
        assert not set(store.changed())
        put(cache, "web1", ACCEPTED)
        assert look(store) == {"web1"}
        put(cache, "web1", ACCEPTED, B)
        assert look(store) == {"web1"}
        cache.store("denied_keys", "web1", [TEXTS[0]])
        assert look(store) == {"web1"}
        cache.flush("keys", "web1")
        assert look(store) == {"web1"}
        cache.flush("denied_keys", "web1")
        assert look(store) == {"web1"}
        assert not set(store.changed())

    def test_salt_reads_what_we_write(self, store: KeyStore, cache: Any) -> None:
        assert take(store, (PUT, PENDING, A), (DENY, "", B)) == set()
        assert cache.fetch("keys", "web1") == {"state": PENDING, "pub": TEXTS[0]}
        assert cache.fetch("denied_keys", "web1") == [TEXTS[1]]
        assert take(store, (PUT, ACCEPTED, A), (REMOVE, PENDING, A)) == set()
        assert cache.fetch("keys", "web1") == {"state": ACCEPTED, "pub": TEXTS[0]}
        assert shown(store) == Stored(ACCEPTED, A, frozenset({B}))
        assert take(store, (REMOVE, ACCEPTED, A), (UNDENY, "", B)) == set()
        assert cache.list("keys") == []
        assert cache.list("denied_keys") == []
        assert shown(store) == Stored()

    def test_only_the_key_that_was_meant_is_removed(self, store: KeyStore, cache: Any) -> None:
        put(cache, "web1", ACCEPTED, B)
        assert take(store, (REMOVE, ACCEPTED, A)) == {"web1"}
        assert shown(store) == Stored(ACCEPTED, B)
        assert take(store, (REMOVE, ACCEPTED, A), minion_id="nobody") == {"nobody"}

    def test_a_key_in_another_state_is_not_the_one_that_was_meant(
        self, store: KeyStore, cache: Any
    ) -> None:
        # Rejected while we were about to delete the accepted entry of the same key.
        put(cache, "web1", REJECTED)
        assert take(store, (REMOVE, ACCEPTED, A)) == {"web1"}
        assert shown(store) == Stored(REJECTED, A)

    def test_an_entry_that_had_gone_before_another_took_its_place(
        self, store: KeyStore, cache: Any
    ) -> None:
        there = Stored(ACCEPTED, A, frozenset({B}))
        assert take(store, (PUT, ACCEPTED, B), shown=there) == {"web1"}
        assert take(store, (PUT, ACCEPTED, A), shown=Stored(ACCEPTED, B)) == set()
        assert take(store, (UNDENY, "", B), shown=there) == set()

    @pytest.mark.parametrize("text", [TEXTS[0], TEXTS[1], "junk"])
    def test_what_somebody_puts_there_meanwhile_stays(
        self, store: KeyStore, cache: Any, text: str
    ) -> None:
        """Also when it is the same key: it is their decision, too."""
        put(cache, "web1", PENDING)
        seen = shown(store)
        cache.store("keys", "web1", {"state": ACCEPTED, "pub": text})
        outcome = change(store, (PUT, ACCEPTED, A), (REMOVE, PENDING, A), seen=seen)
        assert outcome.taken == {"web1"}
        assert cache.fetch("keys", "web1") == {"state": ACCEPTED, "pub": text}

    def test_a_new_entry_replaces_nothing_that_somebody_put_there(
        self, store: KeyStore, cache: Any
    ) -> None:
        put(cache, "web1", REJECTED, B)
        assert change(store, (PUT, ACCEPTED, A), seen=Stored()).taken == {"web1"}
        assert shown(store) == Stored(REJECTED, B)

    def test_a_removal_gives_way_to_nobody(self, store: KeyStore, cache: Any) -> None:
        put(cache, "web1", REJECTED, A)
        outcome = change(store, (REMOVE, ACCEPTED, A), seen=Stored(ACCEPTED, A))
        assert (outcome.taken, outcome.missing) == (set(), {"web1"})
        assert shown(store) == Stored(REJECTED, A)

    def test_junk_among_the_denied_does_not_hide_the_key(self, store: KeyStore, cache: Any) -> None:
        put(cache, "web1", ACCEPTED)
        cache.store("denied_keys", "web1", ["sent by anybody"])
        look(store)
        assert shown(store) == Stored(ACCEPTED, A)
        assert not set(store.changed())
        assert take(store, (DENY, "", B)) == set()

    def test_several_denied_keys_where_the_driver_holds_them(
        self, store: KeyStore, cache: Any
    ) -> None:
        take(store, (DENY, "", A))
        take(store, (DENY, "", B))
        held = shown(store).denied
        assert (len(held) == 1) is store.one_denied
        if not store.one_denied:
            assert held == {A, B}
            take(store, (UNDENY, "", A))
            assert shown(store).denied == {B}

    @pytest.mark.parametrize("junk", ["junk", TEXTS[0][:90]])
    def test_a_key_that_is_none_is_named_again(
        self, store: KeyStore, cache: Any, junk: str
    ) -> None:
        cache.store("keys", "web1", {"state": ACCEPTED, "pub": junk})
        assert store.read("web1") is None
        put(cache, "web1", ACCEPTED)
        assert look(store) == {"web1"}
        assert shown(store) == Stored(ACCEPTED, A)

    @pytest.mark.parametrize("minion_id", ["../web1", "..", "", "a\0b", "x" * 300])
    def test_an_id_that_is_a_path_reads_as_nothing(self, store: KeyStore, minion_id: str) -> None:
        assert shown(store, minion_id) == Stored()

    def test_an_id_that_the_driver_would_cut_is_not_written(
        self, opts: dict[str, Any], store: KeyStore, cache: Any
    ) -> None:
        """The mmap_key driver cuts ids silently: the key of one would become that of another."""
        short = "é" * 32
        for minion_id, key in ((short, A), (f"{short}1", B)):
            outcome = change(store, (PUT, ACCEPTED, key), minion_id=minion_id, seen=Stored())
        is_cut = opts["keys.cache_driver"] == "mmap_key"
        assert shown(store, short) == Stored(ACCEPTED, A)
        assert shown(store, f"{short}1") == (Stored() if is_cut else Stored(ACCEPTED, B))
        assert cache.fetch("keys", short)["pub"] == TEXTS[0]
        cut = "the mmap_key driver keeps only 64 bytes of an id (mmap_key_id_size)"
        assert outcome.failed == ({f"{short}1": cut} if is_cut else {})

    def test_a_long_id_that_an_older_release_wrote_is_not_gone(
        self, opts: dict[str, Any], store: KeyStore, cache: Any
    ) -> None:
        """As deleted by an operator, its key would be deleted on all masters."""
        long = "é" * 32 + "1"
        put(cache, long, ACCEPTED)
        store.recall([(long, 1)])
        assert shown(store, long) == Stored(ACCEPTED, A)

    def test_a_second_look_from_the_start_names_everything(
        self, store: KeyStore, opts: dict[str, Any]
    ) -> None:
        for number in range(30):
            take(store, (PUT, ACCEPTED, A), minion_id=f"web{number}")
        assert len(look(open_store(opts))) == 30


@drivers
def test_a_driver_that_cannot_be_reached_is_an_error_and_not_empty(tmp_path: Path) -> None:
    opts = master_opts(tmp_path, **{"keys.cache_driver": "localfs"})
    store = open_store(opts)
    take(store, (PUT, ACCEPTED, A))
    look(store)
    keys = tmp_path / "cache" / "keys"
    keys.rename(tmp_path / "away")
    keys.write_text("not a folder")
    with pytest.raises(StoreError, match=r"keys\.cache_driver localfs"):
        take(store, (PUT, PENDING, A), minion_id="web2")


@drivers
@pytest.mark.parametrize(
    "spoilt",
    [b"\xc1", b"\x93\x01\x02\x03", b"\xa3abc", b"\x82\xa5state\xa8accepted\xa3pub\x01"],
    ids=["no msgpack", "a list", "a text", "no key"],
)
def test_an_entry_that_is_spoilt_holds_up_no_other(tmp_path: Path, spoilt: bytes) -> None:
    store = open_store(master_opts(tmp_path, **{"keys.cache_driver": "localfs"}))
    for minion_id in ("web1", "web2"):
        take(store, (PUT, ACCEPTED, A), minion_id=minion_id)
    look(store)
    entry = tmp_path / "cache" / "keys" / "web1.p"
    entry.write_bytes(spoilt)
    take(store, (PUT, ACCEPTED, B), minion_id="web2")
    assert look(store) >= {"web1"}
    assert shown(store, "web2") == Stored(ACCEPTED, B)
    assert store.read("web1") is None


@drivers
def test_a_driver_that_raises_what_it_likes_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The redis driver, for instance, lets the time limits of its library through."""
    store = open_store(master_opts(tmp_path, **{"keys.cache_driver": "localfs"}))

    def fail(*args: Any, **how: Any) -> None:
        raise ValueError("timed out")

    for method in ("fetch", "list", "list_all", "store"):
        monkeypatch.setattr(store._cache, method, fail)  # type: ignore[attr-defined]
    for act in (store.changed, lambda: store.read("web1"), lambda: store.sign("m1", "1.a.0")):
        with pytest.raises(StoreError, match="timed out"):
            act()


@drivers
def test_an_entry_that_mmap_key_cannot_read_is_not_gone(tmp_path: Path) -> None:
    """That driver says of an entry with a wrong checksum that there is none."""
    opts = master_opts(tmp_path, **{"keys.cache_driver": "mmap_key"})
    store = open_store(opts)
    for minion_id in ("web1", "web2"):
        take(store, (PUT, ACCEPTED, A), minion_id=minion_id)
    look(store)
    heap = tmp_path / "pki" / ".mmap_keys.idx.heap"
    heap.write_bytes(heap.read_bytes().replace(b"BEGIN", b"SPOIL", 1))
    store = open_store(opts)
    assert store.read("web1", certain=True) is None
    assert shown(store, "web2") == Stored(ACCEPTED, A)
    take(store, (REMOVE, ACCEPTED, A), minion_id="web2")
    assert shown(store, "web2") == Stored()


@drivers
def test_an_index_that_mmap_key_cannot_open_is_an_error_and_not_empty(tmp_path: Path) -> None:
    """For instance after a change of its size: the driver says then that there is no key."""
    opts = master_opts(tmp_path, **{"keys.cache_driver": "mmap_key"})
    take(open_store(opts), (PUT, ACCEPTED, A))
    store = open_store({**opts, "mmap_key_size": 10_000})
    store._cache.modules["mmap_key.fetch"].__globals__["_caches"].clear()  # type: ignore[attr-defined]
    for act in (store.changed, lambda: store.read("web1", certain=True)):
        with pytest.raises(StoreError, match="mmap_key_size"):
            act()


@drivers
def test_a_driver_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no_such_driver"):
        set(open_store(master_opts(tmp_path, **{"keys.cache_driver": "no_such_driver"})).changed())
