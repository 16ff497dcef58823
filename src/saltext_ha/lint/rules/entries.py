"""Rules on the entries of ``master:`` of a minion, and the ports that go with them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from saltext_ha.common.addresses import bare_ip
from saltext_ha.lint.cited import ALIVE_CHECK, PORT_OF_ENTRY, PORT_SET, PORT_TOLD, CitedLine
from saltext_ha.lint.model import MINION, Hit, Hits, HostFacts, RuleBook
from saltext_ha.minion.binding import DEFAULT_PUBLISH_PORT, DEFAULT_REQUEST_PORT, split_entry

BOOK = RuleBook(MINION)


@dataclass(frozen=True)
class MasterEntry:
    """One entry of ``master:``; ``explicit`` if it has a port."""

    text: str
    item: int
    host: str
    port: int
    explicit: bool
    ips: frozenset[str]

    def same_host(self, other: MasterEntry) -> bool:
        """Whether both certainly mean one machine."""
        return self.host == other.host or bool(self.ips & other.ips)


def entries(facts: HostFacts) -> Iterator[MasterEntry]:
    """The entries that Salt can parse."""
    default = int(facts.number("master_port")) or DEFAULT_REQUEST_PORT
    for item, text in enumerate(facts.masters):
        try:
            host, port = split_entry(text, default)
        except ValueError:
            continue
        if "," in host:
            continue
        literal = bare_ip(host)
        ips = frozenset({literal}) if literal else facts.addresses.get(host) or frozenset()
        explicit = split_entry(text, 0)[1] != 0
        yield MasterEntry(text, item, literal or host, port, explicit, ips)


def is_name(host: str) -> bool:
    """Whether *host* is a name, which must be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def own_publish_port(facts: HostFacts) -> int | None:
    """The minion's own ``publish_port``, if it has one; Salt takes 4506 for unset."""
    port = int(facts.number("publish_port")) if facts.written("publish_port") else 0
    return port if port and port != DEFAULT_REQUEST_PORT else None


def told(facts: HostFacts, entry: MasterEntry) -> int | None:
    """The publish port that the master of *entry* told this minion."""
    for ip in entry.ips:
        if (ip, entry.port) in facts.told:
            return facts.told[ip, entry.port]
    return None


@BOOK.error(
    "HA101",
    "the publish port written into master:",
    PORT_OF_ENTRY,
    CitedLine("salt/minion.py:331 resolve_dns", 'ret["master_uri"] = '),
    why="The port of an entry is the request port (4506). At the publish port nobody answers "
    "requests: the minion never authenticates.",
    fix="leave the port out, or write that of the master's ret_port",
)
def publish_port_as_request_port(facts: HostFacts) -> Hits:
    known = list(entries(facts))
    for entry in known:
        if _is_publish_port(facts, entry):
            what = "" if entry.explicit else f", from master_port: {entry.port}"
            yield Hit("master", f"{entry.text}: {entry.port} is the publish port{what}", entry.item)
        elif before := _mapped_beside(facts, known, entry):
            mapped = f"beside {before.text}, {entry.port} is the publish port of the second master"
            better = f"its request port is {entry.port + 1}"
            yield Hit("master", f"{entry.text}: {mapped}; {better}", entry.item)


def _is_publish_port(facts: HostFacts, entry: MasterEntry) -> bool:
    return entry.port == (own_publish_port(facts) or DEFAULT_PUBLISH_PORT)


def _mapped_beside(
    facts: HostFacts, known: Iterable[MasterEntry], entry: MasterEntry
) -> MasterEntry | None:
    """
    The other of two masters at one address that are mapped side by side (4505 and 4506, 4507 and
    4508), when *entry* names the first port of the second one.
    """
    for other in known if entry.explicit else ():
        steps = 2 if _is_publish_port(facts, other) else 1
        if other.same_host(entry) and entry.port == other.port + steps:
            return other
    return None


@BOOK.error(
    "HA102",
    "host:port entries with master_failback",
    CitedLine(
        "salt/minion.py:2166 Minion._post_master_init",
        'and self.opts["master"] != self.opts["master_list"][0]',
    ),
    PORT_OF_ENTRY,
    "tests/integration/test_lint_traps.py",
    why="Salt compares the master it is on, without the port, with the entry, with it: they are "
    "never the same. A minion on its first master goes on failing back to it, about once a second.",
    fix="write bare hosts in master:, each master at an address of its own, and the port once as "
    "master_port",
)
def ports_with_failback(facts: HostFacts) -> Hits:
    if facts.failover and facts.get("master_failback"):
        yield from _with_port(facts)


