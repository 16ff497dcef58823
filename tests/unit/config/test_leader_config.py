"""``ha: leader:`` read, and each mistake named with what its key takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.config import leader

ETCD = {"store": "etcd", "endpoints": ["https://e1:2379"]}


def test_etcd_is_read(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    more = {"username": "salt", "password_file": str(file), "ttl": 20, "prefix": "/a/b"}
    found = leader.parse({**ETCD, **more})
    assert found
    assert (found.store, found.endpoints) == ("etcd", ("https://e1:2379",))
    assert (found.password, found.ttl, found.prefix) == ("secret", 20, "/a/b")
    assert "secret" not in repr(found)


def test_it_is_on_by_default() -> None:
    assert leader.parse(None) == leader.LeaderSettings("group", ())
    assert leader.parse({"order": ["m2", "m1"]}).order == ("m2", "m1")  # type: ignore[union-attr]
    assert leader.parse(False) is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("m1", "takes false, or a mapping"),
        ({"order": "m1"}, "order: 'm1' takes a list of names of masters, each once"),
        ({"order": ["m1", "m1"]}, "takes a list of names of masters, each once"),
        ({"order": [1]}, "takes a list of names of masters, each once"),
        ({"store": "redis"}, "store: 'redis' takes one of: group, etcd"),
        ({"ttl": 9}, "ttl: belongs to store: etcd"),
        ({"store": "etcd"}, "endpoints: is missing: a list of https://host:2379"),
        ({**ETCD, "order": ["m1"]}, "order: belongs to store: group"),
        ({**ETCD, "endpoints": ["e1:2379"]}, "'e1:2379' is none"),
        ({**ETCD, "endpoints": ["https://e1"]}, "'https://e1' is none"),
        ({**ETCD, "endpoints": ["https://[::1:2379"]}, "is none"),
        ({**ETCD, "endpoints": []}, "takes a list of https://host:2379"),
        ({**ETCD, "cert": "/c"}, "cert: and key: belong together"),
        ({**ETCD, "username": "u"}, "username: and password_file: belong together"),
        ({**ETCD, "ttl": 1}, "ttl: 1 takes a whole number from 3 to 300"),
        ({**ETCD, "prefix": "x"}, "prefix: 'x' takes a path as /salt-ha"),
        ({"ordre": []}, "unknown key 'ordre'; did you mean 'order'?"),
    ],
)
def test_mistakes(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        leader.parse(value)


@pytest.mark.parametrize("wrong", ["https://root:hunter2@e1:2379", "https://root:hunter2@e1"])
def test_a_password_in_an_address_is_not_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="username: and password_file:") as raised:
        leader.parse({**ETCD, "endpoints": [wrong]})
    assert "hunter2" not in str(raised.value)
