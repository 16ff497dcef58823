"""What minions say of masters that they find in other ways than by a list of addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from lab.forwarder import Address, Forwarder
from tests.integration.conftest import MakeLab
from tests.integration.group import PATIENT, SOON
from tests.integration.watching import serving
from tests.tools import IPV6

pytestmark = [pytest.mark.core, IPV6]

NAME = "masters.example"

# Nobody may write /etc/hosts for a test; the name service is not what is tested.
NAMES = """
import socket

resolve = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    if host != {name!r}:
        return resolve(host, *args, **kwargs)
    return [each for ip in {addresses!r} for each in resolve(ip, *args, **kwargs)]


socket.getaddrinfo = getaddrinfo
"""

MODULE = """
def address():
    return {address!r}
"""


@dataclass
class Site:
    """
    ``m2`` by IPv4, ``other`` on its address with ports of its own, ``six`` on ::1, ``tcp`` by
    another transport, and a minion for each way to find a master.
    """

    m2: Master
    other: Master
    six: Master
    tcp: Master
    by_ipv6: Minion
    by_ipv6_list: Minion
    by_function: Minion
    by_name: Minion
    by_tcp: Minion
    by_ports: Minion
    mapped: Minion
    far: str
    """The first address of the name, where nobody serves."""
    doors: tuple[Address, Address]
    """Where ``mapped`` sends its requests: the first master of its list, and the second one."""


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        m2 = lab.add_master("m2", engine=False)
        ports = {"publish_port": lab.ports.peer, "ret_port": lab.ports.status}
        other = lab.add_master("other", engine=False, config={"interface": m2.address, **ports})
        other.publish_port, other.ret_port = ports["publish_port"], ports["ret_port"]
        six = lab.add_master("six", engine=False, config={"ipv6": True}, address="::1")
        tcp = lab.add_master("tcp", engine=False, config={"transport": "tcp"})
        m2.share_master_key(other, six)
        modules = lab.root / "modules"
        modules.mkdir()
        (modules / "whereabouts.py").write_text(MODULE.format(address=m2.address))
        doors = (m2.address, lab.ports.api), (m2.address, lab.ports.cluster)
        site = Site(
            *(m2, other, six, tcp),
            *minions_of(lab, m2, other, six, tcp, str(modules), doors),
            *(lab.new_address(), doors),
        )
        names = NAMES.format(name=NAME, addresses=[site.far, m2.address])
        (modules / "sitecustomize.py").write_text(names)
        path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
        for env in (site.by_name.env, site.by_name.daemon.env):
            env["PYTHONPATH"] = path
        for minion in lab.minions.values():
            minion.plant_key()
        masters = list(lab.masters.values())
        lab.start_all(masters)
        # A failover minion passes a master by whose workers do not answer yet.
        serving(*masters)
        lab.start_all([minion for minion in lab.minions.values() if minion is not site.mapped])
        yield site


def minions_of(
    lab: Lab,
    m2: Master,
    other: Master,
    six: Master,
    tcp: Master,
    modules: str,
    doors: tuple[Address, Address],
) -> list[Minion]:
    function = {"master": "whereabouts.address", "master_type": "func", "module_dirs": [modules]}
    # 4506 is Salt's way to say that the masters tell it; for others than 4505 its check of the
    # connection is of no use.
    told = {"publish_port": 4506, "master_alive_interval": 0}
    ports = [f"{master.address}:{master.ret_port}" for master in (other, m2)]
    return [
        lab.add_minion("by_ipv6", [six], config={"master": "::1", "ipv6": True}),
        lab.add_minion("by_ipv6_list", [six], "failover", config={"ipv6": True}),
        lab.add_minion("by_function", [m2], config=function),
        lab.add_minion("by_name", [m2, other], config={"master": NAME}),
        lab.add_minion("by_tcp", [tcp], config={"transport": "tcp"}),
        lab.add_minion("by_ports", [other, m2], "failover", config={"master": ports, **told}),
        lab.add_minion(
            "mapped",
            [m2, six],
            "failover",
            config={"master": [f"{host}:{port}" for host, port in doors], **told},
        ),
    ]


def ask(masters: list[Master], minion: Minion) -> tuple[Master, dict[str, Any]]:
    """Who of *masters* reaches *minion*, and what it says then."""

    def answer() -> Any:
        for master in masters:
            data = master.salt(minion.name, "ha.current_master", "timeout=15", ping=True).data
            if data and isinstance(data.get(minion.name), dict):
                return master, data[minion.name]
        return None

    found: tuple[Master, dict[str, Any]] = wait_for(answer, SOON, f"{minion.name} answers")
    return found


def pinged(master: Master, minion: Minion) -> list[tuple[str, int, bool, bool]]:
    answer = master.salt(minion.name, "ha.ping_masters", "timeout=15", PATIENT)
    rows = answer.check().data[minion.name]
    return [(row["address"], row["port"], row["current"], row["answers"]) for row in rows]


def test_ipv6(site: Site) -> None:
    for minion, kind in ((site.by_ipv6, "str"), (site.by_ipv6_list, "failover")):
        _, answer = ask([site.six], minion)
        assert (answer["address"], answer["connected"], answer["type"]) == ("::1", True, kind)
        assert (answer["ip"], answer["ping"]["answers"]) == ("::1", True)
        assert "note" not in answer
        assert pinged(site.six, minion) == [("::1", site.six.ret_port, True, True)]
    answer = site.by_ipv6_list.salt_call("ha.current_master").check().data
    assert (answer["address"], answer["connected"]) == ("::1", True)


def test_a_function(site: Site) -> None:
    _, answer = ask([site.m2], site.by_function)
    assert (answer["address"], answer["connected"]) == (site.m2.address, True)
    assert answer["type"] == "func"
    assert pinged(site.m2, site.by_function) == [(site.m2.address, site.m2.ret_port, True, True)]
    answer = site.by_function.salt_call("ha.current_master").check().data
    assert (answer["address"], answer["connected"]) == (site.m2.address, True)
    # Only the function knows, which is not asked here; its name is none of a host.
    answer = site.by_function.salt_call("ha.current_master", "--local").check().data
    assert (answer["address"], answer["connected"], answer["masters"]) == (None, None, [])
    assert "what whereabouts.address returns" in answer["note"]
    assert "resolve" not in answer["note"]


def test_a_name_with_several_addresses(site: Site) -> None:
    """Nobody serves the first one when the minion starts; later another master does."""
    _, answer = ask([site.m2], site.by_name)
    assert (answer["address"], answer["masters"]) == (NAME, [NAME])
    assert (answer["connected"], answer["type"]) == (True, "str")
    assert (answer["ip"], answer["ping"]["answers"]) == (site.m2.address, True)
    assert "note" not in answer
    assert pinged(site.m2, site.by_name) == [(NAME, site.m2.ret_port, True, True)]
    with ExitStack() as stack:
        for port, to in (
            (site.m2.ret_port, site.other.ret_port),
            (site.m2.publish_port, site.other.publish_port),
        ):
            stack.enter_context(Forwarder((site.far, port), (site.m2.address, to)))
        # salt-call goes to that one; the minion stays where it is.
        answer = site.by_name.salt_call("ha.current_master").check().data
        assert (answer["address"], answer["ip"]) == (NAME, site.m2.address)
        assert answer["connected"] is True
        assert "note" not in answer


def test_two_masters_on_one_address_and_one_at_a_time(site: Site) -> None:
    m2, other, entries = site.m2, site.other, site.by_ports.opts["master"]
    _, answer = ask([other], site.by_ports)
    assert (answer["address"], answer["port"]) == (m2.address, other.ret_port)
    assert (answer["publish_port"], answer["connected"]) == (other.publish_port, True)
    assert (answer["type"], answer["masters"]) == ("failover", entries)
    assert answer["ping"]["answers"] is True
    assert "note" not in answer
    assert pinged(other, site.by_ports) == [
        (m2.address, other.ret_port, True, True),
        (m2.address, m2.ret_port, False, True),
    ]
    rows = site.by_ports.salt_call("ha.masters", "timeout=15", ping=True).check().data
    assert [(row["configured"], row["current"], row["connected"]) for row in rows] == [
        (entries[0], True, True),
        (entries[1], False, False),
    ]


def test_a_port_map_that_lacks_the_line_of_a_publisher(site: Site) -> None:
    """
    Both masters publish at the same port, each on its host, and the minion reaches them on one
    address: at two request ports, and one publisher's port, which leads to the first master.
    """
    first, second = (f"{host}:{port}" for host, port in site.doors)
    m2, six, mapped = site.m2, site.six, site.mapped
    with ExitStack() as stack:
        door, other_door = (
            stack.enter_context(Forwarder(here, (to.address, to.ret_port)))
            for here, to in zip(site.doors, (m2, six), strict=True)
        )
        assert other_door.target == ("::1", six.ret_port)
        door.refuse()
        mapped.start()
        mapped.wait_ready()
        # Authenticated to the second master, it cannot read what the first one publishes.
        assert six.salt("mapped", "test.ping").data.get("mapped") is not True
        door.accept()
        note = f"authenticated to {second}, subscribed to {first}: jobs of {second} are lost"
        answer = mapped.salt_call("ha.current_master").check().data
        assert (f"{answer['address']}:{answer['port']}", answer["connected"]) == (second, False)
        assert note in answer["note"]
        rows = mapped.salt_call("ha.masters", ping=True).check().data
        assert [row["current"] for row in rows] == [False, True]
        assert [row["connected"] for row in rows] == [True, False]
        assert [note in row.get("note", "") for row in rows] == [False, True]
        mapped.stop()


def test_another_transport(site: Site) -> None:
    _, answer = ask([site.tcp], site.by_tcp)
    assert (answer["address"], answer["connected"]) == (site.tcp.address, True)
    assert answer["publish_port"] == site.tcp.publish_port
    assert answer["ping"]["answers"] is True
    site.tcp.suspend()
    try:
        caller = site.by_tcp.salt_call("ha.masters", "--local", ping=True)
        (row,) = caller.data
        assert (row["connected"], row["ping"]["answers"]) == (True, False)
    finally:
        site.tcp.resume()
