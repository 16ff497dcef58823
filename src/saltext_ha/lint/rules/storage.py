"""Rules on folders and caches that masters share."""

from __future__ import annotations

from saltext_ha.common import cluster
from saltext_ha.lint.cited import (
    GLOBAL_LOCK,
    SHARED_CACHEDIR,
    SHARED_PKI_DIR,
    WHY_NO_SHARED_CACHEDIR,
    CitedLine,
)
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook
from saltext_ha.lint.rules.master import in_group

BOOK = RuleBook(MASTER)

LOCKS = ("gitfs_global_lock", "git_pillar_global_lock")


@BOOK.warning(
    "HA506",
    "cachedir on a network file system",
    *SHARED_CACHEDIR,
    why=WHY_NO_SHARED_CACHEDIR,
    fix="give each master a cachedir on a disk of its own",
)
def remote_cache(facts: HostFacts) -> Hits:
    inside = cluster.of(facts.options)
    if not inside or inside.isolated:  # other clusters are meant to share it
        yield from _on_network(facts, "cachedir")


@BOOK.warning(
    "HA507",
    "pki_dir on a network file system",
    *SHARED_PKI_DIR,
    why="Who can read the share has master.pem and with it all minions; when it is away, no minion "
    "can authenticate on any master. A shared pki_dir would also hold the state of ha twice.",
    fix="give each master a pki_dir of its own: keys are replicated, and salt-ha "
    "invite share_master_key=True hands master.pem over",
)
def remote_keys(facts: HostFacts) -> Hits:
    yield from _on_network(facts, "pki_dir")


def _on_network(facts: HostFacts, folder: str) -> Hits:
    if folder in facts.shared:
        yield Hit(folder, f"{facts.get(folder)} is on {facts.shared[folder]}")


@BOOK.error(
    "HA508",
    "gitfs or git_pillar without global lock, in a cachedir on a network file system",
    GLOBAL_LOCK,
    why="A master then removes the lock that another one holds, and both write one repository.",
    fix="take gitfs_global_lock and git_pillar_global_lock out; better, give each master a "
    "cachedir of its own",
)
def unlocked_remote(facts: HostFacts) -> Hits:
    for option in LOCKS:
        if "cachedir" in facts.shared and facts.get(option, True) is False:
            yield Hit(option, "False")


@BOOK.info(
    "HA511",
    "minion data cache that masters share, and preserve_minion_cache: False",
    CitedLine(
        "salt/key.py:503 Key.check_minion_cache", 'self.opts.get("preserve_minion_cache", False):'
    ),
    why="Deleting or rejecting any key drops the cached data of every id that has no key on this "
    "very master, also of minions that only other masters know.",
    fix="set preserve_minion_cache: True",
)
def drops_cache(facts: HostFacts) -> Hits:
    cache = facts.get("cache", "localfs")
    if cache not in ("localfs", "mmap_cache") and not facts.get("preserve_minion_cache"):
        yield Hit("cache", str(cache))


@BOOK.error(
    "HA518",
    "two masters with one state folder",
    "saltext_ha/replica/state_owner.py",
    "tests/integration/test_shared_store.py",
    why="The folder says who a master is to its peers. The second would be the first: it is turned "
    "away, its engine does not start, and no key is replicated to or from it.",
    fix="give each master a pki_dir of its own; or, where they share it, each a folder of its own "
    "as ha: state_dir, outside of it. Then start salt-master",
)
def one_state_folder(facts: HostFacts) -> Hits:
    if facts.state_owner and in_group(facts):
        yield Hit("ha", facts.state_owner)
