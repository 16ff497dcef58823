"""Rules on a member of Salt's own master cluster (``cluster_id``)."""

from __future__ import annotations

import ipaddress

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.cluster import ISOLATED
from saltext_ha.lint.cited import PEER_ID, CitedLine
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MASTER)
# From here on cluster_pool_port counts.
ONE_PORT = (3008, 3)


def _member(facts: HostFacts) -> bool:
    return bool(facts.get("cluster_id"))


def _peers(facts: HostFacts) -> list[str]:
    peers = facts.get("cluster_peers", [])
    return [str(peer) for peer in peers] if isinstance(peers, list) else []


def _wildcard(facts: HostFacts) -> bool:
    ip = bare_ip(str(facts.get("interface", "")))
    return ip is not None and ipaddress.ip_address(ip).is_unspecified


@BOOK.error(
    "HA601",
    "cluster_id with interface: 0.0.0.0",
    CitedLine(
        "salt/channel/server.py:3108 MasterPubServerChannel._publish_daemon",
        'if bootstrap_pool and bootstrap_pool[0] == self.opts["interface"]:',
    ),
    CitedLine(
        "salt/cluster/consensus/service.py:83 RaftService.__init__", 'node_id = opts["interface"]'
    ),
    why="interface is this member's name in the cluster, and the lowest one founds it: 0.0.0.0 is "
    "lower than all others, so every member founds a cluster of its own.",
    fix="set interface to the address that the others have in cluster_peers",
    since=3008,
)
def wildcard(facts: HostFacts) -> Hits:
    if _member(facts) and _wildcard(facts):
        yield Hit("interface", str(facts.get("interface")), beside="cluster_id")


@BOOK.error(
    "HA602",
    "cluster_id with an id that is not this member's address",
    PEER_ID,
    why="The others look this member up by the name that they have in cluster_peers, which is the "
    "address they connect to; it presents itself, and its key, by its id.",
    fix="set id to the address that the others have in cluster_peers",
    since=3007,
)
def other_id(facts: HostFacts) -> Hits:
    if not _member(facts) or not _peers(facts):
        return
    name = str(facts.get("id", "")).removesuffix("_master")
    addresses = all(bare_ip(peer) for peer in _peers(facts))
    differs = not _wildcard(facts) and bare_ip(str(facts.get("interface"))) != bare_ip(name)
    if addresses and (not bare_ip(name) or differs):
        yield Hit("id", f"{name}, not {facts.get('interface')}", beside="cluster_id")


@BOOK.error(
    "HA603",
    "cluster_id without cluster_secret",
    CitedLine(
        "salt/channel/server.py:3621 MasterPubServerChannel.handle_pool_publish",
        'if secret != (self.opts.get("cluster_secret") or ""):',
    ),
    why="A master that asks to join must know the secret; where there is none, the empty one will "
    "do: any host that reaches TCP 4520 becomes a member and gets the cluster's key.",
    fix="set cluster_secret, the same on all members (openssl rand -hex 32)",
    since=3008,
)
def no_secret(facts: HostFacts) -> Hits:
    if _member(facts) and not facts.get("cluster_secret"):
        yield Hit("cluster_secret", "is not set", beside="cluster_id")


@BOOK.info(
    "HA604",
    "a cluster with isolated file systems, and no repair by ha",
    CitedLine(
        "salt/master.py:1427 EventMonitor.handle_event",
        "self._apply_peer_key_change(act, minion_id, pub)",
    ),
    "docs/native-cluster.md",
    why="Salt distributes automatic acceptances and deletions only: salt-key -a and -r stay on one "
    "member, and a member that was down keeps deleted keys.",
    fix="run the ha engine on all members, with  ha: repair: true",
    since=3008,
)
def no_repair(facts: HostFacts) -> Hits:
    if _member(facts) and facts.get(ISOLATED) and not facts.ha.get("repair"):
        yield Hit(ISOLATED, "ha: repair is not set")


@BOOK.warning(
    "HA605",
    "cluster_id on Salt 3006",
    CitedLine(
        "salt/config/__init__.py:114", "VALID_OPTS = immutabletypes.freeze(", release="3006.28"
    ),
    why="3006 has no clusters and ignores it: these masters share nothing.",
    fix="upgrade to 3008, or take it out and let ha replicate the keys",
    before=3007,
)
def too_old(facts: HostFacts) -> Hits:
    if _member(facts):
        yield Hit("cluster_id", str(facts.get("cluster_id")))


@BOOK.error(
    "HA606",
    "cluster_isolated_filesystem on Salt 3007",
    CitedLine(
        "salt/config/__init__.py:114", "VALID_OPTS = immutabletypes.freeze(", release="3007.15"
    ),
    why="3007 knows shared folders only and ignores it: members with folders of their own do not "
    "find each other's keys.",
    fix="upgrade to 3008, or put cluster_pki_dir on storage that all members share",
    since=3007,
    before=3008,
)
def not_isolated(facts: HostFacts) -> Hits:
    if _member(facts) and facts.get(ISOLATED):
        yield Hit(ISOLATED, "True")


@BOOK.error(
    "HA607",
    "cluster_id without cluster_peers",
    CitedLine(
        "salt/master.py:1017 Master._pre_flight",
        'if self.opts.get("cluster_id") and not self.opts.get("cluster_peers"):',
        release="3008.3",
    ),
    CitedLine(
        "salt/config/__init__.py:4164 apply_master_config",
        'opts["cluster_peers"] = []',
        release="3007.15",
    ),
    why="A 3007 member is alone in its cluster; 3008 refuses to start.",
    fix="list the addresses of the other members",
    since=3007,
)
def no_peers(facts: HostFacts) -> Hits:
    if _member(facts) and not _peers(facts):
        yield Hit("cluster_peers", "is empty", beside="cluster_id")


@BOOK.warning(
    "HA608",
    "a cluster whose members may use different ports",
    CitedLine(
        "salt/config/__init__.py:4434 apply_master_config",
        'if "cluster_port" in overrides and "cluster_pool_port" not in overrides:',
    ),
    "saltstack/salt issue 69877",
    why="3008.0 to 3008.2 read the port of the cluster from cluster_port, which is documented "
    "nowhere, and else take 55596; the others take cluster_pool_port, 4520. Members that are "
    "upgraded one after the other do not meet, and a firewall is open for the wrong port.",
    fix="set cluster_port to the number of cluster_pool_port (4520) on all members, before the "
    "next upgrade; take it out when all run 3008.3 or newer",
    since=3008,
)
def other_port(facts: HostFacts) -> Hits:
    if not _member(facts):
        return
    documented, read = facts.get("cluster_pool_port", 4520), facts.get("cluster_port")
    if read is not None and read != documented and facts.written("cluster_pool_port"):
        yield Hit("cluster_port", f"{read}, and cluster_pool_port: {documented}")
    elif read is None and facts.version < ONE_PORT:
        yield Hit("cluster_port", "is not set: 55596", beside="cluster_id")
