"""Rules on minions that go from master to master."""

from __future__ import annotations

from saltext_ha.lint.cited import ALIVE_JOB, ALIVE_LOOK, CitedLine
from saltext_ha.lint.model import MINION, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MINION)

TYPES = ("str", "failover", "distributed", "func", "disable")
# What Linux uses where tcp_keepalive_intvl and tcp_keepalive_cnt are -1.
KERNEL_INTERVAL = 75.0
KERNEL_COUNT = 9.0
HARMLESS = 60.0  # seconds that do no harm
WAY_BACK = CitedLine("salt/minion.py:2164 Minion._post_master_init", 'self.opts["master_failback"]')
LAST_PASS = CitedLine("salt/minion.py:1109 MinionBase.eval_master", "if attempts == tries:")


@BOOK.error(
    "HA201",
    "failover without master_alive_interval",
    ALIVE_JOB,
    CitedLine(
        "salt/transport/zeromq.py:1730 ZeroMQSocketMonitor.monitor_callback",
        "self.disconnect_callback()",
        release="3008.3",
    ),
    "tests/integration/test_lint_traps.py",
    why="The check that notices a lost master is never scheduled: the minion stays with one whose "
    "host is gone. (3007 and 3008 may notice a connection that breaks, by zmq_monitor.)",
    fix="set master_alive_interval: 30 (seconds), or run the engine ha_watchdog",
)
def never_looks(facts: HostFacts) -> Hits:
    if facts.moving and not _looks(facts) and not facts.get("master_failback"):
        yield Hit("master_alive_interval", "is 0", beside="master_type")


@BOOK.error(
    "HA202",
    "failback without master_alive_interval",
    ALIVE_JOB,
    WAY_BACK,
    why="Without the check for a lost master neither this check nor the way back is scheduled: "
    "the minion stays where it is.",
    fix="set master_alive_interval: 30 (seconds); it holds for the way back, too",
)
def never_returns(facts: HostFacts) -> Hits:
    if facts.moving and not _looks(facts) and facts.get("master_failback"):
        yield Hit("master_failback", "master_alive_interval is 0")


def _looks(facts: HostFacts) -> bool:
    return facts.watched or facts.number("master_alive_interval") > 0


@BOOK.warning(
    "HA203",
    "failover with transport: tcp",
    CitedLine("salt/minion.py:2146 Minion._post_master_init", 'self.opts["transport"] != "tcp"'),
    why="With this transport Salt schedules neither the check for a lost master nor the way back; "
    "a minion moves only when its connection is closed under it, and not when the master's host "
    "or the network between just goes. On 3007 and 3008 one that starts while its first master is "
    "down tries no other.",
    fix="use transport: zeromq (on masters and minions)",
)
def tcp(facts: HostFacts) -> Hits:
    if facts.moving and facts.get("transport") == "tcp":
        yield Hit("transport", "tcp")


@BOOK.info(
    "HA204",
    "retry_dns with failover",
    CitedLine("salt/minion.py:984 MinionBase.eval_master", 'opts["retry_dns"] = 0'),
    why="Salt sets it to 0, whatever it is, and logs that as CRITICAL when it starts.",
    fix="set retry_dns: 0",
)
def retry_dns(facts: HostFacts) -> Hits:
    if facts.failover and len(facts.masters) > 1 and facts.number("retry_dns"):
        yield Hit("retry_dns", f"is {facts.get('retry_dns')}", beside="master_type")


@BOOK.warning(
    "HA205",
    "failover with a single master",
    CitedLine("salt/minion.py:941 MinionBase.eval_master", 'opts["master"] = [opts["master"]]'),
    why="There is nowhere to go. Behind one name for several masters Salt takes whichever answers, "
    "and its alive check knows it only by that name.",
    fix="list all masters:  master: [10.0.0.1, 10.0.0.2]",
)
def alone(facts: HostFacts) -> Hits:
    if facts.moving and len(facts.masters) == 1 and "," not in facts.masters[0]:
        yield Hit("master", facts.masters[0])


@BOOK.warning(
    "HA206",
    "rejected_retry with failover",
    CitedLine(
        "salt/crypt.py:1483 AsyncAuth.handle_signin_response", 'if self.opts["rejected_retry"]:'
    ),
    "tests/integration/test_lint_traps.py",
    why="A minion whose key is rejected on the first master asks it again for ever, and never "
    "tries the next.",
    fix="take rejected_retry out; with it False the minion ends, and its service restarts it",
)
def rejected_retry(facts: HostFacts) -> Hits:
    if facts.moving and facts.get("rejected_retry"):
        yield Hit("rejected_retry", "True")


