"""
Which masters a pool uses: from arguments, or from the environment.

The first of these that is set is used; if it is wrong, that is an error, and no other is tried:

1. ``SALT_MASTERS_CONFIG``: JSON, a list of mappings (see :data:`KEYS`)
2. ``SALT_MASTER_URLS``: URLs separated by commas, the preferred one first
3. ``SALT_MASTER_HOST`` with ``SALT_API_PORT`` (8000) and ``SALT_API_SCHEME`` (https)

What an entry does not set comes from ``SALT_API_USERNAME``, ``SALT_API_PASSWORD`` or
``SALT_API_PASSWORD_FILE``, ``SALT_API_EAUTH`` (pam) and ``SALT_API_VERIFY``.
"""

from __future__ import annotations

import hmac
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.api.errors import BadConfiguration
from saltext_ha.common.addresses import is_loopback

DEFAULT_PORT = 8000
DEFAULT_EAUTH = "pam"
# The keys that an entry may have, and their types.
KEYS: dict[str, type | tuple[type, ...]] = {
    "url": str,
    "name": str,
    "priority": int,
    "username": str,
    "password": str,
    "password_file": str,
    "eauth": str,
    "verify": (bool, str),
}
TYPES = {str: "text", int: "a whole number", (bool, str): "true, false or the path of a CA file"}
# Errors do not show their values: a URL may have a password in it.
SECRET = {"password", "url"}


class InsecureConnection(UserWarning):
    """A password will travel unencrypted to a host that is not this one."""


class Secret:
    """A password or a token, given or in a file, that no repr, log line or error shows."""

    def __init__(self, value: str | None = None, file: Path | None = None) -> None:
        self._value, self.file = value, file

    def read(self) -> str:
        """
        The password; a file is read again each time, so that it can be changed while we run.

        :raises BadConfiguration: when the file cannot be read or is empty.
        """
        if self.file is None:
            return self._value or ""
        problem = "is empty"
        try:
            text = self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            text, problem = "", "is not UTF-8"
        except (OSError, ValueError) as exc:  # ValueError: no name of a file
            text, problem = "", getattr(exc, "strerror", None) or "cannot be read"
        if not text:
            raise BadConfiguration(f"password_file {self.file}: {problem}")
        return text

    def now(self) -> Secret:
        """The present value, as a secret that does not change with its file."""
        return Secret(self.read())

    def same(self, other: Secret) -> bool:
        """Whether both are the same text."""
        # os.environ has a surrogate for each byte that is not UTF-8.
        mine, others = (each.read().encode("utf-8", "surrogatepass") for each in (self, other))
        return hmac.compare_digest(mine, others)

    def __repr__(self) -> str:
        return f"<Secret in {self.file}>" if self.file else "<Secret>"


