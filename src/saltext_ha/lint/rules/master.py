"""Rules on one master: which keys it accepts, how it signs, what it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from saltext_ha.common.validators import is_number
from saltext_ha.lint.cited import MASTER_INCLUDES, SIGNS, CitedLine
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MASTER)

UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
"""In ``schedule:``, and how many seconds each has."""


def in_group(facts: HostFacts) -> bool:
    """Whether this master runs the ha engine."""
    return "ha" in facts.engines


@BOOK.warning(
    "HA501",
    "auto_accept on a master whose keys are replicated",
    CitedLine(
        "salt/daemons/masterapi.py:469 AutoKey.check_autosign", 'if self.opts["auto_accept"]:'
    ),
    why="Any minion that reaches this master gets its key accepted, and with it on all masters of "
    "the group, also on those that accept nothing by themselves.",
    fix="accept keys by hand, by autosign_file, or by autosign_grains",
)
def auto_accept(facts: HostFacts) -> Hits:
    if facts.get("auto_accept") is True and in_group(facts):
        yield Hit("auto_accept", "True")


@BOOK.error(
    "HA502",
    "open_mode on a master",
    CitedLine(
        "salt/master.py:4141 AuthFuncs._auth_impl", 'if self.opts["open_mode"]:', release="3008.3"
    ),
    CitedLine(
        "salt/channel/server.py:548 ReqServerChannel._auth",
        'if self.opts["open_mode"]:',
        release="3007.15",
    ),
    CitedLine(
        "salt/channel/server.py:506 ReqServerChannel._auth",
        'if self.opts["open_mode"]:',
        release="3006.28",
    ),
    why="Every key is taken, rejected and changed ones too, under any minion id.",
    fix="take open_mode out",
)
def open_mode(facts: HostFacts) -> Hits:
    if facts.get("open_mode") is True:
        yield Hit("open_mode", "True")


@BOOK.error(
    "HA503",
    "rotate_aes_key: False",
    CitedLine("salt/key.py:874 Key.delete_key", 'if self.opts.get("rotate_aes_key"):'),
    why="After a key was deleted or rejected its minion still has the AES key of all minions: it "
    "goes on running jobs, and reads those for others, until the master is restarted.",
    fix="take rotate_aes_key out",
)
def keeps_aes(facts: HostFacts) -> Hits:
    if facts.get("rotate_aes_key", True) is False:
        yield Hit("rotate_aes_key", "False")


@BOOK.error(
    "HA504",
    "master_use_pubkey_signature without a signature file",
    CitedLine("salt/crypt.py:776 MasterKeys", 'opts["master_use_pubkey_signature"]:'),
    CitedLine("salt/crypt.py:704 MasterKeys", "_pubkey_signature", "3008.4"),
    why="The master ends when it starts. The file signs this master's own master.pub: it must be "
    "made again when that key is another, as after joining a group.",
    fix="salt-key --gen-signature with this master's master.pub, or take the option out: with "
    "master_sign.pem the master signs by itself",
)
def no_signature(facts: HostFacts) -> Hits:
    # Salt 3008 has no default, and names it after the master.
    name = str(facts.get("master_pubkey_signature", f"{facts.get('id')}_pubkey_signature"))
    used = facts.get("master_sign_pubkey") and facts.get("master_use_pubkey_signature")
    if used and facts.files.get(name) is False:
        yield Hit("master_use_pubkey_signature", f"{facts.get('pki_dir')}/{name} is not there")


@BOOK.info(
    "HA505",
    "master_use_pubkey_signature without master_sign_pubkey",
    SIGNS,
    why="It has no effect: this master does not sign. Minions that verify refuse it.",
    fix="take it out; or let masters sign and minions verify, together (docs/different-keys.md)",
)
def pointless_signature(facts: HostFacts) -> Hits:
    if facts.get("master_use_pubkey_signature") and not facts.get("master_sign_pubkey"):
        yield Hit("master_use_pubkey_signature", "True")


@BOOK.info(
    "HA513",
    "a master_sign pair, and no master_sign_pubkey",
    SIGNS,
    CitedLine(
        "salt/crypt.py:1773 AsyncAuth.check_auth_deps",
        'elif "pub_sig" not in payload and self.opts["verify_master_pubkey_sign"]:',
    ),
    why="The pair is there and not used: this master does not sign, and minions that verify refuse "
    "it.",
    fix="remove the pair; or let masters sign and minions verify, together "
    "(docs/different-keys.md)",
)
def idle_pair(facts: HostFacts) -> Hits:
    name = f"{facts.get('master_sign_key_name', 'master_sign')}.pem"
    if facts.files.get(name) and not facts.get("master_sign_pubkey"):
        yield Hit("master_sign_pubkey", f"{facts.get('pki_dir')}/{name} is there")


@BOOK.warning(
    "HA517",
    "engines: without reactor, beside reactor:",
    CitedLine(
        "salt/runners/reactor.py:38 _reactor_system_available",
        'any([True for engine in __opts__["engines"] if "reactor" in engine])',
    ),
    why='The reactor runs, but salt-run reactor.list, add, delete and set_leader refuse: "Reactor '
    'system is not running." They look for it in engines: alone as soon as anything is there.',
    fix="list  - reactor: {}  in engines:, too",
)
def reactor_hidden(facts: HostFacts) -> Hits:
    if facts.get("reactor") and facts.engines and "reactor" not in facts.engines:
        yield Hit("engines", f"names {', '.join(facts.engines)}, and not reactor")


@BOOK.error(
    "HA524",
    "reactor: that Salt does not read as it is written",
    CitedLine("salt/utils/reactor.py:104 Reactor.list_reactors", "if len(ropt) != 1:"),
    why="It takes a list of one event each. Of an entry with several events, and of a mapping "
    "without a list, it reads nothing, and says nothing.",
    fix="begin each event with a dash:  - salt/minion/*/start: [/srv/reactor/start.sls]",
)
def unread_reactor(facts: HostFacts) -> Hits:
    listed = facts.get("reactor", [])
    if isinstance(listed, dict) and listed:
        yield Hit("reactor", "it is a mapping, not a list")
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict):
            yield Hit("reactor", f"{entry}: without a file")
        elif len(entry) > 1:
            yield Hit("reactor", f"in one entry: {', '.join(map(str, entry))}")


@BOOK.error(
    "HA519",
    "file_roots or pillar_roots that Salt does not take as written",
    CitedLine(
        "salt/config/__init__.py:2202 _validate_file_roots",
        '"The file_roots parameter is not properly formatted, using defaults"',
    ),
    CitedLine(
        "salt/config/__init__.py:2174 _normalize_roots",
        "if not isinstance(dirs, (list, tuple)):",
    ),
    "saltstack/salt issue 66799",
    why="Where it is a list, or empty, Salt logs a warning and takes /srv/salt, as pillar, too. A "
    "folder that stands beside its environment, in no list, is left out without a word. This "
    "master has other states or pillar than is written, or none. Salt's guide to master clusters "
    "has had the list.",
    fix="write the environment above a list of folders:  file_roots: {base: [/srv/salt]}",
)
def misread_roots(facts: HostFacts) -> Hits:
    # An empty file_roots is as if it were not written.
    for option, unwritten in (("file_roots", None), ("pillar_roots", {})):
        roots = facts.merged.get(option, unwritten)
        for what in _misread(roots) if roots != unwritten else ():
            yield Hit(option, what)


def _misread(roots: object) -> Iterator[str]:
    """What Salt does not take of ``file_roots`` or ``pillar_roots``."""
    if not isinstance(roots, dict):
        yield "it is empty" if roots is None else f"{roots!r:.100} is no mapping"
        return
    for env, folders in roots.items():
        if folders and not isinstance(folders, list):
            yield f"{env}: {folders!r:.100} is no list"


@BOOK.warning(
    "HA520",
    "minion_data_cache: False",
    CitedLine(
        "salt/utils/minions.py:1000 CkMinions._check_compound_minions",
        'return {"minions": list(minions), "missing": []}',
    ),
    "docs/api-pool.md",
    why="Without it a master cannot tell whom a compound, grain or pillar target means, and waits "
    "for all minions. What ha.cmd and SaltApiPool divide among masters are compound targets: "
    "minions that were not meant count as missing.",
    fix="take minion_data_cache out: it is on by default",
)
def no_data_cache(facts: HostFacts) -> Hits:
    if facts.get("minion_data_cache") is False:
        yield Hit("minion_data_cache", "False")


@BOOK.warning(
    "HA521",
    "a scheduled job that is due less often than its process is restarted",
    CitedLine(
        "salt/master.py:488 Maintenance.run", "while time.time() - start < self.restart_interval:"
    ),
    "saltstack/salt issue 65784",
    why="Salt restarts the process of its schedule every maintenance_interval (an hour), and "
    "counts anew. So the job runs at each restart instead; with run_on_start: False it never runs.",
    fix="cron: in the place of hours: or days:, or cron(8)",
)
def counts_anew(facts: HostFacts) -> Hits:
    restarted = facts.get("maintenance_interval", 3600)
    for name, (function, job) in facts.jobs.items():
        given = {unit: job[unit] for unit in UNITS if unit in job}
        if not all(map(is_number, (restarted, *given.values()))):
            continue
        seconds = sum(UNITS[unit] * number for unit, number in given.items())
        kwargs = job.get("kwargs")
        # With within:, ha.once skips those that come too early.
        guarded = function == "ha.once" and isinstance(kwargs, Mapping) and "within" in kwargs
        if seconds > restarted and not (guarded and job.get("run_on_start", True)):
            yield Hit("schedule", f"{name}: every {seconds:g} s")


@BOOK.error(
    "HA523",
    "a module in the configuration that this master cannot load",
    CitedLine("salt/pillar/__init__.py:1178 Pillar.ext_pillar", "if key not in self.ext_pillars:"),
    CitedLine(
        "salt/fileserver/__init__.py:376 Fileserver.backends", 'if f"{sub}.envs" in server_funcs:'
    ),
    why="Salt says so in the log only, and goes on without: pillar lacks what an ext_pillar gives, "
    "states of a fileserver backend are not there. So it shows when minions move to this master.",
    fix="install what it needs, as on the other masters (salt-pip install …), or take it out; "
    "restart salt-master",
)
def cannot_load(facts: HostFacts) -> Hits:
    for option, name, why in facts.unloadable:
        yield Hit(option, f"{name}: {why}")


@BOOK.warning(
    "HA512",
    "ha: without the ha engine",
    "saltext_ha/engines/ha.py",
    MASTER_INCLUDES,
    why="Nothing reads it: the engine that replicates keys is not started.",
    fix="add  engines: [ha: {}]  beside it, and look whether another file replaces engines:",
)
def no_engine(facts: HostFacts) -> Hits:
    if facts.ha.keys() - {"lint"} and not in_group(facts):
        started = ", ".join(facts.engines) or "none"
        yield Hit("ha", f"engines: starts {started}")


@BOOK.info(
    "HA525",
    "ha: that was edited after salt-master was started",
    "saltext_ha/engines/ha.py",
    why="The engine reads ha: once, when salt-master starts. It runs with what was written then.",
    fix="restart salt-master there (salt-run ha.restart_masters)",
)
def edited_since(facts: HostFacts) -> Hits:
    if facts.edited:
        yield Hit("ha", ", ".join(facts.edited))


@BOOK.warning(
    "HA522",
    "transport: tcp with worker pools",
    CitedLine(
        "salt/transport/tcp.py:2984 RequestClient.connect", "self._stream = await self.getstream()"
    ),
    CitedLine(
        "salt/channel/server.py:970 PoolRoutingChannel.pre_fork",
        "if not _transport_has_builtin_router(self.transport):",
    ),
    why="If two minions ask a master that starts, before its workers listen, it may answer nobody "
    "any more until it is restarted: its router then has two connections to the workers, sends by "
    "one and reads from the other. Such a master still lets minions authenticate.",
    fix="set worker_pools_enabled: False, or use transport: zeromq (on masters and minions)",
    since=3008,
)
def pools_over_tcp(facts: HostFacts) -> Hits:
    if facts.get("transport") == "tcp" and facts.get("worker_pools_enabled", True):
        yield Hit("transport", "tcp", beside="worker_pools_enabled")


@BOOK.error(
    "HA526",
    "order_masters without master_id, on a master of a group",
    CitedLine(
        "salt/minion.py:6134 SyndicManager.iter_master_options",
        "if master_id not in self._syndics:",
    ),
    "docs/minions.md",
    why="A syndic that has several of these masters as syndic_master returns a job to the one that "
    "the job names by its master_id, and without that to any of them. The wrong one takes one "
    "return of a job and fails at the next: salt shows no return of some minions, and a syndic of "
    "Salt 3008 then returns nothing any more.",
    fix="set master_id to this master's entry in syndic_master of its syndics, word for word; "
    "restart salt-master",
)
def returns_to_any(facts: HostFacts) -> Hits:
    if facts.get("order_masters") and not facts.get("master_id") and in_group(facts):
        yield Hit("order_masters", "True")
