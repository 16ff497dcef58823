"""The watchdog's rounds over a minion that is played: what it sees, fires, moves and remembers."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.config.watchdog import WatchdogSettings
from saltext_ha.minion import binding, pings
from saltext_ha.minion.binding import Running, SeenMaster
from saltext_ha.minion.restarting import detached, restart
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog import journal, request, rescue, run
from saltext_ha.minion.watchdog.admission import AuthRefusal
from saltext_ha.minion.watchdog.journal import RecordedMove
from saltext_ha.minion.watchdog.look import AddressBook
from saltext_ha.minion.watchdog.move import DISCONNECTED, FAILBACK
from saltext_ha.minion.watchdog.report import MAX_ADDRESSES, report
from saltext_ha.minion.watchdog.run import Watch
from tests.unit.clock import Clock
from tests.unit.minion.watched import M1, M2, M3, QUICK, Salt, last_of, turns, without_pauses

pytestmark = pytest.mark.core

# -- moves


def test_a_dead_master_is_left_and_the_arrival_is_waited_for(salt: Salt, watch: Watch) -> None:
    assert turns(watch) == [M1]
    salt.up = {M2, M3}
    assert turns(watch) == [M1, M2]
    moves = [(tag, data) for tag, data in salt.fired if tag in (DISCONNECTED, FAILBACK)]
    assert moves == [(DISCONNECTED, {"master": M1})]
    last = last_of(watch.journal)
    assert (last.source, last.seconds is not None) == (M1, True)
    assert salt.told()
    assert salt.asked == [M2]


def test_on_the_way_to_a_master_others_are_passed_by(salt: Salt) -> None:
    reached = salt.site.mover.move(salt.site.master(M1), M3, 5)
    assert reached is not None
    assert reached.configured == M3
    assert salt.tags() == [DISCONNECTED, DISCONNECTED]
    # To the first one of the list Salt has an event of its own.
    assert salt.site.mover.move(salt.site.master(M3), M1, 5) == salt.site.looker.bound()
    assert salt.fired[2:] == [(FAILBACK, {"master": M1})]


def test_salt_hears_of_its_master_by_the_short_form_of_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters = ("2001:DB8:0::1", M2)
    salt = Salt(monkeypatch, master=list(masters))
    salt.here, salt.up = "2001:db8::1", {M2}
    reached = salt.site.mover.move(salt.site.master(masters[0]), None, 5)
    assert reached is not None
    assert reached.configured == M2
    assert salt.fired == [(DISCONNECTED, {"master": "2001:db8::1"})]
    # In its list Salt has it as it is written, and does not find it there.
    assert salt.site.mover.order == masters


def test_who_cannot_be_reached_is_not_looked_for_in_circles(salt: Salt) -> None:
    salt.up = {M1, M2}
    reached = salt.site.mover.move(salt.site.master(M1), M3, 5)
    assert reached is not None
    assert (reached.configured, len(salt.fired)) == (M1, 2)


def test_salts_own_check_is_taken_away_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = Salt(monkeypatch)
    salt.site.mover.tidy(map(salt.site.master, (M2, M3)))
    deleted = [data["name"] for tag, data in salt.fired if tag == "manage_schedule"]
    assert deleted == [f"__master_alive_{M2}", f"__master_alive_{M3}", FAILBACK]
    wanted = Salt(monkeypatch, master_alive_interval=30)
    wanted.site.mover.tidy([wanted.site.master(M2)])
    assert wanted.fired == []


def test_also_those_that_salt_brings_back_from_an_earlier_move(salt: Salt, watch: Watch) -> None:
    """Or of masters that the minion was moved past: whichever were there, none is left."""
    turns(watch)
    salt.up = {M3}
    salt.fired.clear()
    assert turns(watch)[-1] == M3
    deleted = {data["name"] for tag, data in salt.fired if tag == "manage_schedule"}
    assert {f"__master_alive_{each}" for each in (M1, M2, M3)} <= deleted


def test_none_is_left_after_a_move_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = Salt(monkeypatch, cachedir=str(tmp_path))
    request.execute(salt.site, salt.opts, M3)
    assert salt.here == M3
    deleted = {data["name"] for tag, data in salt.fired if tag == "manage_schedule"}
    assert deleted == {*(f"__master_alive_{each}" for each in (M1, M2, M3)), FAILBACK}


def test_a_master_whose_publisher_says_nothing_is_left_and_is_no_refuge(
    salt: Salt, watch: Watch
) -> None:
    salt.dumb = {M1, M2, M3}
    assert turns(watch) == [M1]
    salt.dumb = {M1}
    assert turns(watch) == [M1, M2]
    last = last_of(watch.journal)
    assert last.why.startswith("its publisher does not answer for ")
    salt.dumb = {M3}
    with pytest.raises(HaError, match=f"{M3} does not answer: its publisher says nothing"):
        request.plan(salt.site, M3)


def test_a_connection_on_which_nobody_answers_is_left(salt: Salt, watch: Watch) -> None:
    assert turns(watch) == [M1]
    salt.unanswered = {(M1, 4505): 1, (M2, 4505): 9, (M1, 22): 9}
    assert turns(watch) == [M1], "one answer may be late; other connections are of no matter"
    assert watch.turn() == QUICK.soon, "but it looks again sooner"
    salt.unanswered = {(M1, 4506): 2}
    assert turns(watch) == [M1, M2]
    last = last_of(watch.journal)
    assert last.why.startswith("nobody answers on the connection to it for ")


def test_probes_from_before_the_network_was_back_do_not_count(salt: Salt, watch: Watch) -> None:
    assert turns(watch) == [M1]
    salt.up, salt.unanswered = set(), {(M1, 4505): 2}
    assert turns(watch) == [M1]
    salt.up = {M1, M2, M3}
    assert turns(watch) == [M1]
    assert watch.turn() == QUICK.soon
    # The kernel has sent the next one, in vain: of this connection somebody knows no more.
    salt.unanswered = {(M1, 4505): 3}
    assert turns(watch) == [M1, M2]


def test_only_zeromq_has_publishers_that_speak_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = Salt(monkeypatch, transport="tcp")
    salt.dumb = {M1}
    assert turns(salt.watch(tmp_path)) == [M1]


def test_the_publish_port_of_the_current_master_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = Salt(monkeypatch, publish_port=4506)  # Salt takes that for "as the master says"
    salt.dumb = {M1, M2}
    assert salt.site.looker.look((M2,)).answers == {M1: False, M2: True}


# -- who does not let it in


@pytest.mark.parametrize("final", [True, False])
def test_a_master_that_keeps_whom_it_does_not_let_in_is_no_refuge(
    salt: Salt, watch: Watch, final: bool
) -> None:
    watch.turn()
    salt.up, salt.closed = {M2, M3}, {M2: AuthRefusal("the key of web1 is pending there", final)}
    # Where Salt passes on by itself it finds its way.
    assert turns(watch) == ([M1] if final else [M1, M2])
    assert salt.asked == [M2]  # and not again at every look


@pytest.mark.parametrize("final", [True, False])
def test_nobody_goes_back_to_a_master_that_does_not_let_it_in(
    salt: Salt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool
) -> None:
    salt.here, salt.closed = M2, {M1: AuthRefusal("no", final)}
    watch = salt.watch(tmp_path, WatchdogSettings(**{**vars(QUICK), "failback": True}))
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    for _ in range(30):
        clock.now += watch.turn()
    assert (salt.here, set(salt.asked)) == (M2, {M1})
    assert DISCONNECTED not in salt.tags()
    assert FAILBACK not in salt.tags()
    salt.closed = {}
    for _ in range(30):
        clock.now += watch.turn() + 1  # the move itself takes time, by this clock
    assert salt.here == M1


def test_the_first_master_is_reached_past_one_that_does_not_let_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = Salt(monkeypatch, local_masters=[M2, M3, M1])
    salt.here = M2
    watch = salt.watch(tmp_path)
    watch.turn()
    salt.up, salt.closed = {M1, M3}, {M3: AuthRefusal("the key of web1 is pending there", True)}
    assert turns(watch) == [M2, M1]
    assert FAILBACK in salt.tags()
    assert DISCONNECTED not in salt.tags()
    assert salt.asked == [M3, M1]


@pytest.mark.parametrize("final", [True, False])
def test_an_operator_is_told_who_would_keep_it_on_the_way(salt: Salt, final: bool) -> None:
    salt.closed = {M2: AuthRefusal("the key of web1 is pending there", final)}
    if final:
        with pytest.raises(HaError, match=f"on the way to {M3} Salt tries {M2}, which would keep"):
            request.plan(salt.site, M3)
        salt.up = {M1, M3}  # Salt passes by who does not answer
    assert request.plan(salt.site, M3) == request.MovePlan(M1, M3)
    salt.up, salt.here = {M1, M2, M3}, M3
    assert request.plan(salt.site, M1) == request.MovePlan(M3, M1)
    assert request.plan(salt.site, M3) == request.MovePlan(M3, M3)  # it is there
    salt.here, salt.closed = M2, {M3: AuthRefusal("the key of web1 is pending there", final)}
    # Straight, as it is the first one.
    assert request.plan(salt.site, M1) == request.MovePlan(M2, M1)


@pytest.mark.parametrize("final", [None, True, False])
def test_who_only_connects_anew_signs_in_there_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: bool | None
) -> None:
    """
    A hot-hot minion ends, and leaves all its masters, where one of them has rejected it since; and
    by ``master_tries: 1``, the default of Salt 3006, where one does not answer its sign-in.
    """
    salt = Salt(monkeypatch, master=[M1], master_type="str")
    salt.closed = {} if final is None else {M1: AuthRefusal("not now", final)}
    watch = salt.watch(tmp_path)
    watch._do(run.MinionMove(M1, M1, "not subscribed for 15 s"))
    assert salt.asked == [M1]
    assert (DISCONNECTED in salt.tags()) is (final is None)


def test_where_one_master_needs_no_look_up_no_other_name_is_waited_for(
    salt: Salt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a name service that hangs, each name takes half a minute in which nothing is watched."""
    asked: list[str] = []

    def resolve(host: str) -> frozenset[str]:
        asked.append(host)
        if host != "10.0.0.3":
            raise OSError("no answer from the name service")
        return frozenset({host})

    monkeypatch.setattr(binding, "resolve", resolve)
    looker = salt.site.looker
    looker.book = AddressBook(Running(("m1.example", "m2.example", "10.0.0.3")))
    asked.clear()
    refusal = looker.refusal("m2.example")
    assert refusal == AuthRefusal("its name cannot be looked up now")
    assert asked == ["m2.example", "10.0.0.3"]