@BOOK.warning(
    "HA103",
    "host:port entries with failover",
    CitedLine(
        "salt/minion.py:959 MinionBase.eval_master", 'if opts["master"] in opts["local_masters"]:'
    ),
    why="Salt looks for the lost master, without its port, among the entries, with theirs, does "
    "not find it, and starts again with the lost one instead of the next. On 3007.15 minions were "
    "still lost 90 s after their master died.",
    fix="write bare hosts in master:, each master at an address of its own, and the port once as "
    "master_port",
)
def ports_with_failover(facts: HostFacts) -> Hits:
    if facts.failover and not facts.get("master_failback") and len(facts.masters) > 1:
        yield from _with_port(facts)


def _with_port(facts: HostFacts) -> Hits:
    known = list(entries(facts))
    for entry in known:
        is_other = _is_publish_port(facts, entry) or _mapped_beside(facts, known, entry)  # HA101
        if entry.explicit and not is_other:
            yield Hit("master", entry.text, entry.item)


@BOOK.warning(
    "HA104",
    "two masters at one address",
    ALIVE_CHECK,
    why="Only their ports tell them apart. Salt's alive check (status.master) looks at addresses "
    "and one publish port: it sees one of them for the other.",
    fix="give each master an address of its own, and all the same ports",
)
def two_at_one_address(facts: HostFacts) -> Hits:
    for one, other in combinations(entries(facts), 2):
        if not one.same_host(other) or one.port == other.port or _deaf(facts, one, other):
            continue
        known = told(facts, one) and told(facts, other)
        if known and not facts.moving and facts.number("master_alive_interval") <= 0:
            continue  # they have no alive check, and each publishes on its own port
        if not _answers_both(facts, one, other):
            yield Hit("master", f"{one.text} and {other.text}", other.item)


def _answers_both(facts: HostFacts, one: MasterEntry, other: MasterEntry) -> bool:
    """Whether a hot minion, which knows its masters by host, takes both for one: HA114."""
    twins = one.host == other.host and one.port != other.port
    return facts.hot and twins and not _deaf(facts, one, other)


@BOOK.error(
    "HA114",
    "two masters at one address, and a minion of both at once",
    CitedLine("salt/minion.py:4544 Minion.handle_event", 'if job_master == self.opts["master"]:'),
    "tests/integration/test_lint_traps.py",
    why="A hot-hot minion tells its masters apart by their host, without the port. It sends every "
    "answer to both: each master gets returns of jobs that the other one published.",
    fix="give each master an address of its own, and all the same ports",
)
def returns_to_both(facts: HostFacts) -> Hits:
    for one, other in combinations(entries(facts), 2):
        if _answers_both(facts, one, other):
            yield Hit("master", f"{one.text} and {other.text}", other.item)


@BOOK.error(
    "HA105",
    "one master under two names",
    CitedLine("salt/minion.py:1631 MinionManager._spawn_minions", "for master in masters:"),
    "tests/integration/test_lint_traps.py",
    why="The minion is bound to it twice: as hot-hot minion it gets every job twice and logs the "
    "second as CRITICAL, a message that somebody replays (invalid serial); as failover minion it "
    "moves from a lost master to the same one.",
    fix="name each master once",
)
def one_master_twice(facts: HostFacts) -> Hits:
    for one, other in combinations(entries(facts), 2):
        if one.same_host(other) and one.port == other.port:
            yield Hit("master", f"{one.text} and {other.text}", other.item)


@BOOK.error(
    "HA106",
    "an entry of master: that Salt cannot read",
    CitedLine("salt/utils/network.py:2295 parse_host_port", "raise ValueError("),
    why="Salt takes a host, or a host and a port; several masters are a list of them.",
    fix="write a YAML list of hosts:  master: [10.0.0.1, 10.0.0.2]",
)
def no_host(facts: HostFacts) -> Hits:
    if facts.get("master_type") in ("func", "disable"):
        return
    for item, text in enumerate(facts.masters):
        try:
            if "," in split_entry(text, DEFAULT_REQUEST_PORT)[0]:
                raise ValueError(f"{text!r} has a comma in it")
        except ValueError as exc:
            yield Hit("master", str(exc), item)


@BOOK.error(
    "HA107",
    "a port map that changes the request port only",
    PORT_TOLD,
    why="The minion authenticates to the second master, and then subscribes to the publish port "
    "that this one names, which at that address is the first master's: it is deaf to the second.",
    fix="give each master an address of its own; or have the second really publish on a port of "
    "its own (publish_port in its configuration), mapped under the same number",
)
def request_port_only(facts: HostFacts) -> Hits:
    for one, other in combinations(entries(facts), 2):
        if _deaf(facts, one, other):
            yield Hit("master", f"{one.text} and {other.text}", other.item)


