"""Where the pool sends a job, by what the group says of its minions, which here a test says."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from saltext_ha.api import NotAuthorised, OutcomeUnknown, PartlyRun, TimedOut
from tests.api_server import PASSWORD, Server, pool, respond
from tests.functional.api.test_api_publish import FAILED, script
from tests.loop import until

pytestmark = pytest.mark.core

MINIONS = ("both", "fo1", "fo2")


class Master:
    """
    Publishes to the minions that listen to it, and says what the group knows.

    :param where: minion → masters, as ``ha.where`` has it; after that what is found by a ping.
    """

    def __init__(self, name: str, hears: set[str], where: dict[str, list[str]]) -> None:
        self.name, self.hears, self.where = name, hears, where
        self.live: dict[str, list[str]] = where
        self.published: list[Any] = []
        self.asked = 0
        self.refuses = False
        self.unknown: dict[str, str] = {}
        """The masters that it could not ask, and why."""

    def tell(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        self.asked += 1
        minions = self.live if low["kwarg"].get("live") else self.where
        told = {"kind": "where", "self": self.name, "masters": ["a", "b"], "minions": minions}
        told["unknown"] = self.unknown
        respond(handler, {"return": [{"data": {"return": told, "success": True}}]})

    def __call__(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        if self.refuses:
            respond(handler, {}, 401)
            return
        self.published.append((low["tgt"], low["tgt_type"]))
        text = low["tgt"] if isinstance(low["tgt"], str) else ",".join(low["tgt"])
        whole, without, gone = text.partition("not L@")
        named = [m for m in MINIONS if m in whole or "*" in whole]
        named = [m for m in named if m not in gone.split(",")] if without else named
        if " and L@" in text:
            named = text.partition(" and L@")[2].split(",")
        if low["client"] == "local":
            came = {m: {"ret": 1, "retcode": 0} if m in self.hears else FAILED for m in named}
            respond(handler, {"return": [came]})
        else:
            respond(handler, {"return": [{"jid": low["jid"], "minions": named}]})


@pytest.fixture
def two(servers: list[Server]) -> tuple[Master, Master]:
    where = {"fo1": ["a"], "fo2": ["b"]}
    one, other = Master("a", {"both", "fo1"}, where), Master("b", {"both", "fo2"}, where)
    for server, master in zip(servers, (one, other), strict=True):
        server.answer, server.where = master, master.tell
    return one, other


def test_one_master_where_one_is_enough(servers: list[Server], two: tuple[Master, Master]) -> None:
    for master in two:
        master.where = {"fo2": ["b"]}
    with pool(*servers) as one:
        found = one.local("fo2", "test.x")
        assert (found, list(found.jids), found.unsure) == ({"fo2": 1}, ["m2"], frozenset())
        assert two[1].published == [("fo2", "glob")]
        assert one.local("fo2", "test.x") == {"fo2": 1}
        assert two[0].asked == 1, "what it says is good for a while"
    assert two[0].published == []


def test_a_divided_target(servers: list[Server], two: tuple[Master, Master]) -> None:
    with pool(*servers) as one:
        found = one.local("*", "test.x")
        assert found == dict.fromkeys(MINIONS, 1)
        assert found.jids.keys() == {"m1", "m2"}
        assert len(set(found.jids.values())) == 2
        assert two[0].published == [("( * ) and not L@fo2", "compound")]
        assert two[1].published == [("( * ) and L@fo2", "compound")]
        job = one.local_async(["fo1", "fo2"], "test.x")
        assert (job.master, job.minions) == ("m1", ("fo1",))
        assert [(each.master, each.minions) for each in job.others] == [("m2", ("fo2",))]


class Cache:
    """The master *publishes*, with a job cache of it, which has the return of its minion."""

    def __init__(self, publishes: Master, minion: str, returned: bool) -> None:
        self.publishes, self.minion, self.returned = publishes, minion, returned

    def __call__(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        if low["fun"] != "jobs.list_job":
            self.publishes(handler, low)
            return
        result = {self.minion: {"return": 1}} if self.returned else {}
        job = {"Function": "test.x", "Minions": [self.minion], "Result": result}
        respond(handler, {"return": [job]})


@pytest.mark.parametrize("slow", [0, 1], ids=["on the first", "on the second"])
def test_a_slow_minion_of_one_master_does_not_hide_those_of_the_other(
    servers: list[Server], two: tuple[Master, Master], slow: int
) -> None:
    for place, minion in enumerate(("fo1", "fo2")):
        servers[place].answer = Cache(two[place], minion, place != slow)
    came, missing = ("fo2", "fo1") if slow == 0 else ("fo1", "fo2")
    with pool(*servers) as one:
        job = one.local_async(["fo1", "fo2"], "test.x")
        with pytest.raises(TimedOut) as late:
            one.wait(job, deadline=5)
    assert (late.value.returned, late.value.missing) == ({came: 1}, [missing])


@pytest.mark.parametrize(
    ("call", "fun"),
    [("local(['fo1', 'fo2'], 'test.x')", "test.x"), ("minions()", "manage.status")],
    ids=["a divided job", "minions"],
)
def test_who_interrupts_a_call_on_several_masters_need_not_wait_for_it(
    servers: list[Server], two: tuple[Master, Master], call: str, fun: str
) -> None:
    """The process ends, though threads of it still wait for answers."""
    over = threading.Event()
    for server in servers:
        server.answer = lambda *_: over.wait(600)
    masters = [server.url for server in servers]
    program = f"""