@pytest.mark.parametrize("found", ["", M3])
def test_masters_whose_names_cannot_be_looked_up_now_are_no_way(
    salt: Salt, watch: Watch, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    """Salt looks them up when it has left its master; it ends if it finds none, or skips some."""
    watch.turn()
    salt.up = {M2, M3}

    def resolve(host: str) -> frozenset[str]:
        if host != found:
            raise OSError("no answer from the name service")
        return frozenset({host})

    monkeypatch.setattr(binding, "resolve", resolve)
    turns(watch)
    assert (DISCONNECTED in salt.tags()) is bool(found)
    assert salt.asked == []
    if not found:
        with pytest.raises(HaError, match=f"{M2} .*: its name cannot be looked up now"):
            request.plan(salt.site, M2)


@pytest.mark.parametrize("final", [True, False])
def test_an_operator_is_told_why_it_would_not_go(salt: Salt, final: bool) -> None:
    salt.closed = {M2: AuthRefusal("the key of web1 is pending there", final)}
    with pytest.raises(HaError, match=f"{M2} would not let this minion in: the key of web1"):
        request.plan(salt.site, M2)
    with pytest.raises(HaError, match=f"{M2} would not let this minion in"):
        request.plan(salt.site, None)
    assert request.plan(salt.site, M1) == request.MovePlan(M1, M1)
    salt.up = {M1}
    with pytest.raises(HaError, match=f"{M3} does not answer"):
        request.plan(salt.site, M3)


def test_where_the_connections_are_hidden_nothing_is_watched_and_the_log_says_so(
    salt: Salt, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of a minion that changed its user are from its own engines."""
    salt.steps = [TcpLinks(None, "may not look")] * 3
    assert turns(watch) == []
    said = [record.getMessage() for record in caplog.records]
    assert said == ["ha_watchdog: nothing is watched: may not look"]
    salt.steps = [TcpLinks(None, "may not look")]
    with pytest.raises(HaError, match="may not look"):
        request.plan(salt.site, None)
    assert turns(watch) == [M1]


# -- what it is set up with


def test_what_is_preferred_and_how_long_a_subscription_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = Salt(monkeypatch, recon_max=30_000)
    setup = salt.watch(tmp_path).setup
    assert (setup.preferred, setup.deaf_after) == (None, 35.0)
    back = WatchdogSettings(failback=True, failures=4)
    setup = Salt(monkeypatch, recon_max=1000).watch(tmp_path, back).setup
    assert (setup.preferred, setup.deaf_after) == (M1, 20.0)
    assert Salt(monkeypatch, random_master=True).site.first is None
    assert Salt(monkeypatch, master_shuffle=True).site.first is None


def test_a_hot_minion_has_a_watchdog_for_each_of_its_masters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "minion"
    conf.write_text(f"master: [{M1}, {M2}]\n")
    more = {"master": M2, "multimaster": True, "conf_file": str(conf), "master_type": "str"}
    site = Salt(monkeypatch, **more).site
    assert (site.masters, site.of, site.first) == ((M2,), 2, None)


def test_it_is_for_the_same_master_when_salt_starts_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By then Salt has taken the port off the entry."""
    conf = tmp_path / "minion"
    conf.write_text(f"master: [{M1}, '{M2}:4510', '[2001:db8::1]:4512']\n")
    usual = {"multimaster": True, "conf_file": str(conf), "master_type": "str"}
    for entry, host, port in (
        (f"{M2}:4510", M2, 4510),
        ("[2001:db8::1]:4512", "2001:db8::1", 4512),
        (M1, M1, 4506),
    ):
        first = Salt(monkeypatch, **usual, master=entry, local_masters=[]).site
        again = {"master": host, "master_port": port, "master_ip": host, "master_uri": "…"}
        for site in (first, Salt(monkeypatch, **usual, **again, local_masters=[]).site):
            (master,) = site.book.masters
            assert (master.configured, master.host, master.port) == (entry, host, port)


def test_who_was_moved_by_hand_is_known_to_have_been(
    salt: Salt, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt.here = M2
    assert turns(watch, 1) == [M2]
    pinned: list[bool] = []
    follow = watch._follow
    monkeypatch.setattr(watch, "_follow", lambda look: pinned.append(follow(look)) or pinned[-1])
    watch.turn()
    watch.journal.add(RecordedMove(1.0, M1, M2, journal.ASKED))
    watch.turn()
    assert pinned == [False, True]


# -- looks


def test_a_minion_that_salt_is_moving_is_with_none(salt: Salt) -> None:
    looker = salt.site.looker
    assert looker.look(()).current == M1
    asking: Link = (M2, 4506)
    salt.up, salt.steps = {M1}, [TcpLinks(frozenset({asking}))]
    look = looker.look((M1, M2))
    assert (look.current, look.good) == (None, False)
    # It answers there, and has yet to subscribe: so far it still counts as coming from M1.
    salt.up, salt.steps = {M1, M2}, [TcpLinks(frozenset({asking}))]
    look = looker.look(())
    assert (look.current, look.subscribed, looker.last) == (M2, False, M1)
    salt.steps = [TcpLinks(frozenset({asking}))]
    assert looker.bound() is None


def test_a_name_that_does_not_resolve_now_keeps_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"m1.example": frozenset({M1}), "m2.example": frozenset({M2})}

    def resolve(host: str) -> frozenset[str]:
        if host not in known:
            raise OSError("no answer from the name service")
        return known[host]

    monkeypatch.setattr(binding, "resolve", resolve)
    book = AddressBook(Running(("m1.example", "m2.example"), listed=True))
    known.pop("m1.example")
    known["m2.example"] = frozenset({M3})
    book.refresh()
    assert [each.ips for each in book.masters] == [{M1}, {M3}]
    assert [each.note for each in book.masters] == [None, None]


def test_a_name_keeps_the_address_in_use_and_that_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some name services tell another address each time, of one master or of several."""
    told = [frozenset({M3}), frozenset({M1, M3}), frozenset({M1})]
    known = {"m.example": told[0], M2: frozenset({M2})}
    monkeypatch.setattr(binding, "resolve", known.__getitem__)
    salt = Salt(monkeypatch, master=["m.example", M2])
    salt.here = M3
    asked: list[frozenset[str]] = []

    def ping_all(opts: Any, masters: list[SeenMaster], timeout: float) -> list[dict[str, Any]]:
        asked.extend(each.in_use for each in masters if each.configured == "m.example")
        return [{"answers": True} for _ in masters]

    monkeypatch.setattr(pings, "ping_all", ping_all)
    for addresses in told:
        known["m.example"] = addresses
        salt.site.book.refresh()
        look = salt.site.looker.look(())
        assert (look.current, look.subscribed) == ("m.example", True)
    assert asked == [{M3}] * 3
    salt.here = M1
    salt.site.looker.look(())
    salt.site.book.refresh()
    assert salt.site.master("m.example").ips == {M1}


def test_an_address_in_use_keeps_the_publish_port_that_its_master_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"m.example": frozenset({M3})}
    monkeypatch.setattr(binding, "resolve", known.__getitem__)
    book = AddressBook(Running(("m.example",), told={(M3, 4506): 4510}))
    book.used = known["m.example"]
    known["m.example"] = frozenset({M1})
    book.refresh()
    assert [(each.ips, each.publish_port) for each in book.masters] == [({M1, M3}, 4510)]


def test_a_report_names_a_few_addresses_only() -> None:
    ips = frozenset(f"10.1.0.{number}" for number in range(1, 50))
    said = report("web1", SeenMaster("m1", "m1", 4506, ips), Running(("m1",)), 300, 1)
    assert len(said["addresses"]) == MAX_ADDRESSES


# -- a minion that got stuck


class Stuck(Salt):
    """It drops its connections when it is told to move, and makes no others."""

    def fire(self, tag: str, data: Any) -> None:
        self.fired.append((tag, data))
        if tag == DISCONNECTED:
            self.here = ""

    def links(self) -> TcpLinks:
        return super().links() if self.here else TcpLinks(frozenset({("10.9.9.9", 22)}))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The orders that processes were started with."""
    orders: list[dict[str, Any]] = []
    way = restart.Way(("salt-minion",))
    monkeypatch.setattr(restart, "way", lambda minion, opts, **_: way)
    monkeypatch.setattr(detached, "start", lambda module, order, before: orders.append(order))
    return orders


def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> run.Watch:
    """A watch that has just told its minion to move, in vain."""
    salt = Stuck(monkeypatch)
    monkeypatch.setattr(salt.site.mover, "_arrival", lambda here, end: None)
    watch = salt.watch(tmp_path, replace(QUICK, **settings))
    watch.turn()
    salt.up = {M2, M3}
    turns(watch)
    assert DISCONNECTED in salt.tags()
    return watch


def test_a_minion_that_is_stuck_is_restarted_and_not_soon_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[dict[str, Any]]
) -> None:
    watch = stuck(tmp_path, monkeypatch)
    assert [(order["minion"], order["way"]["command"]) for order in begun] == [
        (os.getppid(), ("salt-minion",))
    ]
    last = last_of(watch.journal)
    assert (last.source, last.target, last.why) == (None, M1, rescue.STUCK)
    stuck(tmp_path, monkeypatch)
    assert len(begun) == 1
    long_ago = RecordedMove(**{**asdict(last), "at": last.at - rescue.PAUSE - 1})
    watch.journal.path.unlink()
    watch.journal.add(long_ago)
    stuck(tmp_path, monkeypatch)
    assert len(begun) == 2


def test_it_is_left_alone_where_that_is_wished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[dict[str, Any]]
) -> None:
    stuck(tmp_path, monkeypatch, restart=False)
    assert begun == []