@dataclass(frozen=True)
class Endpoint:
    """
    The salt-api of one master.

    :ivar url: without a slash at the end.
    :ivar name: what errors and answers call it; by default the URL.
    :ivar priority: the lowest is preferred.
    :ivar verify: ``True``, ``False``, or the path of a CA file.
    """

    url: str
    username: str
    password: Secret
    eauth: str = DEFAULT_EAUTH
    priority: int = 0
    name: str = ""
    verify: bool | str = True

    @property
    def insecure(self) -> bool:
        """Whether the password would travel unencrypted to another host."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def from_environment(
    environ: Mapping[str, str], options: Mapping[str, Any] | None = None
) -> list[Endpoint]:
    """
    The masters that *environ* names.

    :param options: what comes before the defaults of *environ*: the arguments of ``SaltApiPool``.
    :raises BadConfiguration: naming the variable, the entry and the key; and when none is set.
    """

    def setting(name: str) -> str:
        return environ.get(name, "").strip()

    usual = {
        key: setting(f"SALT_API_{key.upper()}")
        for key in ("username", "password", "password_file", "eauth", "verify")
    }
    given = {key: str(value) for key, value in (options or {}).items()}
    if {"password", "password_file"} & given.keys():
        usual |= dict.fromkeys(("password", "password_file"), "")
    usual |= {key: text if key == "password" else text.strip() for key, text in given.items()}
    defaults: dict[str, Any] = {key: value for key, value in usual.items() if value}
    if defaults.get("verify", "").lower() in ("true", "false", "1", "0"):
        defaults["verify"] = defaults["verify"].lower() in ("true", "1")
    if text := setting("SALT_MASTERS_CONFIG"):
        return endpoints(_entries(text), defaults, "SALT_MASTERS_CONFIG")
    if text := setting("SALT_MASTER_URLS"):
        return endpoints([url.strip() for url in text.split(",")], defaults, "SALT_MASTER_URLS")
    if host := setting("SALT_MASTER_HOST"):
        return endpoints([_single(host, setting)], defaults, "SALT_MASTER_HOST")
    raise BadConfiguration(
        "no masters: set SALT_MASTERS_CONFIG, SALT_MASTER_URLS or SALT_MASTER_HOST, "
        "or give them to SaltApiPool"
    )


def endpoints(
    entries: Sequence[Endpoint | Mapping[str, Any] | str],
    defaults: Mapping[str, Any],
    where: str,
) -> list[Endpoint]:
    """
    Check *entries* and complete them.

    :param entries: each an :class:`Endpoint`, a mapping with :data:`KEYS`, or only a URL. The
        priority of an entry without one is its place in the list.
    :param defaults: for what an entry does not set: username, password or password_file, eauth,
        verify.
    :param where: what errors call the list.
    :raises BadConfiguration: naming the entry and the key.
    """
    if isinstance(entries, (str, bytes, Mapping)) or not isinstance(entries, Sequence):
        raise BadConfiguration(f"{where}: takes a list of masters")
    if not entries:
        raise BadConfiguration(f"{where}: the list is empty")
    _check(defaults, "default")
    found = [_endpoint(entry, place, defaults, where) for place, entry in enumerate(entries)]
    for key in ("url", "name"):
        values = [getattr(endpoint, key) for endpoint in found]
        for place, value in enumerate(values):
            if value in values[:place]:
                raise BadConfiguration(f"{where}[{place}].{key}: {value} is there twice")
    return found


def check_numbers(numbers: Mapping[str, Any]) -> None:
    """:raises BadConfiguration: one of *numbers* is not a finite number, or not above 0."""
    for key, value in numbers.items():
        if not (_is_finite(value) and value > 0):
            raise BadConfiguration(f"{key}: {value!r}; takes a finite number above 0")


def check_flag(key: str, value: Any) -> None:
    """
    :raises BadConfiguration: *value*, the argument *key*, is neither true nor false. Any text would
        count as true, also the ``false`` of an environment variable.
    """
    if not isinstance(value, bool):
        raise BadConfiguration(f"{key}: {value!r}; takes True or False")


def check_seconds(key: str, value: Any) -> None:
    """:raises BadConfiguration: *value*, the argument *key*, is not a finite number."""
    if not _is_finite(value):
        raise BadConfiguration(f"{key}: {value!r}; takes a finite number of seconds")


def _is_finite(value: Any) -> bool:
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real and bool(abs(value) <= sys.float_info.max)  # NaN is not, either


def check_insecure(endpoints: Sequence[Endpoint], allowed: bool | None) -> None:
    """
    Warn of, or refuse, passwords that would travel unencrypted; *allowed* is ``allow_insecure`` of
    ``SaltApiPool``.

    :raises BadConfiguration: it is refused, or *allowed* is neither true, false nor None.
    """
    if allowed is not None:
        check_flag("allow_insecure", allowed)
    for endpoint in endpoints:
        if not endpoint.insecure or allowed:
            continue
        text = f"{endpoint.url} sends the password unencrypted; use https://"
        if allowed is False:
            raise BadConfiguration(f"{text}, or allow_insecure=True")
        warnings.warn(f"{text}, or say allow_insecure=True", InsecureConnection, stacklevel=3)


def _entries(text: str) -> Sequence[Any]:
    problem = ""
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as exc:
        problem = f"{exc.msg} (line {exc.lineno} column {exc.colno})"
    except (ValueError, RecursionError) as exc:  # a number of thousands of digits; deep nesting
        problem = type(exc).__name__
    # Outside of the handler: that exception has the whole text, with the passwords in it.
    if problem:
        raise BadConfiguration(f"SALT_MASTERS_CONFIG: is not JSON: {problem}")
    if not isinstance(entries, list):
        raise BadConfiguration(
            "SALT_MASTERS_CONFIG: takes a list of mappings: "
            '[{"url": "https://m1:8000", "priority": 0}]'
        )
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise BadConfiguration(f"SALT_MASTERS_CONFIG[{place}]: takes a mapping with url")
    return entries


def _single(host: str, setting: Any) -> str:
    port, scheme = setting("SALT_API_PORT") or str(DEFAULT_PORT), setting("SALT_API_SCHEME")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadConfiguration(f"SALT_API_PORT: {port!r} is not a port; takes 1 to 65535")
    if scheme not in ("", "http", "https"):
        raise BadConfiguration(f"SALT_API_SCHEME: {scheme!r}; takes http or https")
    if "/" in host or "@" in host:
        raise BadConfiguration("SALT_MASTER_HOST: takes a name or an address, no URL")
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{scheme or 'https'}://{host}:{port}"


def _endpoint(
    entry: Endpoint | Mapping[str, Any] | str, place: int, defaults: Mapping[str, Any], where: str
) -> Endpoint:
    here = f"{where}[{place}]"
    if isinstance(entry, Endpoint):
        _check({"url": entry.url}, here)
        url = _url(entry.url, f"{here}.url")
        return replace(entry, url=url, name=entry.name or url)
    if isinstance(entry, str):
        entry = {"url": entry}
    if not isinstance(entry, Mapping):
        raise BadConfiguration(f"{here}: takes a URL or a mapping with url")
    _check(entry, here)
    if "url" not in entry:
        raise BadConfiguration(f"{here}.url: is missing")
    url = _url(entry["url"], f"{here}.url")
    # An empty text is one that is not set, as in the environment.
    entry, usual = ({k: v for k, v in has.items() if v != ""} for has in (entry, defaults))
    own = {"password", "password_file"} & entry.keys()
    if len(own) == 2:
        raise BadConfiguration(f"{here}.password_file: password is there too; give one of them")
    values = {k: v for k, v in usual.items() if not (own and "password" in k)} | entry
    # Without a line end, which that of a file is read without, too.
    values["password"] = (values.get("password") or "").rstrip("\r\n")
    if not values.get("username"):
        raise BadConfiguration(f"{here}.username: is missing; or set SALT_API_USERNAME")
    if not (values["password"] or values.get("password_file")):
        raise BadConfiguration(
            f"{here}.password: is missing; or set SALT_API_PASSWORD or SALT_API_PASSWORD_FILE"
        )
    verify = values.get("verify", True)
    if isinstance(verify, str) and not _exists(verify):
        raise BadConfiguration(f"{here}.verify: {verify:.200} does not exist; takes a CA file")
    file = values.get("password_file")
    if file and values["password"]:
        raise BadConfiguration(f"{here}.password_file: password is set too; give one of them")
    return Endpoint(
        url=url,
        username=values["username"],
        password=Secret(file=Path(file)) if file else Secret(values["password"]),
        eauth=values.get("eauth") or DEFAULT_EAUTH,
        priority=values.get("priority", place),
        name=values.get("name") or url,
        verify=verify,
    )


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # no name of a file: a certificate itself, perhaps
        return False


def _check(entry: Mapping[str, Any], here: str) -> None:
    for key, value in entry.items():
        kind = KEYS.get(key)
        if kind is None:
            named = here if "@" in str(key) else f"{here}.{key}"  # not a URL with a password
            raise BadConfiguration(f"{named}: unknown key; takes {', '.join(KEYS)}")
        wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        if wrong:
            shown = "" if key in SECRET else f"{json.dumps(value, default=repr)} is wrong; "
            raise BadConfiguration(f"{here}.{key}: {shown}takes {TYPES[kind]}")


def _url(text: str, here: str) -> str:
    """
    *text* as a URL without a slash at its end.

    No error shows it: there may be a password in it, however it is mistyped, and without an ``@``
    a part of one (``SALT_MASTER_URLS`` is divided at every comma).
    """
    if "@" in text:
        raise BadConfiguration(
            f"{here}: has a user or password in it; give username and password (in a path, write "
            "%40 for @)"
        )
    problem = ""
    try:
        text.encode()
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
        problem = "is no URL; takes https://host:port"
    if not problem and parts.scheme not in ("http", "https"):
        problem = "has no scheme; write https://host:port"
    if not problem and not host:
        problem = "has no host"
    if not problem and any(sign <= " " or sign == "\x7f" for sign in host or ""):
        problem = "has a blank or a control character in its host"
    if not problem and (parts.query or parts.fragment):
        problem = "has a query; takes https://host:port and a path at most"
    if problem or port == 0:
        raise BadConfiguration(f"{here}: {problem or 'has port 0'}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
