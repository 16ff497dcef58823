"""``ha: status:`` — where the status page is served, and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.common import validators
from saltext_ha.common.addresses import is_loopback
from saltext_ha.config import secret

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 4531


@dataclass(frozen=True)
class StatusSettings:
    """
    :ivar host: the address that it listens on; elsewhere than on loopback it takes TLS and a token.
    :ivar port: its port.
    :ivar certificate: PEM file of the listener's certificate and its chain; without: no TLS.
    :ivar key: PEM file of its private key; without: it is in the same file.
    :ivar token: a file, of mode 0600, with the token that callers need for more than ``/live`` and
    ``/ready``; without: no token is needed.
    """

    host: str = validators.setting(validators.host, DEFAULT_HOST)
    port: int = validators.setting(validators.whole(1, 65535), DEFAULT_PORT)
    certificate: Path | None = validators.setting(validators.path, None)
    key: Path | None = validators.setting(validators.path, None)
    token: bytes | None = validators.setting(validators.path, None, file=True)

    @property
    def url(self) -> str:
        """The URL of the status page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def parse(value: Any) -> StatusSettings | None:
    """Read the value of ``ha: status:``; None when it is ``false``: nothing listens then."""
    found = validators.switch(value, validators.checks(StatusSettings))
    if found is None:
        return None
    file = found.pop("token_file", None)
    if file is not None:
        try:
            found["token"] = secret.read(file, {})
        except ValueError as exc:
            raise ValueError(f": token_file: {file}: {exc}") from None
    settings = StatusSettings(**found)
    if settings.key and not settings.certificate:
        raise ValueError(": key: is set without certificate:")
    missing = [
        name
        for name, there in (("certificate", settings.certificate), ("token_file", settings.token))
        if not there
    ]
    if missing and not is_loopback(settings.host):
        raise ValueError(
            f": host: {settings.host!r} can be reached from elsewhere; it takes TLS and a token "
            f"then: set {' and '.join(missing)}, or host: {DEFAULT_HOST}"
        )
    return settings
