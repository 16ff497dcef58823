"""What is said when a minion's connections do not fit together."""

from __future__ import annotations

import pytest

from saltext_ha.minion import binding
from saltext_ha.minion.binding import Running
from saltext_ha.minion.evidence import remark
from saltext_ha.minion.tcp_links import Link, TcpLinks

pytestmark = pytest.mark.core

M1, M2 = "10.0.0.1", "10.0.0.2"
NO, YES = {"answers": False}, {"answers": True}


def said(*seen: Link, ping: dict[str, bool] | None = None, kind: str = "failover") -> str | None:
    """About M2, which the minion of M1 and M2 takes for its master."""
    told = {(M1, 4506): 4505, (M2, 4506): 4505}
    running = Running((M1, M2), True, kind, host=M2, ip=M2, port=4506, told=told)
    links = TcpLinks(frozenset(seen))
    known = binding.masters(running, links)
    (current,) = (each for each in known if each.current)
    return remark(current, known, links, running, ping)


def test_what_fits_needs_no_words() -> None:
    assert said((M2, 4505), (M2, 4506)) is None
    assert said((M2, 4505), (M2, 4506), ping=YES) is None
    assert said() is None
    assert said(ping=NO) is None
    # Salt is on its way from M1 to M2, or M2 is gone: nothing contradicts that.
    assert said((M1, 4505)) is None
    assert said((M1, 4505), ping=NO) is None


def test_connected_but_silent() -> None:
    assert said((M2, 4505), ping=NO) == f"connected to {M2}, but it does not answer"


def test_authenticated_here_subscribed_there() -> None:
    expected = f"authenticated to {M2}, subscribed to {M1}: jobs of {M2} are lost"
    assert said((M2, 4506), (M1, 4505)) == expected
    assert said((M1, 4505), ping=YES) == expected


def test_not_subscribed_at_all() -> None:
    expected = f"authenticated to {M2}, but not subscribed to it: jobs of {M2} are lost"
    assert said((M2, 4506)) == expected
    assert said((M2, 4506), ping=NO) == expected
    expected = f"{M2} answers, but the minion is not subscribed to it: jobs of {M2} are lost"
    assert said(ping=YES) == expected


def test_a_hot_minion_is_rightly_subscribed_to_others_too() -> None:
    expected = f"authenticated to {M2}, but not subscribed to it: jobs of {M2} are lost"
    assert said((M2, 4506), (M1, 4505), kind="str") == expected
    expected = f"{M2} answers, but the minion is not subscribed to it: jobs of {M2} are lost"
    assert said((M1, 4505), ping=YES, kind="str") == expected


def rows(running: Running, *seen: Link) -> dict[str | None, str | None]:
    links = TcpLinks(frozenset(seen))
    known = binding.masters(running, links)
    return {each.configured: remark(each, known, links, running) for each in known}


def test_every_master_of_a_hot_minion_has_its_remark() -> None:
    told = {(M1, 4506): 4505, (M2, 4506): 4505}
    running = Running((M1, M2), True, host=M2, ip=M2, port=4506, told=told)
    expected = f"authenticated to {M1}, but not subscribed to it: jobs of {M1} are lost"
    assert rows(running, (M1, 4506), (M2, 4505), (M2, 4506)) == {M1: expected, M2: None}


# -- asked by salt-call, which the running minion's master has not sent


def test_salt_call_says_it_of_a_minion_that_hears_no_job() -> None:
    """salt-call itself went to M1, so it knows the publish port of that one only."""
    running = Running(
        (M1, M2), True, "failover", host=M1, ip=M1, port=4506, told={(M1, 4506): 4505}, caller=True
    )
    expected = f"authenticated to {M2}, subscribed to {M1}: jobs of {M2} are lost"
    assert rows(running, (M2, 4506), (M1, 4505)) == {M1: None, M2: expected}
    assert rows(running, (M2, 4506), (M2, 4505)) == {M1: None, M2: None}


def test_salt_call_and_a_port_map_that_lacks_the_publishers_line() -> None:
    entries = (f"{M1}:4506", f"{M1}:4516")
    told = {(M1, 4506): 4505}
    running = Running(entries, True, "failover", host=M1, ip=M1, port=4506, told=told, caller=True)
    expected = f"authenticated to {entries[1]}, subscribed to {entries[0]}: "
    found = rows(running, (M1, 4516), (M1, 4505))
    assert found == {entries[0]: None, entries[1]: f"{expected}jobs of {entries[1]} are lost"}


def test_one_publish_port_of_the_minion_for_two_masters_on_one_address() -> None:
    entries = (f"{M1}:4506", f"{M1}:4516")
    running = Running(entries, True, "failover", publish_port=4505, caller=True)
    found = rows(running, (M1, 4516), (M1, 4505))
    assert "request ports 4516 and 4506 of 10.0.0.1 are both to publish at 4505" in str(
        found[entries[1]]
    )
    assert rows(Running((M1, M2), True, publish_port=4505), (M1, 4506), (M1, 4505))[M1] is None


@pytest.mark.parametrize(("second", "wrong"), [(4505, True), (4515, False)])
def test_a_port_map_without_the_publishers_port(second: int, wrong: bool) -> None:
    entries = (f"{M1}:4506", f"{M1}:4516")
    told = {(M1, 4506): 4505, (M1, 4516): second}
    running = Running(entries, True, host=M1, ip=M1, port=4516, told=told)
    links = TcpLinks(frozenset({(M1, 4505), (M1, 4515)}))
    (current,) = (each for each in binding.masters(running, links) if each.current)
    note = remark(current, [], links, running)
    assert bool(note) is wrong
    if note:
        assert "request ports 4516 and 4506" in note