import signal
from saltext_ha.api import SaltApiPool
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
with SaltApiPool({masters}, username="ops", password={PASSWORD!r}, deadline=600) as pool:
    pool.{call}
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        try:
            asyncio.run(until(lambda: all(server.calls(fun) for server in servers)))
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
            over.set()
    assert b"KeyboardInterrupt" in told
    assert process.returncode == -signal.SIGINT


def test_a_minion_that_went_elsewhere(servers: list[Server], two: tuple[Master, Master]) -> None:
    for master in two:
        master.where, master.live = {"fo2": ["a"]}, {"fo2": ["b"]}
    with pool(*servers) as one:
        with pytest.raises(
            OutcomeUnknown, match="fo2 did not answer there, and listens to m2"
        ) as e:
            one.local(["fo2", "both"], "test.x")
        assert (e.value.missing, e.value.returned, e.value.master) == (["fo2"], {"both": 1}, "m1")
        assert two[1].published == [], "it may have run before it went"
        found = one.local(["fo2", "both"], "test.x", idempotent=True)
        assert found == {"fo2": 1, "both": 1}
        assert two[1].published == [(["fo2"], "list")]


@pytest.mark.parametrize("takes", ["the first master", "nobody"])
def test_a_minion_that_went_elsewhere_and_is_not_run_there(
    servers: list[Server], two: tuple[Master, Master], takes: str
) -> None:
    """What the others returned is not lost, nor called not run."""
    for master in two:
        master.where, master.live = {"fo2": ["a"]}, {"fo2": ["b"]}

    def answer(handler: BaseHTTPRequestHandler, low: Any) -> None:
        two[0](handler, low)
        two[0].refuses = takes == "nobody"

    servers[0].answer, two[1].refuses = answer, True
    with pool(*servers) as one, pytest.raises(OutcomeUnknown) as lost:
        one.local(["fo2", "both"], "test.x", idempotent=True)
    assert (lost.value.missing, lost.value.returned) == (["fo2"], {"both": 1})
    assert lost.value.jids.keys() == {"m1"}


def test_a_minion_that_nobody_reaches(servers: list[Server], two: tuple[Master, Master]) -> None:
    for master in two:
        master.hears, master.where, master.live = set(), {}, {"both": []}
    with pool(*servers) as one:
        found = one.local("both", "test.x")
    assert (found, found.unsure) == ({"both": False}, frozenset())


