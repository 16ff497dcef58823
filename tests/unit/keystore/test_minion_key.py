"""Minion ids and public keys: what is refused, and one fingerprint with Salt's."""

from __future__ import annotations

from pathlib import Path

import pytest
import salt.utils.crypt
import salt.utils.verify
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from tests.keys import JUNK, LOOK_ALIKES, public_key

pytestmark = pytest.mark.core

# No Python has such a character yet.
NEWER = "web\U00040000"
EC = ec.generate_private_key(ec.SECP256R1()).public_key()
ED = ed25519.Ed25519PrivateKey.generate().public_key()


def pem(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode().strip()


def test_the_fingerprint_is_the_one_that_salt_shows(tmp_path: Path) -> None:
    path = tmp_path / "web1"
    path.write_text(public_key(0) + "\n")
    theirs = salt.utils.crypt.pem_finger(str(path), sum_type="sha256")
    ours = minion_key.fingerprint(public_key(0))
    assert minion_key.show(ours, short=False) == theirs
    assert minion_key.show(ours) == theirs[:11] + ":…"


def test_line_ends_and_space_around_change_nothing() -> None:
    text = public_key(0)
    for other in (text + "\n", "\n" + text, text.replace("\n", "\r\n") + "\r\n"):
        assert minion_key.normalise(other) == text
        assert minion_key.fingerprint(other) == minion_key.fingerprint(text)
    assert minion_key.fingerprint(public_key(1)) != minion_key.fingerprint(text)


@pytest.mark.parametrize(
    "minion_id", ["web1", "web1.example.com", "büro-7", "a b", "x" * 255, NEWER]
)
def test_ids_that_salt_takes_are_taken(minion_id: str) -> None:
    assert minion_key.check_id(minion_id) == minion_id


@pytest.mark.parametrize(
    "minion_id",
    [
        "",
        None,
        7,
        b"web1",
        ".",
        "..",
        ".key_cache",
        "../web1",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a\nb",
        "web1\0",
        "web1\n",
        "we\u200bb1",
        "a\x1b[31m",
        "\u202egnp.exe",
        "\ud800",
        "x" * 256,
        "y" * 10_240,
        "ü" * 128,
    ],
)
def test_ids_that_are_no_file_name_are_refused(minion_id: object) -> None:
    with pytest.raises(InvalidRecord, match="minion id") as caught:
        minion_key.check_id(minion_id)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("minion_id", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_look_alikes_are_taken_as_they_are(minion_id: str) -> None:
    """As by Salt; nothing is folded into the id that it resembles."""
    assert minion_key.check_id(minion_id) == minion_id
    assert salt.utils.verify.valid_id({"pki_dir": "/etc/salt/pki/master"}, minion_id)


@given(st.text(max_size=12))
def test_no_id_passes_that_salt_would_refuse(minion_id: str) -> None:
    try:
        minion_key.check_id(minion_id)
    except InvalidRecord:
        return
    assert salt.utils.verify.valid_id({"pki_dir": "/etc/salt/pki/master"}, minion_id)


def test_an_rsa_key_is_taken() -> None:
    minion_key.check(public_key(0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a public key"),
        ("garbage", "BEGIN and END"),
        (public_key(0)[:-10], "not a public key"),
        (public_key(0).replace("\n", "\n!", 1), "not a public key"),
        (JUNK, "not a public key"),
        ("-----BEGIN PUBLIC KEY-----\n" + "A" * 20000 + "\n-----END PUBLIC KEY-----", "at most"),
        (pem(EC), "not an RSA key but"),
        (pem(ED), "not an RSA key but"),
    ],
)
def test_what_is_no_rsa_key_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRecord, match=why):
        minion_key.check(text)