@pytest.mark.parametrize("seconds", [None, 0.5, 5.0], ids=["no answer", "at once", "slowly"])
def test_who_may_wait_for_the_name_service_is_not_restarted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begun: list[dict[str, Any]],
    seconds: float | None,
) -> None:
    clock = Clock()

    def resolve(host: str) -> frozenset[str]:
        if seconds is None:
            raise OSError("Temporary failure in name resolution")
        clock.now += seconds
        return frozenset({host})

    monkeypatch.setattr(binding, "resolve", resolve)
    monkeypatch.setattr(time, "monotonic", clock)
    salt = Stuck(monkeypatch)
    salt.here = ""
    watch = salt.watch(tmp_path)
    watch._rescue(run.MinionMove(M1, M2, "no answer"))
    assert len(begun) == (seconds == 0.5)


@pytest.mark.parametrize("link", [(M3, 50000), ("10.9.9.9", 4506), ("10.9.9.9", 4505), None])
def test_who_knocks_somewhere_is_not_stuck(salt: Salt, link: Link | None) -> None:
    looks = [TcpLinks(frozenset({("10.9.9.9", 22)}))] * 3
    looks.append(TcpLinks(frozenset({link}) if link else None))
    masters = salt.site.book.masters
    assert rescue.stuck(masters, lambda: looks[0], 20)
    assert not rescue.stuck(masters, lambda: looks.pop(0), 20)