@BOOK.warning(
    "HA207",
    "a long acceptance_wait_time with failover",
    CitedLine("salt/minion.py:1047 MinionBase.eval_master", 'sleep(opts["acceptance_wait_time"])'),
    CitedLine(
        "salt/minion.py:1658 MinionManager._connect_minion",
        'auth_wait = minion.opts["acceptance_wait_time"]',
    ),
    why="It is not only the wait for a key to be accepted: when no master answered, the minion "
    "waits so long before it goes through the list again.",
    fix=f"set acceptance_wait_time and acceptance_wait_time_max to {HARMLESS:g} at most",
)
def long_wait(facts: HostFacts) -> Hits:
    if facts.moving:
        for option in ("acceptance_wait_time", "acceptance_wait_time_max"):
            if facts.number(option) > HARMLESS:
                yield Hit(option, f"{facts.number(option):g} s")


@BOOK.info(
    "HA208",
    "master_tries without end, with failover",
    LAST_PASS,
    why="salt-call does not return while no master answers, and a minion that has lost all of them "
    "goes through the list for ever instead of starting anew.",
    fix="write master_tries: 1: one pass, then the minion starts anew; but -1 with the engine "
    "ha_watchdog, where this rule is silent (docs/minions.md). Without the option it is 1 on Salt "
    "3006, and -1 on 3007.15 and 3008.3 on Linux",
)
def endless(facts: HostFacts) -> Hits:
    # The watchdog needs this: see docs/minions.md.
    if facts.watched or not facts.moving:
        return
    if facts.written("master_tries") and facts.number("master_tries") <= 0:
        yield Hit("master_tries", str(facts.get("master_tries")))


@BOOK.info(
    "HA209",
    "random_master with failover",
    CitedLine(
        "salt/minion.py:1018 MinionBase.eval_master", 'random.shuffle(opts["local_masters"])'
    ),
    why="The list is shuffled at every move, also the lost master, which was put at its end: it "
    "may be tried first again, for auth_timeout seconds. Which master a minion is on follows from "
    "no configuration.",
    fix="take random_master out and write the list in another order on half of the minions "
    "(docs/installing-minions.md)",
)
def shuffled(facts: HostFacts) -> Hits:
    chosen = facts.moving and len(facts.masters) > 1 and facts.get("random_master")
    if chosen and not facts.get("master_failback"):
        yield Hit("random_master", "True")


@BOOK.info(
    "HA210",
    "master_shuffle",
    CitedLine(
        "salt/minion.py:929 MinionBase.eval_master",
        'opts["random_master"] = opts["master_shuffle"]',
    ),
    why="Deprecated in favour of random_master since 2019.2; with failover it wins over "
    "it, else it has no effect.",
    fix="write random_master instead, or take it out",
)
def master_shuffle(facts: HostFacts) -> Hits:
    if facts.get("master_shuffle"):
        yield Hit("master_shuffle", "True")


@BOOK.info(
    "HA211",
    "random_master without failover",
    CitedLine(
        "salt/minion.py:1136 MinionBase.eval_master",
        "random_master is True but there is only one master specified.",
    ),
    why="It has no effect on the minion: with several masters at once it is bound to all, with "
    "one there is nothing to choose. Only salt-call chooses by it.",
    fix="take random_master out",
)
def pointless_random(facts: HostFacts) -> Hits:
    if facts.get("random_master") and (not facts.moving or len(facts.masters) == 1):
        yield Hit("random_master", f"master_type: {facts.get('master_type')}")


@BOOK.info(
    "HA212",
    "auth_tries with failover",
    CitedLine("salt/minion.py:931 MinionBase.eval_master", 'opts["auth_tries"] = 0'),
    why="It has no effect: Salt sets it to 0 when there is a list of masters to go through.",
    fix="take auth_tries out",
)
def auth_tries(facts: HostFacts) -> Hits:
    if facts.moving and facts.written("auth_tries") and facts.number("auth_tries"):
        yield Hit("auth_tries", str(facts.get("auth_tries")))


@BOOK.warning(
    "HA213",
    "master_alive_interval far below what TCP keepalive needs",
    ALIVE_LOOK,
    CitedLine("salt/transport/zeromq.py:1094 _set_tcp_keepalive", 'opts["tcp_keepalive_idle"]'),
    why="The alive check only asks the kernel for an established connection. When the master's "
    "host vanishes without a word (power, network), the kernel keeps it until keepalive gives up: "
    "idle + count × interval, over 16 minutes by Salt's defaults. Until then the minion stays.",
    fix="set tcp_keepalive_idle: 20, tcp_keepalive_intvl: 5, tcp_keepalive_cnt: 3",
)
def late_keepalive(facts: HostFacts) -> Hits:
    if facts.watched or not facts.failover or not _looks(facts) or len(facts.masters) < 2:
        return
    if facts.get("transport", "zeromq") != "zeromq":
        return
    if not facts.get("tcp_keepalive", True):
        yield Hit("tcp_keepalive", "is off: a vanished host is never noticed")
        return
    interval, count = facts.number("tcp_keepalive_intvl"), facts.number("tcp_keepalive_cnt")
    needed = facts.number("tcp_keepalive_idle") + (
        (interval if interval > 0 else KERNEL_INTERVAL) * (count if count > 0 else KERNEL_COUNT)
    )
    alive = facts.number("master_alive_interval")
    if needed > max(2 * alive, 2 * HARMLESS):
        yield Hit("master_alive_interval", f"{alive:g} s, keepalive gives up after {needed:g} s")


