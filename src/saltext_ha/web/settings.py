"""``ha: status:`` — where the status page is served, and to whom."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltext_ha import secret
from saltext_ha.health.checks import is_loopback

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 4531
_PATHS = ("certificate", "key", "token_file")
_KEYS = ("host", "port", *_PATHS)


@dataclass(frozen=True)
class Settings:
    """
    :param certificate: PEM file of what the listener shows, its chain included; None: no TLS.
    :param key: PEM file of its private key; None: it is in the same file.
    :param token: what callers must know to see more than ``/live`` and ``/ready``; None: nothing.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    certificate: Path | None = None
    key: Path | None = None
    token: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def url(self) -> str:
        """Where it is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def parse(value: Any) -> Settings | None:
    """
    Read the value of ``ha: status:``; None when it is ``false``: nothing listens then.

    :raises ValueError: begins with the key that is wrong; says what it takes.
    """
    if value is False:
        return None
    if value is None:
        return Settings()
    if not isinstance(value, Mapping):
        raise ValueError(f": takes false, or a mapping with some of the keys {', '.join(_KEYS)}")
    found: dict[str, Any] = {}
    for key, given in value.items():
        if key == "host":
            if not isinstance(given, str) or not given or "/" in given or " " in given:
                raise ValueError(f": host: {given!r} takes a host name or an IP address")
            found[key] = given.strip("[]")
        elif key == "port":
            if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 65535:
                raise ValueError(f": port: {given!r} takes a whole number from 1 to 65535")
            found[key] = given
        elif key in _PATHS:
            if not isinstance(given, str) or not Path(given).is_absolute():
                raise ValueError(f": {key}: {given!r} takes an absolute path")
            found[key] = Path(given)
        else:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KEYS)}"
            raise ValueError(f": unknown key {key!r}; {hint}")
    file = found.pop("token_file", None)
    if file is not None:
        try:
            found["token"] = secret.read(file, {})
        except ValueError as exc:
            raise ValueError(f": token_file: {file}: {exc}") from None
    settings = Settings(**found)
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
