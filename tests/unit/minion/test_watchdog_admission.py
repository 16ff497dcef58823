"""Before a move: would that master let the minion in?"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import salt.config
import salt.payload

from saltext_ha.minion.binding import SeenMaster
from saltext_ha.minion.watchdog import admission
from saltext_ha.minion.watchdog.admission import AuthRefusal
from tests.keys import public_key

pytestmark = pytest.mark.core

KEY, OTHER = public_key(1), public_key(2)


def signed(load: dict[str, Any]) -> dict[str, Any]:
    """As masters wrap it for minions that can read signatures."""
    return {"enc": "clear", "load": salt.payload.dumps(load), "sig": b"any"}


def read(reply: Any, known: str | None = KEY) -> AuthRefusal | None:
    known = known and admission._lines(known)
    return admission.read(reply, known, "web1")


@pytest.mark.parametrize("wrap", [signed, lambda load: {"enc": "clear", "load": load}])
@pytest.mark.parametrize(
    ("said", "why", "final"),
    [
        (True, "the key of web1 is pending there", True),
        (False, "it has rejected the key of web1", True),
        ("full", "max_minions", False),
        ("bad enc algo", "it says 'bad enc algo'", False),
    ],
)
def test_a_master_that_does_not_let_it_in(wrap: Any, said: Any, why: str, final: bool) -> None:
    refusal = read(wrap({"ret": said}))
    assert refusal is not None
    assert why in refusal.why
    assert refusal.final is final


def test_a_master_that_does() -> None:
    for reply in ({"enc": "pub", "pub_key": KEY}, signed({"pub_key": f"{KEY}\n"})):
        assert read(reply) is None
        assert read(reply, None) is None  # its first master
    refusal = read(signed({"pub_key": OTHER}))
    assert refusal is not None
    assert "master key is not the one" in refusal.why
    assert not refusal.final  # Salt passes on to the next one by itself


def test_by_its_signature_any_master_key_will_do(tmp_path: Path) -> None:
    (tmp_path / "minion_master.pub").write_text(KEY)
    opts = {"pki_dir": str(tmp_path)}
    assert admission._known_key(opts) == admission._lines(KEY)
    assert admission._known_key({**opts, "verify_master_pubkey_sign": True}) is None
    assert admission._known_key({**opts, "open_mode": True}) is None
    assert admission._known_key({"pki_dir": str(tmp_path / "new")}) is None


@pytest.mark.parametrize("nonsense", [None, "", b"", [], {"load": 5}, {"load": b"\xc1"}])
def test_nonsense_lets_nobody_in(nonsense: Any) -> None:
    with pytest.raises(Exception, match=r"."):
        read(nonsense)


@contextmanager
def mute() -> Iterator[int]:
    """Somebody who takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        yield port
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in held:
            each.close()


def test_who_does_not_answer_is_no_refusal_for_good(tmp_path: Path) -> None:
    opts = salt.config.apply_minion_config({"id": "web1", "pki_dir": str(tmp_path)})
    (tmp_path / "minion.pub").write_text(KEY)
    with mute() as port:
        began = time.monotonic()
        refusal = admission.refusal(opts, SeenMaster("m", "m", port, frozenset({"127.0.0.1"})), 0.5)
        assert time.monotonic() - began < 20
    assert refusal is not None
    assert "does not answer a sign-in" in refusal.why
    assert not refusal.final
    assert admission.refusal(opts, SeenMaster("m", "m", 1), 0.5) == AuthRefusal(
        "its address is unknown"
    )
