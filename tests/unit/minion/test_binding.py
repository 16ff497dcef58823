"""Which masters a minion knows, and which connection proves what: without daemons."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.common.addresses import bare_ip
from saltext_ha.minion import binding
from saltext_ha.minion.binding import Running
from saltext_ha.minion.tcp_links import TcpLinks

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"


def hot(**values: Any) -> Running:
    """A hot-hot minion of M1 and M2 that M2 asked."""
    told = {(M1, 4506): 4505, (M2, 4506): 4505}
    usual: dict[str, Any] = {"entries": (M1, M2), "listed": True, "told": told}
    return Running(**(usual | {"host": M2, "ip": M2, "port": 4506} | values))


def links(*seen: tuple[str, int]) -> TcpLinks:
    return TcpLinks(frozenset(seen))


# -- reading what is configured


@pytest.mark.parametrize(
    ("entry", "host", "port"),
    [
        ("salt", "salt", 4506),
        ("salt:4508", "salt", 4508),
        ("10.0.0.1", "10.0.0.1", 4506),
        ("10.0.0.1:4508", "10.0.0.1", 4508),
        ("fe80::a00:27ff:fedc:ba98", "fe80::a00:27ff:fedc:ba98", 4506),
        ("[::1]", "::1", 4506),
        ("[::1]:4508", "::1", 4508),
        ("[2001:DB8:0::1]:4508", "2001:db8::1", 4508),
        ("2001:db8:0:0::1", "2001:db8::1", 4506),
        (" m1.example ", "m1.example", 4506),
    ],
)
def test_entries_are_read_as_salt_reads_them(entry: str, host: str, port: int) -> None:
    assert binding.split_entry(entry, 4506) == (host, port)


@pytest.mark.parametrize(
    "entry", ["", ":4506", "m1:x", "m1:0", "m1:65536", "[::1", "[::1]x", "sdb://ma/ster", "m1, m2"]
)
def test_what_is_no_master_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        binding.split_entry(entry, 4506)


@pytest.mark.parametrize(
    ("text", "ip"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("m1.example", None),
        ("", None),
    ],
)
def test_addresses_are_compared_in_one_spelling(text: str, ip: str | None) -> None:
    assert bare_ip(text) == ip


def test_publish_ports_come_from_salts_credentials() -> None:
    creds = {
        ("/pki", "web1", "tcp://10.0.0.1:4506", "1.5"): {"publish_port": 4505, "aes": "secret"},
        ("/pki", "web1", "tcp://[::1]:4508", "1.5"): {"publish_port": "4507"},
        ("/pki", "web1", "tcp://10.0.0.3:4506"): {"aes": "secret"},
        ("/pki", "web1", "tcp://:::", "0"): {"publish_port": 1},
        ("/pki",): None,
    }
    assert binding.told_ports(creds) == {("10.0.0.1", 4506): 4505, ("::1", 4508): 4507}


def test_a_list_with_type_str_is_called_list() -> None:
    assert Running(("m1",)).type == "str"
    assert Running(("m1",), listed=True).type == "list"
    assert Running(("m1",), listed=True, master_type="failover").type == "failover"


# -- what the connections prove


def test_each_hot_master_is_judged_by_itself() -> None:
    rows = binding.masters(hot(), links((M1, 4506), (M2, 4505), (M2, 4506)))
    assert [(row.host, row.current, row.connected) for row in rows] == [
        (M1, False, False),  # a request connection is no subscription
        (M2, True, True),
    ]


def test_a_hot_minion_that_nobody_asked_is_bound_to_the_only_one_that_it_hears() -> None:
    running = Running((M1, M2), listed=True, told={(M1, 4506): 4505, (M2, 4506): 4505})
    rows = binding.masters(running, links((M1, 4505), (M2, 4506)))
    assert [row.current for row in rows] == [True, False]
    rows = binding.masters(running, links((M1, 4505), (M2, 4505), (M2, 4506)))
    assert [row.current for row in rows] == [False, False]


def test_masters_on_one_address_are_told_apart_by_their_ports() -> None:
    running = hot(
        entries=(f"{M1}:4506", f"{M1}:4508"),
        told={(M1, 4506): 4505, (M1, 4508): 4507},
        host=M1,
        ip=M1,
        port=4508,
    )
    answer, current = binding.current_master(running, links((M1, 4505)))
    assert (answer["port"], answer["publish_port"], answer["connected"]) == (4508, 4507, False)
    assert current is not None
    assert current.configured == f"{M1}:4508"
    assert [row.connected for row in binding.masters(running, links((M1, 4505)))] == [True, False]


def test_a_request_port_of_before_is_no_publisher() -> None:
    """It authenticated there once; the configuration has another port by now."""
    running = hot(entries=(M1, M2), told={(M1, 4510): 4515})
    rows = binding.masters(running, links((M1, 4510)))
    assert (rows[0].connected, rows[0].publish_port) == (False, None)
    rows = binding.masters(running, links((M1, 4510), (M1, 4505)))
    assert (rows[0].connected, rows[0].publish_port) == (True, 4505)


def test_the_minions_own_publish_port_is_what_salt_connects_to() -> None:
    (row, _) = binding.masters(hot(publish_port=5505), links((M1, 5505)))
    assert (row.publish_port, row.connected) == (5505, True)


def test_names_are_resolved_to_compare_and_shown_as_written() -> None:
    running = Running(("localhost:4506",), told={("127.0.0.1", 4506): 4505})
    (row,) = binding.masters(running, links(("127.0.0.1", 4505)))
    assert (row.configured, row.host, row.connected) == ("localhost:4506", "localhost", True)


def test_the_address_that_salt_resolved_counts_for_the_current_master() -> None:
    running = Running(
        ("no-such-name.invalid",), host="no-such-name.invalid", ip=M1, port=4506, publish_port=4505
    )
    answer, _ = binding.current_master(running, links((M1, 4505)))
    assert (answer["address"], answer["connected"]) == ("no-such-name.invalid", True)


def test_ipv6() -> None:
    running = Running(("[2001:db8::1]:4506",), host="2001:db8::1", ip="2001:db8::1", port=4506)
    told = binding.told_ports({("tcp://[2001:db8::1]:4506",): {"publish_port": 4505}})
    running = Running(**(vars(running) | {"told": told}))
    answer, _ = binding.current_master(running, links(("2001:db8::1", 4505)))
    assert (answer["address"], answer["connected"]) == ("2001:db8::1", True)
    assert "note" not in answer


def test_the_names_of_other_masters_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    monkeypatch.setattr(binding, "resolve", lambda host: looked_up.append(host) or frozenset())
    running = hot(entries=("m1.example", M2))
    assert binding.current_master(running, links((M2, 4505)))[0]["connected"] is True
    assert looked_up == []
    binding.masters(running, links((M2, 4505)))
    assert looked_up == ["m1.example"]


def test_a_name_that_does_not_resolve_is_unknown() -> None:
    running = Running(("no-such-name.invalid",))
    (row,) = binding.masters(running, links((M1, 4505)))
    assert row.connected is None
    assert "does not resolve" in str(row.note)
    answer, _ = binding.current_master(running, links((M1, 4505)))
    assert (answer["connected"], answer["id"]) == (None, None)
    assert answer["note"] == f"no-such-name.invalid: {row.note}"


def test_a_nonsense_entry_does_not_hide_the_others() -> None:
    first, second = binding.masters(hot(entries=("sdb://x/y", M2)), links((M2, 4505)))
    assert (first.configured, first.connected) == ("sdb://x/y", None)
    assert "no host" in str(first.note)
    assert second.connected is True


def test_invisible_connections_are_unknown() -> None:
    answer, _ = binding.current_master(hot(), TcpLinks(None, "may not look"))
    assert (answer["connected"], answer["note"]) == (None, "may not look")


def test_an_unknown_publish_port_is_guessed_only_where_it_cannot_be_another() -> None:
    running = hot(told={(M2, 4506): 4505})
    for seen, connected, port in (
        ((M1, 4505), True, 4505),
        ((M1, 4506), False, None),
        ((M1, 6379), None, None),
        ((M2, 4505), False, None),
    ):
        first, _ = binding.masters(running, links(seen))
        assert (first.connected, first.publish_port) == (connected, port), seen
        assert (first.note is None) == (connected is True)


def test_the_publisher_of_another_master_on_the_address_proves_nothing() -> None:
    running = called(entries=(f"{M1}:4506", f"{M1}:4508"))
    first, second = binding.masters(running, links((M1, 4505), (M1, 4506)))
    assert (first.connected, second.connected) == (True, False)
    first, second = binding.masters(running, links((M1, 4507)))
    assert (first.connected, second.connected) == (False, None)


def test_a_master_that_left_the_configuration_is_still_shown() -> None:
    rows = binding.masters(hot(entries=(M1,)), links((M2, 4505)))
    assert [(row.host, row.configured, row.current) for row in rows] == [
        (M1, M1, False),
        (M2, None, True),
    ]
    assert "not in the minion's configuration" in str(rows[1].note)


# -- salt-call


def called(**values: Any) -> Running:
    """salt-call on a failover minion; salt-call itself spoke to M1."""
    told = {(M1, 4506): 4505}
    usual: dict[str, Any] = {"master_type": "failover", "caller": True, "told": told}
    return hot(**(usual | {"host": M1, "ip": M1} | values))


def test_salt_call_follows_the_running_minion() -> None:
    answer, _ = binding.current_master(called(), links((M2, 4505), (M2, 4506)))
    assert (answer["address"], answer["port"], answer["connected"]) == (M2, 4506, True)


def test_salt_call_goes_by_where_the_minion_authenticated() -> None:
    """Its publisher's connection may lead elsewhere, or be one that was left behind (3007)."""
    for seen, connected in (
        (((M2, 4506), (M1, 4505)), False),
        (((M2, 4506), (M2, 4505), (M1, 4505)), True),
        (((M2, 4506),), False),
    ):
        answer, current = binding.current_master(called(), links(*seen))
        assert (answer["address"], answer["connected"]) == (M2, connected), seen
        assert current is not None
    # A job in a thread of the minion just pings all of them.
    answer, _ = binding.current_master(called(), links((M1, 4506), (M2, 4506), (M2, 4505)))
    assert (answer["address"], answer["connected"]) == (M2, True)


