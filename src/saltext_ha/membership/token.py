"""
The one-time token that an operator carries from a member to the master that joins.

It is ``ha1.`` and base64url of msgpack and a checksum, so an altered or cut token is noticed before
the network is used. Whoever has its secret may join, until the token is used or expired.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field

import msgpack

from saltext_ha.common.errors import NO_SENSE, TokenError
from saltext_ha.config.mapping import NAME, check_url
from saltext_ha.transport import fingerprints, wire

PREFIX = "ha1."
_CHECKSUM = 6
_MAX_LENGTH = 4096
INVITE_ID = re.compile(r"^[0-9a-f]{32}$")


@dataclass(frozen=True)
class JoinToken:
    """
    The content of a token. ``fingerprint`` belongs to the inviter's certificate; ``expires`` is in
    Unix seconds by the inviter's clock; no other clock counts.
    """

    urls: tuple[str, ...]
    fingerprint: str
    invite: str
    expires: int
    group: str
    secret: bytes = field(repr=False)

    def encode(self) -> str:
        """The token as text: letters, digits, ``.``, ``-`` and ``_``."""
        packed = wire.pack(
            {
                "u": list(self.urls),
                "f": fingerprints.digest(self.fingerprint),
                "i": bytes.fromhex(self.invite),
                "e": self.expires,
                "g": self.group,
                "s": self.secret,
            }
        )
        return PREFIX + _base64(packed + _checksum(packed))


def decode(text: str) -> JoinToken:
    """Read a token; blanks in it come from pasting. :raises TokenError: it is no whole token."""
    clean = "".join(text.split())
    if not clean.startswith(PREFIX):
        raise TokenError(f"not a join token: those of salt-ha invite begin with {PREFIX!r}")
    encoded = clean[len(PREFIX) :]
    damaged = TokenError("the join token was altered or cut short; copy it whole, or make another")
    try:
        if len(clean) > _MAX_LENGTH:
            raise damaged
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        packed, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        # Decoding overlooks foreign characters and stray bits; encoding again shows them.
        if _base64(data) != encoded or not hmac.compare_digest(checksum, _checksum(packed)):
            raise damaged
        content = wire.unpack(packed, max_items=16)
        token = JoinToken(
            urls=tuple(check_url(url) for url in content["u"]),
            fingerprint=content["f"].hex(":"),
            invite=content["i"].hex(),
            expires=content["e"],
            group=content["g"],
            secret=content["s"],
        )
        sizes = (len(content["f"]), len(content["i"]), len(token.secret))
        whole = sizes == (32, 16, 32) and type(token.expires) is int
        if not whole or not token.urls or not NAME.fullmatch(token.group):
            raise damaged
    except NO_SENSE:
        raise damaged from None
    return token


def mac_key(secret: bytes) -> bytes:
    """The key for proofs; the inviter keeps only this. :raises ValueError: there is no secret."""
    if not secret:
        raise ValueError("no secret to prove oneself by")
    return hashlib.sha256(secret).digest()


def request_mac(
    key: bytes,
    server: str,
    joiner: str,
    name: str,
    url: str,
    group: str,
    after: bytes | None = None,
) -> bytes:
    """
    The joiner's proof, bound to both certificates' fingerprints and to all that is asked for.

    :param after: given if it only asks what joining would do, for the part that follows this. Such
        a proof is not valid for a join, nor that of a join here.
    """
    asked = [server, joiner, name, url, group]
    if after is None:
        return mac(key, ["ha join request 1", *asked])
    return mac(key, ["ha plan request 1", *asked, after])


def reply_mac(
    key: bytes, server: str, joiner: str, reply: bytes, after: bytes | None = None
) -> bytes:
    """The inviter's proof over its *reply*; *after* as in the request."""
    if after is None:
        return mac(key, ["ha join reply 1", server, joiner, reply])
    return mac(key, ["ha plan reply 1", server, joiner, after, reply])


def mac(key: bytes, parts: list[str | bytes]) -> bytes:
    """HMAC-SHA-256 over *parts*; the first part names the purpose."""
    # msgpack writes every length, so no two lists of parts look the same.
    return hmac.new(key, msgpack.packb(parts, use_bin_type=True), hashlib.sha256).digest()


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha256(PREFIX.encode() + packed).digest()[:_CHECKSUM]


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")
