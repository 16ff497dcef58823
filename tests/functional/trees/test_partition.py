"""
T1 of docs/design.md §8 in a real partition: three engines, each on a host of its own, whose cables
are pulled. Packets vanish, and nobody is told.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.engines import Place, befriend
from lab.hosts import Switch
from lab.wait import wait_for
from saltext_ha.common.errors import HaError
from saltext_ha.common.fail_points import VARIABLE
from tests.engines import QUICK
from tests.forked import ForkedEngine
from tests.functional.trees.tree_place import answer_of, carried_out

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's"),
]

NAMES = ("m1", "m2", "m3")
SOON = 120.0
PATIENCE = 5  # seconds that each question to a hidden master takes


class Sites:
    """Three masters, and the switch between them."""

    def __init__(self, root: Path, switch: Switch) -> None:
        self.root, self.switch = root, switch
        self.source = root / "source"
        self.faults = {name: root / f"{name}.faults" for name in NAMES}
        self.places = [
            Place(
                root,
                name,
                {
                    **QUICK,
                    "peer_timeout": PATIENCE,
                    "trees": {"t": {"source": str(self.source), "live": str(root / name / "t")}},
                },
                {"interface": switch.addresses[name]},
            )
            for name in NAMES
        ]
        befriend(*self.places)
        self.engines = {
            place.name: ForkedEngine(
                place, {VARIABLE: str(self.faults[place.name])}, host=switch.host(place.name)
            )
            for place in self.places
        }

    def put(self, text: str) -> None:
        """What is to be deployed next."""
        self.source.mkdir(exist_ok=True)
        (self.source / "top.sls").write_text(text)

    def served(self) -> dict[str, str]:
        """Master → what Salt would read there."""
        return {name: (self.root / name / "t" / "top.sls").read_text() for name in NAMES}

    def see(self, one: str, other: str) -> str:
        """How *one* sees *other*."""
        rows = self.engines[one].control("peers")["peers"]
        return next(str(row["state"]) for row in rows if row["name"] == other)

    def all_meet(self) -> None:
        """Wait until all see each other."""
        pairs = [(one, other) for one in NAMES for other in NAMES if one != other]
        wait_for(lambda: all(self.see(*pair) == "up" for pair in pairs), SOON, "they have met")

    def shown(self, name: str) -> dict[str, Any]:
        """What ``ha.deployments`` on that master says of the tree."""
        answer = self.engines[name].control("deployments")
        return {**answer["trees"][0], "retcode": answer["retcode"]}

    def shows(self, name: str, masters: dict[str, Any], retcode: int) -> None:
        """Wait until ``ha.deployments`` on that master says so of all *masters*."""

        def does() -> bool:
            shown = self.shown(name)
            return (shown["masters"], shown["retcode"]) == (masters, retcode)

        wait_for(does, SOON, f"{name} shows {masters}")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    """They have met, and serve the same."""
    with contextlib.ExitStack() as stack:
        try:
            switch = stack.enter_context(Switch(*NAMES))
        except RuntimeError as exc:
            if not re.search("not permitted|denied", str(exc)):
                raise
            # As in a container.
            pytest.skip(f"this root may make no networks: {exc}")
        sites = Sites(tmp_path, switch)
        try:
            for engine in sites.engines.values():
                engine.launch()
            for engine in sites.engines.values():
                engine.wait_ready()
            sites.all_meet()
            sites.put("first")
            assert carried_out(sites.engines["m1"])["retcode"] == 0
            yield sites
        finally:
            for engine in sites.engines.values():
                engine.kill()


def test_a_master_that_is_hidden_switches_nobody_and_follows(sites: Sites) -> None:
    m1 = sites.engines["m1"]
    sites.switch.pull("m3")
    sites.put("second")
    with pytest.raises(HaError, match="m3"):
        carried_out(m1)
    assert set(sites.served().values()) == {"first"}
    answer = carried_out(m1, without="m3")
    assert (answer["retcode"], answer["left_out"]) == (0, ["m3"])
    assert sites.served() == {"m1": "second", "m2": "second", "m3": "first"}
    sites.shows("m1", {"m1": 2, "m2": 2, "m3": "unknown"}, 2)
    sites.switch.plug("m3")
    wait_for(lambda: sites.served()["m3"] == "second", SOON, "m3 follows")
    sites.all_meet()
    sites.shows("m3", {"m1": 2, "m2": 2, "m3": 2}, 0)


@pytest.mark.parametrize(
    ("hidden", "point"), [("m3", "tree.linked"), ("m3", "tree.record"), ("m1", "tree.decided")]
)
def test_a_master_that_is_hidden_in_the_middle(sites: Sites, hidden: str, point: str) -> None:
    """
    Before all have it, nobody switches; once it is current, all that hear of it do.

    The cable is pulled while that master stands still at *point* of the deployment.
    """
    m1, fault = sites.engines["m1"], sites.faults[hidden]
    sites.put("second")
    fault.write_text(f"STOP {point}")
    job = m1.control("deploy", {"by": "root"})["job"]
    process = psutil.Process(sites.engines[hidden].pid)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED, SOON, "it is there")
    sites.switch.pull(hidden)
    fault.unlink()
    process.resume()
    came, why = dict[str, Any](), ""
    try:
        came = answer_of(m1, job)
    except HaError as exc:
        why = str(exc)
    if why:
        assert hidden in why
        assert set(sites.served().values()) == {"first"}
        sites.switch.plug(hidden)
        sites.all_meet()
        assert carried_out(m1)["retcode"] == 0
    else:
        assert point != "tree.linked"
        assert came["retcode"] == 2
        sites.switch.plug(hidden)
    wait_for(lambda: set(sites.served().values()) == {"second"}, SOON, "all serve the same")


@pytest.mark.parametrize("end", ["deploy", "rollback"])
def test_two_deployments_in_a_partition(sites: Sites, end: str) -> None:
    """Shown everywhere; each goes on serving its own, until somebody decides."""
    m1, m3 = sites.engines["m1"], sites.engines["m3"]
    sites.switch.pull("m3")
    sites.put("of m1 and m2")
    wait_for(lambda: sites.see("m1", "m3") != "up", SOON, "m1 does not reach m3")
    assert carried_out(m1, without="m3")["retcode"] == 0
    sites.put("of m3")
    assert carried_out(m3, without="m1,m2")["retcode"] == 0
    sides = {"m1": "of m1 and m2", "m2": "of m1 and m2", "m3": "of m3"}
    assert sites.served() == sides
    sites.switch.plug("m3")
    for name in NAMES:
        wait_for(lambda name=name: sites.shown(name)["conflict"], SOON, f"{name} shows it")  # type: ignore[misc]
    sites.all_meet()
    for name, engine in sites.engines.items():
        wait_for(lambda name=name: sites.shown(name)["retcode"] == 1, SOON, "it is wrong")  # type: ignore[misc]
        assert [d["number"] for d in sites.shown(name)["deployments"]][:2] == [2, 2]

        def told(engine: ForkedEngine = engine) -> bool:
            notes = [row["note"] for row in engine.control("status")["masters"]]
            return all("different versions were deployed" in note for note in notes)

        wait_for(told, SOON, "it is noted of all")
    assert sites.served() == sides
    if end == "deploy":
        sites.put("the end")
        assert carried_out(sites.engines["m2"])["retcode"] == 0
        wanted = "the end"
    else:
        with pytest.raises(HaError, match="there is a conflict"):
            carried_out(sites.engines["m2"], "rollback")
        assert carried_out(sites.engines["m2"], "rollback", to=1)["retcode"] == 0
        wanted = "first"
    assert set(sites.served().values()) == {wanted}
    for name in NAMES:
        wait_for(lambda name=name: sites.shown(name)["retcode"] == 0, SOON, "it is over")  # type: ignore[misc]