def test_a_master_that_could_not_ask_all_is_not_the_last_word(
    servers: list[Server], two: tuple[Master, Master]
) -> None:
    """Whom it did not ask may reach the minions that it has nowhere."""
    two[0].unknown, two[0].where = {"b": "timed out"}, {"fo2": []}
    two[1].where = {"fo2": ["b"]}
    with pool(*servers) as one:
        assert one.local("fo2", "test.x") == {"fo2": 1}
    assert (two[0].published, two[1].published) == ([], [("fo2", "glob")])


def test_what_masters_know_is_put_together_where_none_could_ask_all(
    servers: list[Server], two: tuple[Master, Master]
) -> None:
    two[0].unknown, two[0].where = {"b": "timed out"}, {"fo1": ["a"], "fo2": []}
    two[1].unknown, two[1].where = {"a": "timed out"}, {"fo1": [], "fo2": ["b"]}
    with pool(*servers) as one:
        assert one.local(["fo1", "fo2"], "test.x") == {"fo1": 1, "fo2": 1}
    assert (two[0].published, two[1].published) == (
        [("( L@fo1,fo2 ) and not L@fo2", "compound")],
        [(["fo2"], "list")],
    )


def test_a_minion_that_a_master_that_was_not_asked_may_reach(
    servers: list[Server], two: tuple[Master, Master]
) -> None:
    for master in two:
        master.hears, master.where, master.live = set(), {}, {"both": [], "fo2": []}
        master.unknown = {"c": "timed out"}
    with pool(*servers) as one:
        found = one.local(["both", "fo2"], "test.x")
        assert found == {"both": False, "fo2": False}
        assert found.unsure == {"both", "fo2"}
        for master in two:
            master.unknown = {}
        assert one.local(["both", "fo2"], "test.x").unsure == frozenset()


@pytest.mark.parametrize("in_pool", [True, False], ids=["its salt-api is down", "not in the pool"])
def test_a_minion_that_listens_to_a_master_that_never_answered_this_pool(
    servers: list[Server], two: tuple[Master, Master], in_pool: bool
) -> None:
    """The group knows that it is up, and this pool knows no name for the master that reaches it."""
    two[0].where = two[0].live = {"fo1": ["a"], "fo2": ["b" if in_pool else "c"], "both": []}
    two[0].hears, servers[1].dead = {"fo1"}, in_pool
    with pool(*servers) as one:
        found = one.local(list(MINIONS), "test.x")
        assert found == {"fo1": 1, "fo2": False, "both": False}
        assert found.unsure == {"fo2"}, "of the other one it is certain"


def test_nobody_tells(servers: list[Server]) -> None:
    script(servers[0])
    with pool(*servers) as one:
        found = one.local("*", "test.x")
        assert (found, found.unsure) == ({"a": 1, "b": False}, {"b"})


def test_one_master_refuses(servers: list[Server], two: tuple[Master, Master]) -> None:
    two[0].hears, two[1].refuses = set(MINIONS), True
    with pool(*servers) as one:
        found = one.local("*", "test.x")  # by the other master, which may do it
        assert found == dict.fromkeys(MINIONS, 1)
        two[0].refuses = True
        with pytest.raises(NotAuthorised):
            one.local("*", "test.x")


def test_a_master_that_lost_a_call_is_looked_at_before_the_next(servers: list[Server]) -> None:
    first = script(servers[0], "reset")
    first.mute = True
    second = script(servers[1])

    def dies(handler: BaseHTTPRequestHandler, low: Any) -> None:
        servers[0].dead = True  # at once: else its first probe may find that it works
        first(handler, low)

    servers[0].answer = dies
    with pool(*servers, fall=10, deadline=4) as one:
        with pytest.raises(OutcomeUnknown):
            one.local_async("*", "test.x")
        for _ in range(3):
            assert one.local_async("*", "test.x").master == "m2"
        assert (len(first.sent), len(second.sent)) == (1, 3)
        servers[0].dead = False
        assert one.local_async("*", "test.x").master == "m1"


