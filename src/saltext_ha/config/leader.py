"""``ha: leader:`` — which master does what must not be done twice, and how the group finds it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.common.validators import checks, one_of, path, setting, switch, whole, word
from saltext_ha.config import secret

GROUP, ETCD = "group", "etcd"
PREFIX = re.compile(r"/[A-Za-z0-9._/-]{1,200}")


def _names(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise ValueError("takes a list of names of masters, each once")
    return tuple(names)


def _endpoints(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("takes a list of https://host:2379")
    return tuple(_endpoint(each) for each in value)


def _endpoint(value: Any) -> str:
    says = "takes a list of https://host:2379; "
    if "@" in str(value):
        raise ValueError(f"{says}write user and password as username: and password_file:")
    try:
        parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        good = False
    if not good or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{says}{value!r} is none")
    return f"{parts.scheme}://{parts.netloc}"


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not PREFIX.fullmatch(value) or value.endswith("/"):
        raise ValueError("takes a path as /salt-ha, of letters, digits, '.', '_', '-' and '/'")
    return value


@dataclass(frozen=True)
class LeaderSettings:
    """
    :ivar store: where it is decided who leads: among the masters, or [in etcd](once.md#with-etcd).
    :ivar order: with ``group``: names of masters, the one that is to lead rather than the others
        first; the same on all. Those that are not named follow by their names.
    :ivar endpoints: members of one etcd cluster, which are tried in turn.
    :ivar ca: a file with the CA of their certificates; without, the CAs of the system count.
    :ivar cert: a file: the certificate that this master shows them; with ``key``.
    :ivar key: a file: the key of that certificate.
    :ivar username: of etcd, where it has users; with ``password_file``.
    :ivar password: a file, of mode 0600, with that user's password.
    :ivar prefix: below which the group keeps its key there; the name of the group follows. Groups
        of the same name in one etcd need different ones.
    :ivar ttl: seconds after which another master may lead when the leader says nothing; with etcd
        also those after which a lock that is not prolonged ends.
    """

    store: str = setting(one_of(GROUP, ETCD), GROUP)
    order: tuple[str, ...] = setting(_names, ())
    endpoints: tuple[str, ...] = setting(_endpoints, ())
    ca: Path | None = setting(path, None)
    cert: Path | None = setting(path, None)
    key: Path | None = setting(path, None)
    username: str = setting(word, "")
    password: str = setting(path, "", file=True)
    prefix: str = setting(_prefix, "/salt-ha")
    ttl: int = setting(whole(3, 300), 8)


def parse(value: Any) -> LeaderSettings | None:
    """Read the value of ``ha: leader:``; None when it is ``false``: this master takes no part."""
    found = switch(value, checks(LeaderSettings))
    if found is None:
        return None
    if found.get("store", GROUP) == GROUP:
        if of_etcd := [key for key in found if key not in ("store", "order")]:
            raise ValueError(f": {of_etcd[0]}: belongs to store: etcd")
    else:
        _check_etcd(found)
    if "password_file" in found:
        found["password"] = secret.password(found.pop("password_file"))
    return LeaderSettings(**found)


def _check_etcd(found: Mapping[str, Any]) -> None:
    if "order" in found:
        raise ValueError(
            ": order: belongs to store: group; with etcd the master that is first there leads"
        )
    if "endpoints" not in found:
        raise ValueError(": endpoints: is missing: a list of https://host:2379")
    for one, other in (("cert", "key"), ("username", "password_file")):
        if (one in found) != (other in found):
            raise ValueError(f": {one}: and {other}: belong together; set both or none")
