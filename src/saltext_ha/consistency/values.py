"""
Configuration as leaves: a path (``external_auth:pam:alice``) and a plain value for each.

A leaf is a scalar, a list, ``{"secret": digest}`` or ``{"absent": True}``. The digest is an HMAC
under a random nonce of one check: equal secrets compare equal within it, and nothing that could be
looked up or compared with an older answer leaves this master.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.consistency.rules import EqualityRule, How

ABSENT = {"absent": True}

# "mysecret", "secret_id", "tokenValue", "bindpw", "ssh_private_key", "accessKey"; not a user called
# "secretary" or "monkey", nor a "publicKey".
_SECRET_KEY = re.compile(
    r"(?i:passw|passphrase)"
    r"|(?i:secret|token|credential)s?(?![a-z])"
    r"|(?i:(?<![a-z])(?:api|priv|private|secret|shared|signing|ssh)?_?keys?$)"
    r"|(?<=[a-z])(?<![Pp]ublic)(?<![Pp]ub)Keys?$"
    r"|(?i:(?:access|account|auth|client|encryption|integration|license|routing)keys?$)"
    r"|(?i:(?<![a-z])bearer(?![a-z]))"
    r"|(?i:pwd?$|(?<![a-z])pass$)"
)
_SECRET_VALUE = re.compile(
    # In https a user alone may be a token; in ssh it is git.
    r"://[^/@\s]*:[^/@\s]+@|https?://[^/@\s]+@|-----BEGIN [A-Z ]*PRIVATE KEY"
)


def is_secret_key(name: str) -> bool:
    """Whether a mapping key called *name* holds something that must not be shown."""
    return _SECRET_KEY.search(name) is not None


def is_secret_value(value: str) -> bool:
    """Whether *value* is recognizably a secret: a URL with a password, a private key."""
    return _SECRET_VALUE.search(value) is not None


def leaves_of(rule: EqualityRule, opts: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    """
    The leaves of one option; none if it is not set, or is an empty mapping, which grants nothing.
    """
    value = opts.get(rule.option)
    if value is None or (rule.secret and not value):
        return {}
    if rule.without and isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if str(key) not in rule.without}
    return _flatten((rule.option,), value, rule, nonce, rule.secret)


def digest(value: Any, nonce: bytes) -> dict[str, str]:
    """Replacement of a secret: equal values have equal digests under one *nonce*."""
    text = value if isinstance(value, str) else canonical(value)
    return {"secret": hmac.new(nonce, text.encode(errors="replace"), hashlib.sha256).hexdigest()}


def canonical(value: Any) -> str:
    """A canonical text of a value, for sorting and comparing."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def as_set(items: list[Any]) -> list[Any]:
    """*items* in canonical order, each once."""
    return [value for _, value in sorted({canonical(item): item for item in items}.items())]


def labelled(value: Any, labels: dict[str, str]) -> Any:
    """
    *value* with its digests replaced by numbers, which mean nothing outside this answer: many
    people may read it, and could guess the content of a small file from its plain digest. 16 bytes
    are the digest of a file under the nonce, other lengths a plain digest.
    """
    if isinstance(value, bytes):
        if len(value) != 16:
            return f"content {labels.setdefault(value.hex(), f'#{len(labels) + 1}')}"
        value = {"secret": value.hex()}
    if isinstance(value, Mapping):
        secret = value.get("secret")
        if isinstance(secret, str) and len(value) == 1:
            return {"secret": labels.setdefault(secret, f"#{len(labels) + 1}")}
        return {key: labelled(item, labels) for key, item in value.items()}
    if isinstance(value, list):
        return [labelled(item, labels) for item in value]
    return value


def plain(value: Any, how: How, nonce: bytes) -> Any:
    """*value* as JSON: secrets digested, lists sorted if Salt reads them as sets."""
    if isinstance(value, Mapping):
        # Positional arguments in a permission are matched by position, at any depth.
        return {
            str(key): _entry(
                str(key), plain(item, How.EXACT if key == "args" else how, nonce), nonce
            )
            for key, item in value.items()
        }
    if isinstance(value, str):
        return digest(value, nonce) if is_secret_value(value) else value
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        items = [plain(item, how, nonce) for item in value]
        unordered = how is How.SET or isinstance(value, (set, frozenset))
        return as_set(items) if unordered else items
    if isinstance(value, int) and value.bit_length() > 63:
        return str(value)  # msgpack has no such numbers
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _entry(key: str, value: Any, nonce: bytes) -> Any:
    return digest(value, nonce) if is_secret_key(key) else value


def _flatten(
    path: tuple[str, ...], value: Any, rule: EqualityRule, nonce: bytes, hide: bool
) -> dict[str, Any]:
    if isinstance(value, Mapping):
        # Below the name of a secret the keys may be the secrets: tokens: {hunter2: alice}.
        if value and is_secret_key(path[-1]):
            return {":".join(path): digest(plain(value, rule.how, nonce), nonce)}
        leaves: dict[str, Any] = {}
        for key, item in value.items():
            inner = hide or is_secret_key(str(key))
            leaves.update(_flatten((*path, str(key)), item, rule, nonce, inner))
        return leaves
    # Digest after sorting: the order of a hidden set must not matter either.
    leaf = plain(value, rule.how, nonce)
    return {":".join(path): digest(leaf, nonce) if hide else leaf}