def test_a_master_that_hangs_delays_calls_only_until_it_is_down(servers: list[Server]) -> None:
    """Nothing but its login tells that it does not work, and that takes the whole of its time."""
    hangs = threading.Event()

    def stuck(handler: BaseHTTPRequestHandler, low: Any) -> None:
        hangs.wait(30)
        handler.close_connection = True

    first, second = script(servers[0], "reset"), script(servers[1])
    first.mute = True

    def begins_to_hang(handler: BaseHTTPRequestHandler, low: Any) -> None:
        servers[0].login = stuck  # at once: else a probe may find that it works
        first(handler, low)

    servers[0].answer = begins_to_hang
    with pool(*servers, probe_timeout=6, spacing=0, deadline=18) as one:
        one.local_async("*", "test.x", idempotent=True)
        for _ in range(2):
            one.local_async("*", "test.x")
        assert one.status()["masters"][0]["healthy"] is False
        begun = time.monotonic()
        assert one.local_async("*", "test.x").master == "m2"
        assert time.monotonic() - begun < 5
        hangs.set()
    assert (len(first.sent), len(second.sent)) == (1, 4)


def test_errors_of_parts() -> None:
    from saltext_ha.api.calls import fail

    late = TimedOut("late", "m1", "1", {"a": 1}, ["b"])
    lost = OutcomeUnknown("m2", "lost", "2")
    refused = NotAuthorised({"m2": "no"})
    other = TimedOut("late", "m2", "3", {}, ["d"])
    with pytest.raises(TimedOut) as both:
        fail({"m1": late, "m2": other}, {}, {})
    assert (both.value.jids, both.value.missing) == ({"m1": "1", "m2": "3"}, ["b", "d"])
    with pytest.raises(TimedOut) as timed:
        fail({"m1": late}, {"m2": "2"}, {"c": 3})
    assert timed.value.jids == {"m1": "1"}
    assert (timed.value.returned, timed.value.missing) == ({"a": 1, "c": 3}, ["b"])
    with pytest.raises(OutcomeUnknown) as unknown:
        fail({"m1": late, "m2": lost}, {}, {})
    assert (unknown.value.jid, unknown.value.missing) == ("2", []), "those of m2 have no names"
    assert "lost; late" in str(unknown.value)
    assert unknown.value.jids == {"m1": "1", "m2": "2"}
    # An application that was cut off from all masters can look up what it sent to each.
    gone = OutcomeUnknown("m1", "reset", "4")
    with pytest.raises(OutcomeUnknown, match=r"job 4 was sent to m1.*reset; job 2 was sent to m2"):
        fail({"m1": gone, "m2": lost}, {}, {})
    with pytest.raises(OutcomeUnknown) as all_lost:
        fail({"m1": gone, "m2": lost}, {"m3": "5"}, {})
    assert all_lost.value.jids == {"m1": "4", "m2": "2", "m3": "5"}
    went = OutcomeUnknown("m2", "lost", "2", {}, ["d"])
    with pytest.raises(OutcomeUnknown) as named:
        fail({"m1": late, "m2": went}, {}, {})
    assert (named.value.returned, named.value.missing) == ({"a": 1}, ["b", "d"])
    with pytest.raises(PartlyRun) as partly:
        fail({"m2": refused}, {"m1": "1"}, {"c": 3})
    assert (partly.value.jobs, partly.value.returned) == ({"m1": "1"}, {"c": 3})
    assert partly.value.reasons == {"m2": refused}
    with pytest.raises(NotAuthorised):
        fail({"m2": refused}, {}, {})