def _deaf(facts: HostFacts, one: MasterEntry, other: MasterEntry) -> bool:
    """Whether both entries, of one address, lead to one publisher."""
    if not one.same_host(other) or one.port == other.port:
        return False
    if own_publish_port(facts):
        return True
    ports = told(facts, one), told(facts, other)
    return ports[0] is not None and ports[0] == ports[1]


@BOOK.warning(
    "HA108",
    "retry_dns: 0 with several masters at once, by name",
    CitedLine("salt/minion.py:261 resolve_dns", 'ret["master_ip"] = "127.0.0.1"'),
    "tests/integration/test_lint_traps.py",
    why="A name that cannot be looked up becomes 127.0.0.1, for as long as the minion runs: it is "
    "deaf to that master, or connected to one that happens to run on its own host.",
    fix="write IP addresses in master:",
)
def no_retry_hot(facts: HostFacts) -> Hits:
    if facts.hot and facts.number("retry_dns") == 0:
        names = [entry.text for entry in entries(facts) if is_name(entry.host)]
        if names:
            yield Hit("retry_dns", ", ".join(names))


@BOOK.info(
    "HA109",
    "several masters at once, by name",
    CitedLine("salt/minion.py:243 resolve_dns", 'opts["retry_dns"], _RESOLVE_DNS_ABORT'),
    "tests/integration/test_lint.py",
    why="While one name cannot be looked up, the minion waits retry_dns seconds at a time and does "
    "nothing else meanwhile: it is deaf to all its masters, the healthy ones too.",
    fix="write IP addresses in master:, or have the names in /etc/hosts",
)
def names_hot(facts: HostFacts) -> Hits:
    if facts.hot and facts.number("retry_dns") > 0:
        names = [entry for entry in entries(facts) if is_name(entry.host)]
        if names:
            yield Hit("master", ", ".join(entry.text for entry in names), names[0].item)


@BOOK.error(
    "HA110",
    "publish_port of the minion is not the master's",
    PORT_SET,
    "tests/integration/test_lint_traps.py",
    why="The minion's own publish_port holds for all its masters, whatever they tell: it "
    "subscribes where that master does not publish, and never hears a job.",
    fix="take publish_port out of the minion's configuration, or make all masters publish there",
)
def other_publish_port(facts: HostFacts) -> Hits:
    own = own_publish_port(facts)
    for entry in entries(facts):
        port = told(facts, entry)
        if own and port and port != own:
            yield Hit("publish_port", f"{own}; {entry.text} publishes on {port}")


@BOOK.error(
    "HA111",
    "masters that publish on another port than 4505, and no publish_port on the minion",
    ALIVE_CHECK,
    "tests/integration/test_lint_traps.py",
    why="Salt's alive check looks for a connection to publish_port, 4505 where it is not set, "
    "finds none and takes a healthy master for lost: about one reconnect a second.",
    fix="set publish_port on the minion to the masters' publish_port",
)
def alive_at_wrong_port(facts: HostFacts) -> Hits:
    if own_publish_port(facts) or facts.number("master_alive_interval") <= 0:
        return
    for entry in entries(facts):
        port = told(facts, entry)
        if port and port != DEFAULT_PUBLISH_PORT:
            yield Hit("master_alive_interval", f"{entry.text} publishes on {port}")


@BOOK.warning(
    "HA112",
    "publish_port: 4506 on a minion",
    PORT_SET,
    why="Salt takes 4506 for unset when it subscribes, and for the publish port when it checks "
    "whether the master is alive.",
    fix="take it out, or write the masters' publish_port",
)
def publish_port_4506(facts: HostFacts) -> Hits:
    if facts.written("publish_port") and facts.number("publish_port") == DEFAULT_REQUEST_PORT:
        yield Hit("publish_port", "4506 means: not set")


@BOOK.warning(
    "HA113",
    "a master whose name cannot be looked up",
    CitedLine("salt/utils/network.py:2234 dns_check", "raise SaltSystemExit(code=42, msg=err)"),
    why="The minion does not get there; and whether two names are one master is not known.",
    fix="mend the name, or the name service",
)
def no_address(facts: HostFacts) -> Hits:
    # If it is not set, "salt" is Salt's own default, usually of a minion without a master.
    if not facts.written("master") or facts.get("master_type") in ("func", "disable"):
        return
    for entry in entries(facts):
        if is_name(entry.host) and facts.addresses.get(entry.host, frozenset()) is None:
            yield Hit("master", entry.text, entry.item)
