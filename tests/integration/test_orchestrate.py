"""Orchestrations on one master, with minions that are each connected to one master only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, let_in, meet

pytestmark = pytest.mark.core

STATES = {
    "greet": """
greeting:
  file.managed:
    - name: {root}/greeting-{{{{ grains.id }}}}
    - contents: {{{{ pillar.get('word', 'hello') }}}}
""",
    "fails": "bad: {test.fail_without_changes: []}\n",
    "orch/both": """
greet:
  ha.state:
    - tgt: 'w*'
    - sls: [greet]
    - pillar: {word: good day}
    - batch: 1
ask:
  ha.function:
    - name: test.arg
    - tgt: id:w*
    - tgt_type: grain
    - arg: [one thing]
    - kwarg: {test: true, number: '0123'}
    - batch: 50%
    - require: [{ha: greet}]
""",
    "orch/stops": """
one:
  ha.state: [{tgt: 'w*'}, {sls: fails}]
two:
  ha.function: [{name: test.ping}, {tgt: 'w*'}, {require: [{ha: one}]}]
nobody:
  ha.function: [{name: test.ping}, {tgt: 'x*'}]
mistyped:
  ha.state: [{tgt: 'w*'}, {sls: greet}, {allow_fail: some}]
tolerant:
  ha.state: [{tgt: 'w*'}, {sls: fails}, {fail_minions: 'w1, w2'}]
""",
    "orch/outage": """
all:
  ha.function: [{name: test.ping}, {tgt: 'w*'}, {timeout: 30}]
those there:
  ha.function: [{name: test.ping}, {tgt: 'w*'}, {timeout: 30}, {expect_minions: false}]
one:
  ha.function: [{name: test.ping}, {tgt: w1}]
by grain:
  ha.function: [{name: test.ping}, {tgt: 'id:w*'}, {tgt_type: grain}]
by grain here:
  ha.function: [{name: test.ping}, {tgt: 'id:w*'}, {tgt_type: grain}, {expect_masters: false}]
""",
}


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    """Two masters of a group; w1 listens to m1, w2 to m2."""
    with make_lab() as lab:
        for name, text in STATES.items():
            file = lab.root / "srv" / "salt" / f"{name}.sls"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(root=lab.root) if name == "greet" else text)
        m1, m2 = (lab.add_master(name, ha=QUICK) for name in ("m1", "m2"))
        m1.share_master_key(m2)
        minions = {m1: lab.add_minion("w1", [m1]), m2: lab.add_minion("w2", [m2])}
        lab.start_all()
        meet(lab)
        for master, minion in minions.items():
            let_in(master, minion)
        yield lab


def orchestrate(lab: Lab, sls: str, *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code of an orchestration on m1, and what its steps return, by name."""
    done = lab.masters["m1"].salt_run("state.orchestrate", sls, *more)
    (steps,) = done.data["data"].values()
    return done.returncode, {each["__id__"]: each for each in steps.values()}


def test_steps_reach_the_minions_of_all_masters(lab: Lab) -> None:
    files = [lab.root / f"greeting-{name}" for name in ("w1", "w2")]
    code, steps = orchestrate(lab, "orch.both", "test=True")
    assert (code, [each["result"] for each in steps.values()]) == (0, [None, None]), steps
    assert not any(file.exists() for file in files)
    code, steps = orchestrate(lab, "orch.both")
    assert (code, [each["result"] for each in steps.values()]) == (0, [True, True]), steps
    assert [file.read_text() for file in files] == ["good day\n"] * 2
    assert sorted(steps["greet"]["changes"]["ret"]) == ["w1", "w2"]
    asked = steps["ask"]["changes"]["ret"]
    for minion_id in ("w1", "w2"):
        assert asked[minion_id]["args"] == ["one thing"]
        assert asked[minion_id]["kwargs"].items() >= {"test": True, "number": "0123"}.items()
    _, steps = orchestrate(lab, "orch.both")
    assert not steps["greet"]["changes"]


def test_a_step_that_fails_on_another_master_stops_what_needs_it(lab: Lab) -> None:
    code, steps = orchestrate(lab, "orch.stops")
    results = {name: each["result"] for name, each in steps.items()}
    assert code == 1, steps
    assert results == {
        "one": False,
        "two": False,
        "nobody": False,
        "mistyped": False,
        "tolerant": True,
    }, steps
    assert "w2: failed" in steps["one"]["comment"]
    assert "One or more requisite failed" in steps["two"]["comment"]
    assert "no minion matches" in steps["nobody"]["comment"]
    assert "allow_fail: takes a number" in steps["mistyped"]["comment"]


def test_an_outage_fails_the_steps_that_need_what_is_down(lab: Lab) -> None:
    """The last: m2 and w2 are stopped."""
    lab.minions["w2"].stop()
    lab.masters["m2"].stop()
    code, steps = orchestrate(lab, "orch.outage")
    results = {name: each["result"] for name, each in steps.items()}
    assert code == 1, steps
    assert results == {
        "all": False,
        "those there": True,
        "one": True,
        "by grain": False,
        "by grain here": True,
    }, steps
    assert steps["all"]["comment"].startswith("w2: no master reaches it")
    assert steps["all"]["changes"] == {"ret": {"w1": True}}
    assert "master m2: " in steps["by grain"]["comment"]
