"""Join tokens and the proofs made with them."""

from __future__ import annotations

import string

import pytest

from saltext_ha.common.errors import TokenError
from saltext_ha.membership.token import (
    PREFIX,
    JoinToken,
    decode,
    mac_key,
    reply_mac,
    request_mac,
)
from saltext_ha.transport import fingerprints

TOKEN = JoinToken(
    urls=("https://10.0.0.1:4530", "https://[::1]:4530"),
    fingerprint=bytes(range(32)).hex(":"),
    invite="0123456789abcdef" * 2,
    expires=1_900_000_000,
    group="prod",
    secret=bytes(range(100, 132)),
)


def test_round_trip() -> None:
    text = TOKEN.encode()
    assert decode(text) == TOKEN
    # It is pasted into shells and chats: nothing in it may need quoting.
    assert set(text) <= set(string.ascii_letters + string.digits + "._-")


def test_blanks_from_pasting_are_ignored() -> None:
    text = TOKEN.encode()
    assert decode(f"  {text[:40]}\n  {text[40:]}\n") == TOKEN


def test_every_altered_character_is_noticed() -> None:
    text = TOKEN.encode()
    for index, character in enumerate(text):
        altered = text[:index] + ("A" if character != "A" else "B") + text[index + 1 :]
        with pytest.raises(TokenError):
            decode(altered)


def test_there_is_one_way_to_write_a_token() -> None:
    """Base64 decoders overlook stray bits at the end and foreign characters anywhere."""
    for group in ("p", "pr", "pro"):
        text = JoinToken(**{**TOKEN.__dict__, "group": group}).encode()
        for last in set(string.ascii_letters + string.digits + "-_") - {text[-1]}:
            with pytest.raises(TokenError):
                decode(text[:-1] + last)
        with pytest.raises(TokenError):
            decode(text[:20] + "!" + text[20:])


def test_every_truncation_is_noticed() -> None:
    text = TOKEN.encode()
    for length in range(len(text)):
        with pytest.raises(TokenError):
            decode(text[:length])


@pytest.mark.parametrize(
    "text",
    ["", "hello", PREFIX, PREFIX + "=", PREFIX + "ü", TOKEN.encode() + "A", PREFIX + "A" * 99999],
)
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(TokenError):
        decode(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"urls": ()},
        {"urls": ("http://10.0.0.1:4530",)},
        {"fingerprint": "00:11"},
        {"invite": "00"},
        {"secret": b"short"},
        {"group": ""},
        {"group": "../x"},
        {"expires": float("inf")},
        {"expires": 1e300},
    ],
)
def test_a_whole_token_with_impossible_content(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever made such a token did not check.
    monkeypatch.setattr(fingerprints, "digest", lambda text: bytes.fromhex(text.replace(":", "")))
    text = JoinToken(**{**TOKEN.__dict__, **changes}).encode()  # type: ignore[arg-type]
    with pytest.raises(TokenError):
        decode(text)


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(TokenError, match="copy it whole"):
        decode(TOKEN.encode()[:-1])


def test_proofs_differ_in_every_part() -> None:
    key, parts = b"k" * 32, ["server", "joiner", "name", "url", "group"]
    proof = request_mac(key, *parts)
    for index in range(len(parts)):
        changed = [*parts]
        changed[index] += "x"
        assert request_mac(key, *changed) != proof
    assert request_mac(b"l" * 32, *parts) != proof
    # Moving a character across a boundary is a change as well.
    assert request_mac(key, "servers", "joiner", "ame", "url", "group") != proof
    assert reply_mac(key, "server", "joiner", b"x") != reply_mac(key, "server", "joiner", b"y")


def test_nobody_proves_himself_by_nothing() -> None:
    with pytest.raises(ValueError, match="no secret"):
        mac_key(b"")