@pytest.mark.parametrize("kind", ["str", "failover"])
def test_salt_call_may_go_to_another_address_of_the_name(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two masters behind one name; the first was dead when the minion started."""
    monkeypatch.setattr(binding, "resolve", lambda host: frozenset({M1, M2}))
    running = called(entries=("salt",), host="salt", listed=kind != "str", master_type=kind)
    answer, _ = binding.current_master(running, links((M2, 4506), (M2, 4505)))
    assert (answer["address"], answer["ip"], answer["connected"]) == ("salt", M2, True)
    assert "note" not in answer


def test_the_address_is_told_where_it_can_be() -> None:
    name = binding.SeenMaster("salt", "salt", 4506, frozenset({M1, M2}), publish_port=4505)
    for seen, ip in (
        (((M1, 4505),), M1),
        (((M2, 4506),), M2),
        (((M1, 4505), (M2, 4506)), M1),  # jobs come from there
        (((M1, 4505), (M2, 4505)), None),
        ((), None),
    ):
        assert binding.judge(name, links(*seen), hot()).ip == ip, seen
    assert binding.masters(hot(), links())[0].row()["ip"] == M1


def test_salt_call_shows_the_masters_of_the_minion_and_not_its_own() -> None:
    def rows(running: Running, *seen: tuple[str, int]) -> list[tuple[str | None, bool]]:
        return [(row.configured, row.current) for row in binding.masters(running, links(*seen))]

    assert rows(called(), (M2, 4505)) == [(M1, False), (M2, True)]
    # salt-call spoke to M1, which the configuration does not name any more.
    assert rows(called(entries=(M2,)), (M2, 4505)) == [(M2, True)]
    assert rows(called(entries=(M2,)), (M1, 4505)) == [(M2, False), (None, True)]


def test_salt_call_sees_a_minion_without_a_master() -> None:
    answer, current = binding.current_master(called(), links())
    assert current is None
    assert (answer["address"], answer["connected"]) == (None, False)
    assert "none of its masters" in answer["note"]


def test_salt_call_does_not_choose_between_two() -> None:
    answer, current = binding.current_master(called(), links((M1, 4505), (M2, 4505)))
    assert current is None
    assert answer["connected"] is None
    assert f"{M1}, {M2}" in answer["note"]


def test_salt_call_knows_a_master_under_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = binding.resolve
    monkeypatch.setattr(binding, "resolve", lambda host: resolve(M1 if host == "m1" else host))
    running = called(entries=("m1", M1, M2), host="m1")
    answer, _ = binding.current_master(running, links((M1, 4505), (M1, 4506)))
    assert (answer["address"], answer["ip"], answer["connected"]) == ("m1", M1, True)
    assert "note" not in answer


def test_salt_call_on_a_hot_minion_names_the_master_it_spoke_to() -> None:
    answer, _ = binding.current_master(called(master_type="str"), links((M2, 4505)))
    assert (answer["address"], answer["connected"]) == (M1, False)


@pytest.mark.parametrize(
    ("running", "note"),
    [
        (Running(("salt",), master_type="disable"), "connects to no master"),
        (Running(()), "no master is configured"),
        (Running((M1,), note="cannot read /x"), "cannot read /x"),
    ],
)
def test_no_master_is_a_clear_answer(running: Running, note: str) -> None:
    answer, current = binding.current_master(running, TcpLinks(None))
    assert current is None
    assert (answer["address"], answer["connected"]) == (None, None)
    assert note in answer["note"]
    if running.master_type == "disable":
        assert binding.masters(running, TcpLinks(None)) == []


def test_two_ports_that_may_be_a_publishers_are_one_too_many() -> None:
    # M2 was never authenticated with; 4505 is the usual port, 4515 that of M1.
    running = Running((M1, M2), True, told={(M1, 4506): 4515})
    _, second = binding.masters(running, links((M1, 4515), (M2, 4505), (M2, 4515)))
    assert (second.connected, second.publish_port) == (None, None)
    assert "connected to port 4505, 4515 there" in str(second.note)


def test_a_name_behind_which_are_two_masters_has_no_publish_port_of_its_own() -> None:
    master = binding.SeenMaster("both", "both", 4506, frozenset({M1, M2}))
    running = Running(("both",), told={(M1, 4506): 4505, (M2, 4506): 4515})
    assert binding._publish_port(master, running) is None


@pytest.mark.parametrize("entry", ["salt..example.com", "a" * 64 + ".example.com"])
def test_what_can_be_no_name_is_said_and_harms_nobody(entry: str) -> None:
    found = binding._locate(entry, Running((entry,)))
    assert not found.ips
    assert "does not resolve" in str(found.note)
