"""Rules on one master."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saltext_ha.lint.cited import (
    GLOBAL_LOCK,
    MASTER_INCLUDES,
    MASTER_PEM,
    ROOT_KEY,
    SIGNS,
    CitedLine,
)
from saltext_ha.lint.model import ERROR, INFO, MASTER, WARNING, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MASTER)

LOCKS = {"gitfs_global_lock": "gitfs", "git_pillar_global_lock": "git_pillar"}
REST = ("rest_cherrypy", "rest_tornado")


def in_group(facts: HostFacts) -> bool:
    """Whether this master runs the ha engine."""
    return "ha" in facts.engines


@BOOK.rule(
    "HA501",
    WARNING,
    "auto_accept on a master whose keys are replicated",
    why="Any minion that reaches this master gets its key accepted, and with it on all masters of "
    "the group, also on those that accept nothing by themselves.",
    fix="accept keys by hand, by autosign_file, or by autosign_grains",
    sources=(
        CitedLine(
            "salt/daemons/masterapi.py",
            469,
            "AutoKey.check_autosign",
            'if self.opts["auto_accept"]:',
        ),
    ),
)
def auto_accept(facts: HostFacts) -> Hits:
    if facts.get("auto_accept") is True and in_group(facts):
        yield Hit("auto_accept", "True")


@BOOK.rule(
    "HA502",
    ERROR,
    "open_mode on a master",
    why="Every key is taken, rejected and changed ones too, under any minion id.",
    fix="take open_mode out",
    sources=(
        CitedLine(
            "salt/master.py",
            4141,
            "AuthFuncs._auth_impl",
            'if self.opts["open_mode"]:',
            release="3008.3",
        ),
        CitedLine(
            "salt/channel/server.py",
            548,
            "ReqServerChannel._auth",
            'if self.opts["open_mode"]:',
            release="3007.15",
        ),
        CitedLine(
            "salt/channel/server.py",
            506,
            "ReqServerChannel._auth",
            'if self.opts["open_mode"]:',
            release="3006.28",
        ),
    ),
)
def open_mode(facts: HostFacts) -> Hits:
    if facts.get("open_mode") is True:
        yield Hit("open_mode", "True")


@BOOK.rule(
    "HA503",
    ERROR,
    "rotate_aes_key: False",
    why="After a key was deleted or rejected its minion still has the AES key of all minions: it "
    "goes on running jobs, and reads those for others, until the master is restarted.",
    fix="take rotate_aes_key out",
    sources=(
        CitedLine("salt/key.py", 874, "Key.delete_key", 'if self.opts.get("rotate_aes_key"):'),
    ),
)
def keeps_aes(facts: HostFacts) -> Hits:
    if facts.get("rotate_aes_key", True) is False:
        yield Hit("rotate_aes_key", "False")


@BOOK.rule(
    "HA504",
    ERROR,
    "master_use_pubkey_signature without a signature file",
    why="The master ends when it starts. The file signs this master's own master.pub: it must be "
    "made again when that key is another, as after joining a group.",
    fix="salt-key --gen-signature with this master's master.pub, or take the option out: with "
    "master_sign.pem the master signs by itself",
    sources=(
        CitedLine("salt/crypt.py", 776, "MasterKeys", 'opts["master_use_pubkey_signature"]:'),
    ),
)
def no_signature(facts: HostFacts) -> Hits:
    name = str(facts.get("master_pubkey_signature", "master_pubkey_signature"))
    used = facts.get("master_sign_pubkey") and facts.get("master_use_pubkey_signature")
    if used and facts.files.get(name) is False:
        yield Hit("master_use_pubkey_signature", f"{facts.get('pki_dir')}/{name} is not there")


@BOOK.rule(
    "HA505",
    INFO,
    "master_use_pubkey_signature without master_sign_pubkey",
    why="It has no effect: this master does not sign. Minions that verify refuse it.",
    fix="set master_sign_pubkey: True, too, or take it out",
    sources=(SIGNS,),
)
def pointless_signature(facts: HostFacts) -> Hits:
    if facts.get("master_use_pubkey_signature") and not facts.get("master_sign_pubkey"):
        yield Hit("master_use_pubkey_signature", "True")


@BOOK.rule(
    "HA513",
    INFO,
    "a master_sign pair, and no master_sign_pubkey",
    why="The pair is there and not used: this master does not sign, and minions that verify refuse "
    "it.",
    fix="set master_sign_pubkey: True on all masters, or remove the pair",
    sources=(
        SIGNS,
        CitedLine(
            "salt/crypt.py",
            1773,
            "AsyncAuth.check_auth_deps",
            'elif "pub_sig" not in payload and self.opts["verify_master_pubkey_sign"]:',
        ),
    ),
)
def idle_pair(facts: HostFacts) -> Hits:
    name = f"{facts.get('master_sign_key_name', 'master_sign')}.pem"
    if facts.files.get(name) and not facts.get("master_sign_pubkey"):
        yield Hit("master_sign_pubkey", f"{facts.get('pki_dir')}/{name} is there")


@BOOK.rule(
    "HA506",
    WARNING,
    "cachedir on a network file system",
    why="When masters share it, each overwrites the other's .root_key and the command line's "
    "authentication fails; jobs and caches of both mix.",
    fix="give each master a cachedir on a disk of its own",
    sources=(
        ROOT_KEY,
        "saltstack/salt issues 42377, 56000",
    ),
)
def remote_cache(facts: HostFacts) -> Hits:
    if "cachedir" in facts.shared:
        yield Hit("cachedir", f"{facts.get('cachedir')} is on {facts.shared['cachedir']}")


@BOOK.rule(
    "HA507",
    WARNING,
    "pki_dir on a network file system",
    why="Who can read the share has master.pem and with it all minions; when it is away, no minion "
    "can authenticate on any master. A shared pki_dir would also hold the state of ha twice.",
    fix="give each master a pki_dir of its own: keys are replicated, and salt-ha "
    "invite share_master_key=True hands master.pem over",
    sources=(
        MASTER_PEM,
        "Salt's tutorial on several masters (Sharing Files Among Masters)",
    ),
)
def remote_keys(facts: HostFacts) -> Hits:
    if "pki_dir" in facts.shared:
        yield Hit("pki_dir", f"{facts.get('pki_dir')} is on {facts.shared['pki_dir']}")


@BOOK.rule(
    "HA508",
    ERROR,
    "gitfs or git_pillar without global lock, in a cachedir on a network file system",
    why="A master then removes the lock that another one holds, and both write one repository.",
    fix="take gitfs_global_lock and git_pillar_global_lock out; better, give each master a "
    "cachedir of its own",
    sources=(GLOBAL_LOCK,),
)
def unlocked_remote(facts: HostFacts) -> Hits:
    for option in LOCKS:
        if "cachedir" in facts.shared and facts.get(option, True) is False:
            yield Hit(option, "False")


@BOOK.rule(
    "HA509",
    WARNING,
    "keys pruned by one master's view of who is there",
    why="A failover minion answers on one master only: to the others it is down. Its key, healthy "
    "and accepted, is deleted, and with it on all masters of the group.",
    fix="take removekeys, or the engine stalekey, out; ask all masters "
    "(salt-run ha.minions live=True) before deleting keys",
    sources=(
        CitedLine("salt/runners/manage.py", 192, "down", "if removekeys:"),
        CitedLine(
            "salt/engines/stalekey.py",
            119,
            "start",
            "present = ck.connected_ids()",
            release="3007.15",
        ),
        CitedLine(
            "salt/engines/stalekey.py",
            119,
            "start",
            "present = ck.connected_ids()",
            release="3006.28",
        ),
    ),
)
def prunes(facts: HostFacts) -> Hits:
    if "stalekey" in facts.engines:
        yield Hit("engines", "stalekey")
    for name, job in _jobs(facts):
        function = str(job.get("function", job.get("fun", "")))
        if "manage.down" in function and _asks_for(job, "removekeys"):
            yield Hit("schedule", f"{name}: manage.down with removekeys")


@BOOK.rule(
    "HA515",
    INFO,
    "a reactor on who is present",
    why="A failover minion that moves is lost on one master and new on the other. A reactor that "
    "deletes the keys of those that are lost deletes healthy ones, on all masters of the group.",
    fix="do not delete keys there; ask all masters (salt-run ha.minions live=True) before",
    sources=(
        CitedLine("salt/master.py", 657, "Maintenance.handle_presence", '"lost": list(lost)'),
    ),
)
def presence(facts: HostFacts) -> Hits:
    reactors = facts.get("reactor", [])
    for number, entry in enumerate(reactors if isinstance(reactors, list) else []):
        for event in entry if isinstance(entry, dict) and in_group(facts) else ():
            if str(event).startswith("salt/presence"):
                yield Hit("reactor", str(event), number)


@BOOK.rule(
    "HA516",
    INFO,
    "thorium on a master whose keys are replicated",
    why="key.timeout in a thorium state deletes or rejects the keys of minions that this master "
    "has not heard of lately. A failover minion is heard by one master only: its key goes, healthy "
    "as it is, on all masters of the group.",
    fix="leave key.timeout out of the thorium states; ask all masters "
    "(salt-run ha.minions live=True) before deleting keys",
    sources=(
        CitedLine(
            "salt/thorium/key.py",
            70,
            "timeout",
            "# No report from minion recorded, mark for change if thorium has",
        ),
    ),
)
def thorium(facts: HostFacts) -> Hits:
    if "thorium" in facts.engines and in_group(facts):
        yield Hit("engines", "thorium")


@BOOK.rule(
    "HA517",
    WARNING,
    "engines: without reactor, beside reactor:",
    why='The reactor runs, but salt-run reactor.list, add, delete and set_leader refuse: "Reactor '
    'system is not running." They look for it in engines: alone as soon as anything is there.',
    fix="list  - reactor: {}  in engines:, too",
    sources=(
        CitedLine(
            "salt/runners/reactor.py",
            38,
            "_reactor_system_available",
            'any([True for engine in __opts__["engines"] if "reactor" in engine])',
        ),
    ),
)
def reactor_hidden(facts: HostFacts) -> Hits:
    if facts.get("reactor") and facts.engines and "reactor" not in facts.engines:
        yield Hit("engines", f"names {', '.join(facts.engines)}, and not reactor")


@BOOK.rule(
    "HA519",
    ERROR,
    "file_roots or pillar_roots that is a list",
    why="Salt logs a warning and takes its default, as /srv/salt: this master has other "
    "states or pillar than is written, or none. Salt's guide to master clusters has had it so.",
    fix="write the environment above the folders:  file_roots: {base: [/srv/salt]}",
    sources=(
        CitedLine(
            "salt/config/__init__.py",
            2202,
            "_validate_file_roots",
            '"The file_roots parameter is not properly formatted, using defaults"',
        ),
        "saltstack/salt issue 66799",
    ),
)
def roots_listed(facts: HostFacts) -> Hits:
    written = {each.option: each for each in facts.settings}
    for option in ("file_roots", "pillar_roots"):
        setting = written.get(option)
        if setting and not isinstance(setting.value, dict):
            what = f"{setting.value!r:.100} is no mapping"
            yield Hit(option, what, place=setting.place)


def _jobs(facts: HostFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    schedule = facts.get("schedule", {})
    for name, job in schedule.items() if isinstance(schedule, dict) else ():
        if isinstance(job, dict) and job.get("enabled", True):
            yield str(name), job


def _asks_for(job: dict[str, Any], argument: str) -> bool:
    for where in ("kwargs", "kwarg"):
        given = job.get(where)
        if isinstance(given, dict) and given.get(argument):
            return True
    args = job.get("args", job.get("arg"))
    texts = [str(arg).replace(" ", "").lower() for arg in args] if isinstance(args, list) else []
    # Its first positional argument.
    return f"{argument}=true" in texts or texts[:1] == ["true"]


@BOOK.rule(
    "HA510",
    INFO,
    "salt-api with logins of this master only",
    why="A token from one master is 401 on another: callers behind a load balancer are logged out "
    "when they are sent elsewhere. rest_cherrypy keeps its sessions in memory besides: there a "
    "token is 401 on another master even where eauth_tokens is a store that all share.",
    fix="have the load balancer keep a caller on one master, or use SaltApiPool, which logs in on "
    "each (docs/api-pool.md); with rest_tornado alone, eauth_tokens in a store that all masters "
    "share (such as rediscluster) is enough",
    sources=(
        CitedLine(
            "salt/netapi/rest_cherrypy/app.py",
            822,
            "salt_auth_tool",
            'if "token" not in cherrypy.session:',
        ),
        CitedLine("salt/tokens/localfs.py", 57, "get_token", "token_dir"),
        CitedLine("salt/config/__init__.py", 1745, "", '"eauth_tokens": "localfs",'),
    ),
)
def local_tokens(facts: HostFacts) -> Hits:
    local = facts.get("eauth_tokens") == "localfs"
    for rest in REST if in_group(facts) else ():
        if facts.get(rest) and (local or rest == "rest_cherrypy"):
            yield Hit(rest, "eauth_tokens: localfs" if local else "sessions in memory")


@BOOK.rule(
    "HA514",
    INFO,
    "salt-api that answers for a salt-master that is dead",
    why="GET / of salt-api says Welcome while its salt-master does not run: a load balancer that "
    "asks for that sends callers to a dead master.",
    fix="have the load balancer ask for what takes a salt-master, such as POST /login; or use "
    "SaltApiPool (docs/api-pool.md)",
    sources=(
        CitedLine(
            "salt/netapi/rest_cherrypy/app.py", 1304, "LowDataAdapter.GET", '"return": "Welcome"'
        ),
        CitedLine(
            "salt/netapi/rest_tornado/saltnado.py",
            871,
            "SaltAPIHandler.get",
            '"return": "Welcome"}',
        ),
    ),
)
def welcome(facts: HostFacts) -> Hits:
    for rest in REST:
        if facts.get(rest) and in_group(facts):
            yield Hit(rest, "is configured")


@BOOK.rule(
    "HA511",
    INFO,
    "minion data cache that masters share, and preserve_minion_cache: False",
    why="Deleting or rejecting any key drops the cached data of every id that has no key on this "
    "very master, also of minions that only other masters know.",
    fix="set preserve_minion_cache: True",
    sources=(
        CitedLine(
            "salt/key.py",
            503,
            "Key.check_minion_cache",
            'self.opts.get("preserve_minion_cache", False):',
        ),
    ),
)
def drops_cache(facts: HostFacts) -> Hits:
    cache = facts.get("cache", "localfs")
    if cache not in ("localfs", "mmap_cache") and not facts.get("preserve_minion_cache"):
        yield Hit("cache", str(cache))


@BOOK.rule(
    "HA512",
    WARNING,
    "ha: without the ha engine",
    why="Nothing reads it: the engine that replicates keys is not started.",
    fix="add  engines: [ha: {}]  beside it, and look whether another file replaces engines:",
    sources=(
        "saltext_ha/engines/ha.py",
        MASTER_INCLUDES,
    ),
)
def no_engine(facts: HostFacts) -> Hits:
    if set(facts.get("ha", {})) - {"lint"} and not in_group(facts):
        yield Hit("ha", "engines: does not name ha")


@BOOK.rule(
    "HA518",
    ERROR,
    "two masters with one state folder",
    why="The folder says who a master is to its peers. The second would be the first: it is turned "
    "away, its engine does not start, and no key is replicated to or from it.",
    fix="give each master a pki_dir of its own; or, where they share it, each a folder of its own "
    "as ha: state_dir, outside of it. Then start salt-master",
    sources=(
        "saltext_ha/replica/state_owner.py",
        "tests/integration/test_shared_store.py",
    ),
)
def one_state_folder(facts: HostFacts) -> Hits:
    if facts.tenancy and in_group(facts):
        yield Hit("ha", facts.tenancy)