def test_who_waits_for_a_host_that_drops_its_packets_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters = Salt(monkeypatch).site.book.masters
    links = TcpLinks(frozenset(), sought=frozenset({(M3, 4506)}))
    assert not rescue.stuck(masters, lambda: links, 20)


def test_who_pauses_between_two_rounds_is_not_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[dict[str, Any]]
) -> None:
    """All have refused it once, as they were too busy: in ten seconds Salt tries them again."""
    clock = Clock(0.0)
    monkeypatch.setattr(time, "monotonic", clock)
    salt = Stuck(monkeypatch, auth_timeout=5, acceptance_wait_time=10)
    without_pauses(monkeypatch, clock.passes)
    pause = 10 + 5 + 5
    busy = TcpLinks(frozenset({(M2, 4506)}))
    quiet = TcpLinks(frozenset())
    salt.site.looker.links = lambda: quiet if clock.now % (pause + 5) < pause else busy
    watch = salt.watch(tmp_path)
    watch._rescue(run.MinionMove(M1, M2, "no answer"))
    assert begun == []
    salt.site.looker.links = lambda: quiet
    watch._rescue(run.MinionMove(M1, M2, "no answer"))
    assert len(begun) == 1


def test_without_a_way_to_restart_it_that_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begun: list[dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def none(minion: int, opts: Any, **more: bool) -> restart.Way:
        raise HaError("its container ends with the minion")

    monkeypatch.setattr(restart, "way", none)
    watch = stuck(tmp_path, monkeypatch)
    assert begun == []
    assert "cannot be restarted: its container ends with the minion" in caplog.text
    assert rescue.STUCK not in [each.why for each in watch.journal.read()]
