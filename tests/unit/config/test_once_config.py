"""``ha: once:`` read, and what it cannot stand beside."""

from __future__ import annotations

from typing import Any

import pytest
import salt.config

from saltext_ha.common.errors import ConfigError
from saltext_ha.config import mapping, once

HAS_CLUSTERS = "cluster_id" in salt.config.DEFAULT_MASTER_OPTS


def test_reactors_react_everywhere_unless_told() -> None:
    assert once.parse(None) == once.OnceSettings(reactor=False)
    assert once.parse({"reactor": True}).reactor


@pytest.mark.parametrize(
    ("ha", "more", "says"),
    [
        ({"once": True}, {}, "ha: once: takes a mapping with some of the keys reactor"),
        ({"once": {"reactor": "yes"}}, {}, "ha: once: reactor: 'yes' takes true or false"),
        ({"once": {"reactors": True}}, {}, "did you mean 'reactor'?"),
        (
            {"once": {"reactor": True}, "leader": False},
            {},
            "ha: once: reactor: True and ha: leader: False exclude each other",
        ),
        pytest.param(
            {"once": {"reactor": True}},
            {"cluster_id": "c", "cluster_peers": ["m2"], "cluster_pki_dir": "/cluster"},
            "ha: once: reactor: True cannot be with cluster_id",
            marks=pytest.mark.skipif(not HAS_CLUSTERS, reason="3006 ignores cluster_id"),
        ),
    ],
)
def test_mistakes(ha: dict[str, Any], more: dict[str, Any], says: str) -> None:
    opts = {"id": "m1", "pki_dir": "/pki", "sock_dir": "/run", "ha": ha, **more}
    with pytest.raises(ConfigError, match=says):
        mapping.parse(opts)
