"""Rules that compare the masters of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from saltext_ha.common.cluster import ISOLATED
from saltext_ha.lint.cited import (
    ALIVE_CHECK,
    FINGER,
    GLOBAL_LOCK,
    PEER_ID,
    PORT_OF_ENTRY,
    PORT_TOLD,
    SHARED_CACHEDIR,
    SHARED_PKI_DIR,
    SIGNED_UNVERIFIED,
    WHY_NO_SHARED_CACHEDIR,
    CitedLine,
)
from saltext_ha.lint.model import GROUP, Hit, Hits, Member, RuleBook
from saltext_ha.lint.rules.storage import LOCKS

BOOK = RuleBook(GROUP)

#: Options that a master tells its peers for these rules. None of them is a secret: ``schedule`` and
#: ``reactor`` are reduced to names, ``ha`` to ``masters``, ``reacts_once`` (``once: reactor:``) and
#: ``trees`` (where each is served, and whether it is secret).
COMPARED = (
    *("publish_port", "ret_port", "master_sign_pubkey", "hash_type", "schedule", "reactor"),
    *("cachedir", "pki_dir", "ha", "cluster_id", "cluster_peers", ISOLATED, "id"),
    *LOCKS,
)
#: Files that identify a folder: they never change while the master runs. USER is its ``user:``.
MARKED = {"cachedir": (".USER_key",), "pki_dir": ("master.pem", "minions_autosign")}

Members = Sequence[Member]


def _shown(members: Members, value: Callable[[Member], Any]) -> str:
    return ", ".join(f"{member.name} {value(member)}" for member in members)


def _differing(members: Members, option: str) -> Hits:
    """A hit on every master, if they do not all have the same value of *option*."""
    if len({str(member.get(option)) for member in members}) > 1:
        detail = _shown(members, lambda member: member.get(option))
        for member in members:
            yield Hit(option, detail, master=member.name)


@BOOK.warning(
    "HA701",
    "masters with different publish ports",
    PORT_TOLD,
    ALIVE_CHECK,
    why="A minion's publish_port and Salt's alive check know one for all masters: a minion that "
    "sets it is deaf to the others, a failover minion takes healthy masters for lost.",
    fix="the same publish_port on all masters, each with an address of its own",
)
def publish_ports(members: Members) -> Hits:
    yield from _differing(members, "publish_port")


@BOOK.warning(
    "HA702",
    "masters with different request ports",
    PORT_OF_ENTRY,
    why="Minions then need host:port entries, which break failover and failback (HA102, HA103).",
    fix="the same ret_port on all masters, each with an address of its own",
)
def request_ports(members: Members) -> Hits:
    yield from _differing(members, "ret_port")


@BOOK.error(
    "HA703",
    "masters with different master keys",
    CitedLine(
        "salt/crypt.py:1840 AsyncAuth.verify_master", "if payload_pub_key != local_master_pub:"
    ),
    "saltstack/salt issue 62318",
    why="A minion keeps one master key: bound to several masters, or moved to another one, it says "
    "that the master key has changed and refuses it. Only failover minions that verify the "
    "masters' signature know masters by different keys.",
    fix="salt-ha invite share_master_key=True on the master whose key the minions know, "
    "salt-ha join --token-file - force=True on the others; or let masters sign and failover "
    "minions verify, together (docs/different-keys.md)",
)
def different_keys(members: Members) -> Hits:
    known = [member for member in members if member.fingerprint]
    signing = any(member.get("master_sign_pubkey") for member in members)
    clustered = any(member.get("cluster_id") for member in members)
    if len({member.fingerprint for member in known}) > 1 and not signing and not clustered:
        detail = _shown(known, lambda member: f"{str(member.fingerprint)[:14]}:…")
        for member in known:
            yield Hit("pki_dir", detail, master=member.name)


@BOOK.error(
    "HA704",
    "master_sign_pubkey on some masters only",
    SIGNED_UNVERIFIED,
    why="A minion that verifies refuses a master that does not sign, and one that does not verify "
    "refuses a master that signs: each minion can use only some of the masters.",
    fix="where minions verify, master_sign_pubkey: True on all masters, with one master_sign pair "
    "(salt-ha invite share_signing_key=True); else on none (docs/different-keys.md)",
)
def some_sign(members: Members) -> Hits:
    if len({bool(member.get("master_sign_pubkey")) for member in members}) > 1:
        detail = _shown(members, lambda m: bool(m.get("master_sign_pubkey")))
        for member in members:
            if not member.get("master_sign_pubkey"):
                yield Hit("master_sign_pubkey", detail, master=member.name)


def _sharing(members: Members, folder: str) -> list[Member]:
    """Masters that see the same file in *folder*; none, or two and more."""
    by_mark: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        for path, mark in member.marks.items():
            if path.startswith(f"{folder}/"):
                by_mark[f"{path} {mark}"].append(member)
    return next((group for group in by_mark.values() if len(group) > 1), [])


def _shared(members: Members, folder: str) -> Hits:
    """A hit on every master that shares *folder* with another one."""
    group = _sharing(members, folder)
    detail = _shown(group, lambda member: member.get(folder))
    for member in group:
        yield Hit(folder, detail, master=member.name)


@BOOK.error(
    "HA705",
    "masters that share one cachedir",
    *SHARED_CACHEDIR,
    why=WHY_NO_SHARED_CACHEDIR,
    fix="give each master a cachedir of its own",
)
def one_cache(members: Members) -> Hits:
    # Salt wants a cluster without isolated file systems to share it, and such has one AES key.
    clustered = [m for m in members if m.get("cluster_id") and m.version >= (3007,)]
    sharing = [m for m in clustered if not m.get(ISOLATED)]
    yield from _shared([m for m in members if m not in sharing], "cachedir")


@BOOK.error(
    "HA706",
    "masters that share one pki_dir",
    *SHARED_PKI_DIR,
    why="There is nothing to replicate, and both write the same files; a user who can read the "
    "share has master.pem. The state of ha below pki_dir would be one for both, too.",
    fix="give each master a pki_dir of its own; salt-ha invite share_master_key=True hands "
    "master.pem over",
)
def one_key_folder(members: Members) -> Hits:
    yield from _shared(members, "pki_dir")


@BOOK.warning(
    "HA707",
    "one scheduled job on several masters",
    CitedLine("salt/utils/schedule.py:1535 Schedule.eval", "for job, data in schedule.items():"),
    "saltstack/salt issue 17033",
    why="Each master runs it: once a master, not once. What each must do for itself is left out: "
    "saltutil.sync_all, fileserver.update, git_pillar.update, winrepo.update_git_repos.",
    fix="let it run ha.once with a name, on all masters (docs/once.md; in a partition it still "
    "runs once in each half), leave it on one master, or make it harmless when it runs several "
    "times",
)
def schedules(members: Members) -> Hits:
    yield from _on_several(members, "schedule")


@BOOK.info(
    "HA708",
    "one reactor on several masters",
    CitedLine(
        "salt/utils/reactor.py:283 Reactor.run", 'reactors = self.list_reactors(data["tag"])'
    ),
    "saltstack/salt issue 66278",
    why="A hot-hot minion sends its events to all masters, and each reacts: once a master.",
    fix="ha: once: {reactor: true} on all masters (docs/once.md; in a partition each half reacts; "
    "a reaction local. reaches only minions that are connected to the leader), leave it on one "
    "master, or make it harmless when it runs several times",
)
def reactors(members: Members) -> Hits:
    yield from _on_several(members, "reactor")


def _on_several(members: Members, option: str) -> Hits:
    where: dict[str, list[str]] = defaultdict(list)
    for member in members:
        for name in member.get(option) or ():
            where[str(name)].append(member.name)
    for name, masters in where.items():
        if len(masters) > 1:
            yield Hit(option, f"{name}, on {', '.join(masters)}", master=masters[0])


@BOOK.error(
    "HA709",
    "gitfs or git_pillar without global lock, in a shared cachedir",
    GLOBAL_LOCK,
    why="A master then removes the lock that another one holds, and both write one repository.",
    fix="take gitfs_global_lock and git_pillar_global_lock out; better, give each master a "
    "cachedir of its own",
)
def unlocked(members: Members) -> Hits:
    for member in _sharing(members, "cachedir"):
        for option in LOCKS:
            if member.get(option, True) is False:
                yield Hit(option, "False", master=member.name)


@BOOK.warning(
    "HA710",
    "masters with different hash_type",
    FINGER,
    CitedLine(
        "salt/fileserver/roots.py:326 file_hash",
        'salt.utils.hashutils.get_hash(path, __opts__["hash_type"])',
    ),
    why="Fingerprints of keys (master_finger, key.finger) and hashes of served files are written "
    "by it: what one master prints is never what another one does.",
    fix="the same hash_type on all masters and minions",
)
def hash_types(members: Members) -> Hits:
    yield from _differing(members, "hash_type")


@BOOK.warning(
    "HA711",
    "ha: masters that differ",
    "saltext_ha/commands/membership/join.py: by_secret",
    why="The first of the list founds the group when nobody answers: with different lists two "
    "masters may found two groups, and with two master keys.",
    fix="the same list in the same order on all masters",
)
def seeds(members: Members) -> Hits:
    listed = [member for member in members if (member.get("ha") or {}).get("masters")]
    if len({str(member.get("ha")["masters"]) for member in listed}) > 1:
        for member in listed:
            yield Hit("ha", ", ".join(member.get("ha")["masters"]), master=member.name)


@BOOK.error(
    "HA712",
    "a member of a cluster under another name than the others know",
    PEER_ID,
    why="The others look it up by the name in their cluster_peers; it presents itself by its id, "
    "and they find no key for it.",
    fix="set id to the name that the others have in cluster_peers",
    since=3007,
)
def unknown_member(members: Members) -> Hits:
    inside = [member for member in members if member.get("cluster_id")]
    for member in inside:
        name = str(member.get("id", "")).removesuffix("_master")
        without = [
            other.name
            for other in inside
            if other is not member and name not in map(str, other.get("cluster_peers") or ())
        ]
        if without:
            yield Hit(
                "id", f"{name}: not in cluster_peers of {', '.join(without)}", master=member.name
            )


@BOOK.error(
    "HA713",
    "trees that masters do not have alike",
    "tests/functional/trees/test_deploy.py",
    why="ha.deploy changes nothing as long as one master lacks the tree. Where it is served at "
    "another path, file_roots must differ, too; where it is secret on some only, other users of "
    "the other masters read it.",
    fix="the same  ha: trees:  on all masters (source and check may differ); restart salt-master",
)
def unlike_trees(members: Members) -> Hits:
    trees = [(m, m.get("ha")["trees"]) for m in members if "trees" in (m.get("ha") or {})]
    for name in sorted({name for _, theirs in trees for name in theirs}):
        having = {m.name: theirs[name] for m, theirs in trees if name in theirs}
        without = [m.name for m, theirs in trees if name not in theirs]
        for what in ("live", "secret"):
            if len({tree[what] for tree in having.values()}) > 1:
                said = ", ".join(f"{master} {tree[what]}" for master, tree in having.items())
                for master in having:
                    yield Hit("ha", f"tree {name}: {what}: {said}", master=master)
        for master in without:
            yield Hit("ha", f"no tree {name}, as {', '.join(having)} have", master=master)


@BOOK.warning(
    "HA714",
    "once: {reactor: true} on some masters only",
    "docs/once.md",
    why="The leader's reactor reacts for all that have it. A master without it reacts besides, to "
    "every event that it hears: twice in all.",
    fix="once: {reactor: true}  in  ha:  on all masters that have  reactor:  ; restart salt-master",
)
def some_react_once(members: Members) -> Hits:
    once = [m.name for m in members if (m.get("ha") or {}).get("reacts_once")]
    for member in members if once else ():
        if member.get("reactor") and member.name not in once:
            said = f"{', '.join(once)} have it" if len(once) > 1 else f"{once[0]} has it"
            yield Hit("ha", said, master=member.name)
