"""The watchdog's settings, its journal, and what it makes of connections: without daemons."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import ConfigError, HaError
from saltext_ha.config import watchdog
from saltext_ha.minion import binding
from saltext_ha.minion.binding import Running
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog import journal, request, run
from saltext_ha.minion.watchdog.admission import AuthRefusal
from saltext_ha.minion.watchdog.decide import WatchdogLook
from saltext_ha.minion.watchdog.journal import Journal, RecordedMove
from saltext_ha.minion.watchdog.look import where

pytestmark = pytest.mark.core

M1, M2, M3 = "10.0.0.1", "10.0.0.2", "10.0.0.3"


# -- settings


def test_everything_may_be_left_out() -> None:
    for opts in ({}, {"ha": None}, {"ha": {"watchdog": None}}, {"ha": {"lint": {"ignore": []}}}):
        assert watchdog.parse(opts) == watchdog.WatchdogSettings()


@pytest.mark.parametrize(
    ("ha", "said"),
    [
        ({"watchdog": {"intervall": 5}}, "unknown key 'intervall'; did you mean 'interval'?"),
        ({"watchdog": {"interval": "5"}}, "interval: '5' takes seconds from"),
        ({"watchdog": {"interval": True}}, "interval: True takes seconds"),
        ({"watchdog": {"failures": 0}}, "failures: 0 takes a whole number from 1"),
        ({"watchdog": {"failback": "yes"}}, "failback: 'yes' takes true or false"),
        ({"watchdog": {"interval": 2, "timeout": 3}}, "timeout: 3 is longer than interval: 2"),
        ({"watchdog": []}, "ha: watchdog: takes a mapping, not list"),
        ({"watchdogs": {}}, "ha: unknown key 'watchdogs'; did you mean 'watchdog'?"),
        (5, "ha: takes a mapping, not int"),
    ],
)
def test_a_wrong_setting_is_named(ha: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        watchdog.parse({"ha": ha, "conf_file": "/etc/salt/minion"})
    assert said in str(caught.value)
    assert str(caught.value).startswith("/etc/salt/minion: ")


@pytest.mark.parametrize("option", ["auth_timeout", "acceptance_wait_time"])
def test_a_wait_of_salt_that_is_none_is_named(option: str) -> None:
    for wrong in ("soon", [5], {"s": 5}):
        with pytest.raises(ConfigError, match=f"/etc/salt/minion: {option}: .* takes seconds"):
            watchdog.parse({option: wrong, "conf_file": "/etc/salt/minion"})
    for right in (None, 0, 7, "7", 7.5):
        watchdog.parse({option: right})


@pytest.mark.parametrize("option", ["random_master", "master_shuffle"])
def test_nobody_is_preferred_by_chance(option: str) -> None:
    opts = {"ha": {"watchdog": {"failback": True}}, option: True}
    with pytest.raises(ConfigError, match=f"{option}: true, which leaves no master"):
        watchdog.parse(opts)


# -- the journal


def test_the_journal_remembers_and_forgets(tmp_path: Path) -> None:
    book = Journal(tmp_path)
    assert book.last() is None
    for number in range(journal.KEEP * 3):
        book.add(RecordedMove(float(number), M1, M2, "no answer"))
    entries = book.read()
    assert journal.KEEP <= len(entries) <= 2 * journal.KEEP
    assert book.last() == RecordedMove(float(journal.KEEP * 3 - 1), M1, M2, "no answer")
    with book.path.open("a") as file:
        file.write('{"at": 1')  # a crash while writing
    assert book.last() == entries[-1]


def test_what_another_release_wrote_is_read(tmp_path: Path) -> None:
    book = Journal(tmp_path)
    old = RecordedMove(10, M1, M2, "no answer", 2.0)
    book.add(old)
    with book.path.open("a") as file:
        line = {"at": 20, "source": M2, "target": M1, "why": "no answer", "weather": "fine"}
        file.write(f"{json.dumps(line)}\n[]\n7\n")
    assert book.read() == [old, RecordedMove(20, M2, M1, "no answer")]


def test_starts_and_reconnections_are_no_switches() -> None:
    entries = [
        RecordedMove(10, M1, M2, "no answer"),
        RecordedMove(20, None, M2, journal.STARTED),
        RecordedMove(30, M2, M2, "not subscribed"),
        RecordedMove(40, M2, M1, journal.SEEN),
    ]
    assert journal.switches(entries, since=0) == 2
    assert journal.switches(entries, since=15) == 1


def test_since_when_the_minion_is_with_its_master() -> None:
    came = RecordedMove(20, M1, M2, "no answer")
    again = RecordedMove(40, None, M2, journal.STARTED)
    failed = RecordedMove(50, None, M2, f"{journal.FAILED}: may not")
    entries = [RecordedMove(10, None, M1, journal.STARTED), came, again, failed]
    for started, known in ((0, 20), (20, 20), (30, 40), (45, None)):
        assert journal.since(entries, M2, started) == known, started
    assert journal.since(entries, M1, 0) is None
    assert journal.since([], M1, 0) is None
    assert journal.since([came, RecordedMove(30, M2, M2, "not subscribed")], M2, 0) == 30


# -- where the minion is


def bound(*seen: Link, last: str | None = None, entries: tuple[str, ...] = (M1, M2)) -> Any:
    running = Running(entries, listed=True, master_type="failover", publish_port=4505)
    master = where(binding.locate(running), running, TcpLinks(frozenset(seen)), last)
    return master and (master.configured, master.connected)


def test_it_is_where_it_holds_both_connections() -> None:
    assert bound((M2, 4505), (M2, 4506)) == (M2, True)


def test_a_publisher_that_was_left_behind_does_not_count() -> None:
    assert bound((M1, 4505), (M2, 4505), (M2, 4506), last=M1) == (M2, True)


def test_a_publisher_alone_is_enough() -> None:
    assert bound((M2, 4505), last=M1) == (M2, True)


def test_asking_without_listening_is_told() -> None:
    assert bound((M2, 4506), last=M2) == (M2, False)
    assert bound((M2, 4506), (M1, 4505), last=M2) == (M2, False)


def test_without_connections_it_is_where_it_was() -> None:
    assert bound(last=M1) == (M1, False)
    assert bound() is None


def test_two_masters_on_one_address_are_told_apart_by_the_request_port() -> None:
    entries = (f"{M1}:4506", f"{M1}:4516")
    seen = ((M1, 4505), (M1, 4516))
    assert bound(*seen, entries=entries, last=entries[0]) == (entries[1], True)


# -- what the watchdog remembers of changes that it did not make


def test_changes_by_others_are_noted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(run, "tell", lambda *what: told.append(what[1:]))
    watch = run.Watch(place(), watchdog.WatchdogSettings(), Journal(tmp_path), {"id": "web1"})
    seen: list[str | None] = []
    tidied: list[str | None] = []
    monkeypatch.setattr(watch.place.mover, "tidy", lambda masters: tidied.append(seen[-1]))
    monkeypatch.setattr(
        watch.place.looker,
        "look",
        lambda ask: WatchdogLook(len(seen), seen[-1], True, {M1: True, M2: True}),
    )
    for current in (None, M1, M1, None, M2, M2):  # None: Salt is on its way
        seen.append(current)
        watch.turn()
    kinds = [(each.source, each.target, each.why) for each in watch.journal.read()]
    assert kinds == [(None, M1, journal.STARTED), (M1, M2, journal.SEEN)]
    assert told == [("web1", M1, M2, journal.SEEN)]
    assert set(tidied) == {M1, M2}


# -- what is asked of ha.failover


def place(kind: str = "failover", **opts: Any) -> run.Site:
    base = {"id": "web1", "master": [M1, M2], "master_type": kind, "publish_port": 4505}
    base |= {"multimaster": True}
    found = run.site(base | opts, lambda: TcpLinks(frozenset()), 0.2)
    assert found.looker.opts
    return found


def test_a_hot_minion_cannot_be_moved() -> None:
    hot = r"this minion is bound to all its masters at once \(hot-hot\); only one with"
    with pytest.raises(HaError, match=hot):
        request.plan(place("str"), None)
    with pytest.raises(HaError, match="this minion has master_type 'func'; only one with"):
        request.plan(place("func"), None)


def test_a_minion_without_a_master_has_nowhere_to_come_from() -> None:
    quiet = place(master=["127.0.0.1:9", "127.0.0.2:9"])
    with pytest.raises(HaError, match="connected to none of its masters"):
        request.plan(quiet, None)


class Shown:
    """What a look shows: the current master, who answers, and who would not let the minion in."""

    def __init__(
        self, current: str, answers: Collection[str], refusals: Mapping[str, AuthRefusal]
    ) -> None:
        self.current, self.answers, self.refusals = current, answers, refusals
        self.notes = dict.fromkeys((M1, M2, M3), "timed out")

    def look(self, ask: Collection[str]) -> WatchdogLook:
        return WatchdogLook(1.0, self.current, True, {each: each in self.answers for each in ask})

    def refusal(self, entry: str) -> AuthRefusal | None:
        return self.refusals.get(entry)


NO, NEVER = AuthRefusal("its key is denied"), AuthRefusal("its key is pending", final=True)


def planned(
    current: str,
    to: str | None,
    answers: Collection[str],
    refusals: Mapping[str, AuthRefusal] | None = None,
    masters: Collection[str] = (M1, M2, M3),
    **opts: Any,
) -> str:
    shown = Shown(current, answers, refusals or {})
    site = replace(place(master=list(masters), **opts), looker=shown)  # type: ignore[arg-type]
    found = request.plan(site, to)
    assert found.source == current
    return found.target


def test_the_next_one_that_answers() -> None:
    assert planned(M1, None, (M1, M2, M3)) == M2
    assert planned(M1, None, (M1, M3)) == M3
    with pytest.raises(HaError, match=f"no other master answers \\({M2}: timed out; {M3}: timed"):
        planned(M1, None, (M1,))


def test_whoever_is_there_already_stays() -> None:
    """Whether that master answers or would let it in does not matter."""
    assert planned(M1, M1, (M2, M3), {M1: NO, M2: NEVER}) == M1
    assert planned(M3, M3, (M1, M2), {M3: NO, M1: NEVER}) == M3


@pytest.mark.parametrize("wrong", [2, 1.5, True, "", ["m2"], {"m2": 1}])
def test_what_is_no_name_is_told(wrong: Any) -> None:
    """Salt reads ``to=2`` as a number."""
    with pytest.raises(HaError, match=f"to: .* is none of this minion's masters: {M1}, {M2}"):
        planned(M1, wrong, (M1, M2))


def test_the_way_leads_past_others() -> None:
    with pytest.raises(HaError, match=f"on the way to {M3} Salt tries {M2}, which would keep"):
        planned(M1, M3, (M1, M2, M3), {M2: NEVER})
    assert planned(M1, M3, (M1, M2, M3), {M2: NO}) == M3
    assert planned(M1, M3, (M1, M3), {M2: NEVER}) == M3, "it is not there"
    assert planned(M1, M3, (M1, M2, M3)) == M3
    kept = [M3, M1, M2]  # after it has been moved
    assert planned(M2, M1, (M1, M2, M3), {M3: NEVER}, local_masters=kept) == M1
    # Only to the first one Salt goes directly.
    with pytest.raises(HaError, match=f"Salt tries {M3}"):
        planned(M1, M2, (M1, M2, M3), {M3: NEVER}, local_masters=[M3, M2, M1])


def test_with_ports_salt_begins_with_the_first_each_time() -> None:
    one, two, three = masters = [f"{each}:4507" for each in (M1, M2, M3)]
    why = f"{three} cannot be reached: as its masters are written.* and takes {one}"
    with pytest.raises(HaError, match=why):
        planned(two, three, masters, masters=masters)
    assert planned(two, three, masters, {one: NO, two: NO}, masters) == three
    assert planned(two, three, (three,), masters=masters) == three
    assert planned(three, one, masters, masters=masters) == one


def test_who_is_meant_by_to() -> None:
    site = place(master=[f"{M1}:4507", M2, f"{M2}:4510"])
    assert request._named(site, f"{M1}:4507") == f"{M1}:4507"
    assert request._named(site, M1) == f"{M1}:4507"
    with pytest.raises(HaError, match="names more than one of"):
        request._named(site, M2)
    with pytest.raises(HaError, match=f"'10.9.9.9' is none of this minion's masters: {M1}:4507"):
        request._named(site, "10.9.9.9")
    with pytest.raises(HaError, match="takes an entry as its configuration has it, the address"):
        request._named(site, "m2.invalid")
    # A name of a master, where the configuration has its address.
    assert request._named(place(master=["127.0.0.1", M2]), "localhost") == "127.0.0.1"


def test_a_master_may_be_called_by_the_first_part_of_its_host() -> None:
    """Often that is what it is called in its group, and the name service knows the whole only."""
    site = place(master=["salt-a.one.invalid", "salt-b.one.invalid:4507", "salt-b.two.invalid", M1])
    assert request._named(site, "salt-a") == "salt-a.one.invalid"
    assert request._named(site, "salt-b.one.invalid") == "salt-b.one.invalid:4507"
    with pytest.raises(HaError, match="'salt-b' names more than one of"):
        request._named(site, "salt-b")
    for wrong in ("salt", "salt-a.one", M1.partition(".")[0], ""):
        with pytest.raises(HaError, match="is none of this minion's masters"):
            request._named(site, wrong)


def test_a_master_is_called_as_in_its_group_where_the_minion_was_told() -> None:
    names = {"m1": M1, "m2": f"{M2}:4510", "gone": "10.9.9.9", M3: M2, 5: [M1]}
    site = place(master=[M1, f"{M2}:4510", M3], ha_masters=names)
    assert request._named(site, "m1") == M1
    assert request._named(site, "m2") == f"{M2}:4510"
    assert request._named(site, M3) == M3, "what is written in master: comes first"
    for wrong in ("gone", "5", "m3"):
        with pytest.raises(HaError, match=f"'{wrong}' is none of this minion's masters: "):
            request._named(site, wrong)
    assert request._named(place(master=[M1], ha_masters={"m1": M1}), "m1") == M1
    for nonsense in (None, "m1", ["m1"]):
        with pytest.raises(HaError, match="ha_masters: of its configuration"):
            request._named(place(master=[M1, M2], ha_masters=nonsense), "m1.invalid")


def test_what_to_takes_is_listed() -> None:
    site = place(master=["localhost:4507", "salt-b.invalid", M1])
    listed = "masters: localhost:4507 (127.0.0.1), salt-b.invalid, 10.0.0.1; "
    with pytest.raises(HaError) as told:
        request._named(site, "m3")
    assert listed in str(told.value).replace("::1, ", "")
    assert "first part" in str(told.value)
    assert "salt-run ha.peers" in str(told.value)