@BOOK.info(
    "HA214",
    "master_failback without failover",
    CitedLine(
        "salt/minion.py:1013 MinionBase.eval_master",
        'if opts["master_type"] == "failover" and opts["master_failback"]:',
    ),
    why="It has no effect: only a minion of master_type: failover moves.",
    fix="take master_failback out, or set master_type: failover",
)
def pointless_failback(facts: HostFacts) -> Hits:
    if facts.get("master_failback") and not facts.moving:
        yield Hit("master_failback", f"master_type: {facts.get('master_type')}")


@BOOK.error(
    "HA215",
    "master_type: distributed",
    CitedLine("salt/minion.py:900 MinionBase.eval_master", 'binascii.crc32(opts["id"])'),
    "tests/integration/test_lint.py",
    why="With more than one master Salt fails on it before it connects (crc32 of a text), and the "
    "minion never comes up.",
    fix="use master_type: failover, with the list in another order on half of the minions",
)
def distributed(facts: HostFacts) -> Hits:
    if facts.get("master_type") == "distributed" and len(facts.masters) > 1:
        yield Hit("master_type", "distributed")


@BOOK.error(
    "HA216",
    "a master_type that Salt does not know",
    CitedLine(
        "salt/minion.py:987 MinionBase.eval_master",
        "Invalid keyword '%s' for variable 'master_type'",
    ),
    "tests/integration/test_lint_traps.py",
    why="The minion ends at once: invalid keyword.",
    fix=f"write one of {', '.join(TYPES)}; several masters at once are a list with type str",
)
def unknown_type(facts: HostFacts) -> Hits:
    if facts.get("master_type") not in TYPES:
        yield Hit("master_type", str(facts.get("master_type")))


@BOOK.error(
    "HA217",
    "auth_safemode with failover",
    CitedLine("salt/crypt.py:1382 AsyncAuth.sign_in", "safe = auth_safemode"),
    "tests/integration/test_lint.py",
    why="A master that does not answer is then asked again for ever, and the next of the list is "
    "never tried.",
    fix="take auth_safemode out",
)
def safemode(facts: HostFacts) -> Hits:
    if facts.moving and facts.get("auth_safemode"):
        yield Hit("auth_safemode", "True")


@BOOK.info(
    "HA218",
    "failover without the watchdog",
    ALIVE_LOOK,
    "tests/integration/test_lint_traps.py",
    why="A master that hangs (stopped, out of workers, behind a firewall that drops) keeps its "
    "connections, and these are all that Salt's alive check looks at: no minion ever leaves it.",
    fix="add  engines: [ha_watchdog: {}]  and master_tries: -1 (docs/minions.md)",
)
def unwatched(facts: HostFacts) -> Hits:
    if facts.failover and len(facts.masters) > 1 and not facts.watched:
        yield Hit("master_type", "failover")


@BOOK.warning(
    "HA219",
    "several masters at once on Salt 3007, with zmq_monitor",
    CitedLine(
        "salt/minion.py:4147 Minion.handle_event",
        '"seconds": self.opts["master_alive_interval"],',
        release="3007.16",
    ),
    why="When a master comes back, Salt checks the connection to it every second from then on, "
    "though master_alive_interval is 0: each check is a process, and the minion answers late or "
    "not at all.",
    fix="set zmq_monitor: False; zeromq connects again by itself",
    since=3007,
    before=3008,
)
def checks_without_pause(facts: HostFacts) -> Hits:
    if facts.moving or len(facts.masters) < 2 or facts.get("transport", "zeromq") != "zeromq":
        return
    if facts.get("zmq_monitor", True) and facts.number("master_alive_interval") <= 0:
        yield Hit("zmq_monitor", "is on", beside="master")


@BOOK.warning(
    "HA220",
    "the watchdog with failover, and master_tries is not -1",
    LAST_PASS,
    "docs/minions.md",
    why="A failover minion that finds all its masters down once gives up its engines, the watchdog "
    "with them, and may then connect and take no jobs. Without the option master_tries is 1 on "
    "Salt 3006.",
    fix="set master_tries: -1; restart salt-minion",
)
def watchdog_given_up(facts: HostFacts) -> Hits:
    if facts.watched and facts.moving and facts.number("master_tries") != -1:
        yield Hit("master_tries", f"is {facts.get('master_tries')}", beside="engines")


@BOOK.warning(
    "HA221",
    "the watchdog with failover, and Salt's master_failback",
    WAY_BACK,
    "docs/minions.md",
    why="Salt goes back to the first master as soon as that one answers a ping, also if it works "
    "only in part or is drained; the watchdog leaves it again, and the minion moves to and fro.",
    fix="take master_failback out; ha: watchdog: failback: true  goes back when the master has "
    "worked for a while",
)
def two_ways_back(facts: HostFacts) -> Hits:
    goes_back = facts.get("master_failback") and facts.number("master_alive_interval") > 0
    if facts.watched and facts.moving and goes_back:
        yield Hit("master_failback", "True")
