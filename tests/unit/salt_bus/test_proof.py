"""What shows that an event is this master's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import salt.payload
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.modules import ha as module
from saltext_ha.salt_bus import proof
from saltext_ha.salt_bus.proof import GOOD_FOR, KEY_BYTES, KEY_FILE, Proofs
from tests.unit.clock import Clock

pytestmark = pytest.mark.core

TAG = "salt/ha/key/accepted"
DATA = {"id": "web1", "act": "accepted", "before": None, "count": 3, "ids": ["a", "ü"]}


@pytest.fixture
def proofs(clock: Clock) -> Proofs:
    return Proofs(b"k" * 32, clock)


def travelled(data: dict[str, Any]) -> dict[str, Any]:
    """As it arrives at the other end of Salt's bus."""
    raw = salt.payload.dumps({**data, "_stamp": "2026-01-31T03:12:45"}, use_bin_type=True)
    found: dict[str, Any] = salt.payload.loads(raw, encoding="utf-8")
    return found


def test_what_the_engine_fires_is_known_again(proofs: Proofs) -> None:
    sent = travelled(proofs.mark(TAG, DATA))
    assert DATA.items() <= sent.items()
    assert proofs.is_ours(TAG, sent)
    assert proofs.is_ours(TAG, {**sent, "traceparent": "00-1", "__peer_id": "m2"})


@pytest.mark.parametrize(
    "change",
    [
        {"id": "web2"},
        {"act": "deleted"},
        {"more": 1},
        {"fired": 1},
        {"fired": True},
        {"fired": None},
        {"fired": "now"},
        {"proof": ""},
        {"proof": "0" * 64},
        {"proof": "\udcff" * 64},
        {"proof": None},
        {"proof": ["x"]},
        {"object": object()},
        {7: {7: 7, "x": 7}},
    ],
)
def test_what_is_changed_is_not(proofs: Proofs, change: dict[Any, Any]) -> None:
    assert not proofs.is_ours(TAG, {**travelled(proofs.mark(TAG, DATA)), **change})


def test_nor_under_another_tag_or_key_or_later(proofs: Proofs, clock: Clock) -> None:
    sent = travelled(proofs.mark(TAG, DATA))
    assert not proofs.is_ours("salt/ha/key/deleted", sent)
    assert not Proofs(b"x" * 32, clock).is_ours(TAG, sent)
    for nothing in (None, [], "text", {}, DATA):
        assert not proofs.is_ours(TAG, nothing)
    assert not proofs.is_ours(None, sent)
    clock.now += GOOD_FOR - 1
    assert proofs.is_ours(TAG, sent)
    clock.now += 2
    assert not proofs.is_ours(TAG, sent)


@given(st.dictionaries(st.text(), st.none() | st.text() | st.integers() | st.lists(st.text())))
def test_nothing_else_raises_or_passes(data: dict[str, Any]) -> None:
    assert not Proofs(b"k" * 32).is_ours(TAG, {**data, "proof": "0" * 64, "fired": 1})


def test_the_key_stays(tmp_path: Path) -> None:
    key = proof.key_of(tmp_path)
    assert (len(key), proof.key_of(tmp_path), proof.read_key(tmp_path)) == (KEY_BYTES, key, key)
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / KEY_FILE).write_bytes(b"half")
    with pytest.raises(ValueError, match="has 4 bytes"):
        proof.read_key(tmp_path)
    again = proof.key_of(tmp_path)
    assert again != key
    assert proof.read_key(tmp_path) == again


def test_a_link_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"k" * KEY_BYTES)
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        proof.key_of(tmp_path)


def test_where_there_is_no_engine_nothing_is_genuine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opts = {"id": "web1", "pki_dir": str(tmp_path), "sock_dir": str(tmp_path)}
    monkeypatch.setattr(module, "__opts__", opts, raising=False)
    sent = Proofs(b"k" * 32).mark(TAG, DATA)
    assert module.genuine(TAG, sent) is False
    assert "no event counts" in caplog.text
    # Whoever floods the bus with such events does not fill the disk.
    assert module.genuine(TAG, sent) is module.genuine("other", sent) is False
    assert len(caplog.records) == 1
    (tmp_path / "ha").mkdir()
    ours = Proofs(proof.key_of(tmp_path / "ha")).mark(TAG, DATA)
    assert module.genuine(TAG, ours) is True
    assert module.genuine(TAG, sent) is False
    assert len(caplog.records) == 1
    (tmp_path / "ha" / KEY_FILE).unlink()
    assert module.genuine(TAG, ours) is module.genuine(TAG, ours) is False
    assert len(caplog.records) == 2
