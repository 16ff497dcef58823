"""
Salt's own master cluster (``cluster_id``) and its minion keys.

- 3006 has none, and ignores its settings.
- 3007: all masters use one folder, ``cluster_pki_dir``. There is nothing to replicate.
- 3008: the same, or with ``cluster_isolated_filesystem`` a folder for each master. Then masters
  tell each other of automatic acceptances and deletions, and of nothing else
  (``EventMonitor._apply_peer_key_change`` in ``salt/master.py``); docs/native-cluster.md lists the
  gaps.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import salt.config

# The settings that this release of Salt knows; it ignores others.
KNOWN: Container[str] = salt.config.DEFAULT_MASTER_OPTS
ISOLATED = "cluster_isolated_filesystem"
# ha.invite does not share the key pair by which minions know members: Salt gives it to new members.
ONE_KEY = (
    "put cluster.pem and cluster.pub of the member whose key the minions know in cluster_pki_dir "
    "of {masters}, restart salt-master there"
)


@dataclass(frozen=True)
class Cluster:
    """
    The cluster that a master is a member of.

    ``key_dir`` holds its minion keys: a folder of each member's own when ``isolated``, else one
    that all members share. ``may_be_isolated``: whether this Salt knows isolated clusters.
    """

    name: str
    key_dir: Path
    isolated: bool
    may_be_isolated: bool

    def why_only_reported(self, repair: bool) -> str:
        """Why the key store of a member is not written; empty when it is."""
        if not self.isolated:
            return (
                f"the masters of cluster {self.name} share {self.key_dir}: "
                "nothing is to be replicated"
            )
        if not repair:
            return (
                f"Salt's cluster {self.name} distributes keys; "
                "to mend what it leaves open set  ha: repair: true"
            )
        return ""

    def why_no_repair(self) -> str:
        """Why ``repair: true`` is not possible here, and what to do; empty when it is."""
        if self.isolated:
            return ""
        otherwise = (
            f"; masters with key folders of their own need {ISOLATED}: True"
            if self.may_be_isolated
            else f"; this release of Salt has no other clusters ({ISOLATED} came with 3008)"
        )
        return (
            f"the masters of cluster {self.name} share the keys in cluster_pki_dir {self.key_dir}, "
            f"where ha never writes; remove it{otherwise}"
        )


def of(opts: Mapping[str, Any], known: Container[str] = KNOWN) -> Cluster | None:
    """
    The cluster that *opts*, a master's configuration, make it a member of.

    :param known: the settings that this release of Salt knows.
    """
    if "cluster_id" not in known or not opts.get("cluster_id"):
        return None
    may_be_isolated = ISOLATED in known
    return Cluster(
        name=str(opts["cluster_id"]),
        key_dir=Path(opts.get("cluster_pki_dir") or opts["pki_dir"]),
        isolated=may_be_isolated and bool(opts.get(ISOLATED)),
        may_be_isolated=may_be_isolated,
    )
