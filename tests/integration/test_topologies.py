"""``ha.current_master`` where minions find their master in other ways than a list of addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import Lab, Master, Minion, wait_for
from tests.integration.conftest import MakeLab

pytestmark = [pytest.mark.timeout(240), pytest.mark.core]

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
    ``m2`` by IPv4, ``six`` on ::1, ``tcp`` by another transport, and a minion for each way to find
    a master.
    """

    m2: Master
    six: Master
    tcp: Master
    by_ipv6: Minion
    by_function: Minion
    by_name: Minion
    by_tcp: Minion


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        m2 = lab.add_master("m2", engine=False)
        six = lab.add_master("six", engine=False, config={"ipv6": True}, address="::1")
        tcp = lab.add_master("tcp", engine=False, config={"transport": "tcp"})
        modules = lab.root / "modules"
        modules.mkdir()
        (modules / "whereabouts.py").write_text(MODULE.format(address=m2.address))
        minions = minions_of(lab, m2, six, tcp, str(modules))
        names = NAMES.format(name=NAME, addresses=[lab.new_address(), m2.address])
        (modules / "sitecustomize.py").write_text(names)
        path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
        minions[2].daemon.env["PYTHONPATH"] = path
        for minion in minions:
            for master in minion.masters:
                master.plant("minions", minion.name, minion.pub)
        lab.start_all()
        yield Site(m2, six, tcp, *minions)


def minions_of(lab: Lab, m2: Master, six: Master, tcp: Master, modules: str) -> list[Minion]:
    function = {"master": "whereabouts.address", "master_type": "func", "module_dirs": [modules]}
    return [
        lab.add_minion("by_ipv6", [six], config={"master": "::1", "ipv6": True}),
        lab.add_minion("by_function", [m2], config=function),
        lab.add_minion("by_name", [m2], config={"master": NAME}),
        lab.add_minion("by_tcp", [tcp], config={"transport": "tcp"}),
    ]


def ask(masters: list[Master], minion: Minion) -> tuple[Master, dict[str, Any]]:
    """Who of *masters* reaches *minion*, and what it says then."""

    def answer() -> Any:
        for master in masters:
            data = master.salt(minion.name, "ha.current_master", ping=True).data
            if data and isinstance(data.get(minion.name), dict):
                return master, data[minion.name]
        return None

    found: tuple[Master, dict[str, Any]] = wait_for(answer, 60, f"{minion.name} answers")
    return found


def test_ipv6(site: Site) -> None:
    _, answer = ask([site.six], site.by_ipv6)
    assert (answer["address"], answer["connected"], answer["type"]) == ("::1", True, "str")
    assert answer["ping"]["answers"] is True


def test_a_function(site: Site) -> None:
    _, answer = ask([site.m2], site.by_function)
    assert (answer["address"], answer["connected"]) == (site.m2.address, True)
    assert answer["type"] == "func"


def test_a_name_with_several_addresses(site: Site) -> None:
    """Nobody serves the first one."""
    _, answer = ask([site.m2], site.by_name)
    assert (answer["address"], answer["masters"]) == (NAME, [NAME])
    assert (answer["connected"], answer["type"]) == (True, "str")
    assert answer["ping"]["answers"] is True
    assert "note" not in answer


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
