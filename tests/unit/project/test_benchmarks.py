"""What the benchmarks say before and after they measure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from lab.engines import EngineProcess, Place
from proving.benchmarks import leader, pure, pure_work
from proving.benchmarks.__main__ import main
from proving.benchmarks.report import COLUMNS, Budget, Row, about, growth, markdown, table
from proving.benchmarks.rivals import TOOLS
from proving.benchmarks.rsync import DURABLE, Shot, of_several, run
from tests.tools import script


def test_without_the_tools_to_compare_with_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["--only", "start"]) == 2
    said = capsys.readouterr()
    assert "apt-get install rsync lsyncd unison etcd-server" in said.err
    assert said.out == ""


def test_what_was_compared_with_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool, said in (
        ("rsync", "rsync  version 3.2.7  protocol version 31"),
        ("lsyncd", "Version: 2.2.3"),
        ("unison", "usage: unison [options]"),
    ):
        script(tmp_path / tool, f"echo '{said}'")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = about()
    assert {tool: found[tool] for tool in TOOLS} == {
        "rsync": "3.2.7",
        "lsyncd": "2.2.3",
        "unison": "?",
    }
    assert found["saltext-ha"].startswith(version("saltext-ha")), "also where git is not there"


def test_a_row_is_compared_with_the_best_of_the_others() -> None:
    rivals = {"rsync": Shot(40.0, 5000), "lsyncd": Shot(80.0), "unison": Shot(60.0)}
    row = Row("work", 1000, [10.0] * 99 + [90.0], 500, rivals, budget=Budget(median=10, p99=50))
    shown = dict(zip(COLUMNS, row.cells(), strict=True))
    assert (shown["times faster"], shown["times smaller"]) == ("4", "10")
    assert (shown["lsyncd"], shown["rsync bytes"]) == ("80 ms", "4.883 KB")
    assert (shown["CPU"], shown["rsync CPU"], shown["instructions"]) == ("-", "-", "-")
    assert table([row]).splitlines()[1].split() == " ".join(row.cells()).split()
    assert markdown([row]).splitlines()[2] == f"| {' | '.join(row.cells())} |"
    assert Row("work", 1, [0.5], rivals={"rsync": Shot(617.0)}).cells()[2] == "1 234"
    assert shown["times faster, durable"] == "-"
    durable = Row("work", 1, [10.0], rivals={**rivals, DURABLE: Shot(65.0)})
    shown_durable = dict(zip(COLUMNS, durable.cells(), strict=True))
    assert shown_durable["times faster, durable"] == "6.5"
    assert (shown_durable["times faster"], shown_durable[DURABLE]) == ("4", "65 ms")
    assert row.ok  # the 99th of 100 is still fast
    assert Row("work", 1, [10.1], budget=Budget(median=10)).ok is False
    late = Row("work", 3, [10.0, 11.0, 16.0], budget=Budget(median=15, worst=15))
    assert late.ok is False, "one of three, whatever the others took"
    shown = dict(zip(COLUMNS, late.cells(), strict=True))
    assert (shown["worst"], shown["budget"]) == ("16 ms", "≤ 15 ms, worst ≤ 15 ms")
    assert Row("work", 3, [10.0, 11.0, 15.0], budget=Budget(worst=15)).ok
    assert Row("work", 1, memory=11, budget=Budget(memory=10)).ok is False
    assert Row("work", 1, idle=1.1, budget=Budget(idle=1)).ok is False


def test_what_it_needs_of_a_processor_is_said_beside_how_long_it_takes() -> None:
    rivals = {"rsync": Shot(40.0, 5000, cpu=12.0), "lsyncd": Shot(80.0)}
    row = Row("work", 1000, [10.0], rivals=rivals, cpu=2500.0, instructions=42_142)
    shown = dict(zip(COLUMNS, row.cells(), strict=True))
    assert (shown["median"], shown["CPU"]) == ("10 ms", "2.5 s")
    assert (shown["rsync CPU"], shown["instructions"]) == ("12 ms", "42 142")
    assert row.data()["cpu_ms"] == 2500.0
    assert row.data()["instructions"] == 42_142


def test_of_several_runs_only_what_is_known_counts() -> None:
    shots = [Shot(1.0, 10, cpu=3.0), Shot(2.0, 30, cpu=5.0)]
    assert of_several(shots, sum) == Shot(3.0, 40, 8.0)
    assert of_several([Shot(1.0), Shot(2.0)], sum) == Shot(3.0)


def test_what_a_program_needed_of_a_processor_is_known_when_it_has_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.1: pass\nprint('done')"
    shot, said = run([sys.executable, "-c", busy])
    assert said == "done\n"
    assert shot.cpu is not None
    assert shot.cpu >= 100


@pytest.mark.parametrize("name", pure_work.WORKS)
def test_what_is_counted_can_be_done(name: str) -> None:
    pure_work.main(name, "1")


def test_where_nothing_counts_instructions_it_is_said_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert pure.measure() == []
    assert "apt-get install valgrind" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("1234,,instructions:u,5678,100.00,,\n", "_perf"),
        ("<not supported>,,instructions:u,0,100.00,,\n", "_valgrind"),
    ],
)
def test_instructions_are_counted_by_perf_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str
) -> None:
    for tool, line in (("perf", said.strip()), ("valgrind", "==1== Collected : 77")):
        script(tmp_path / tool, f"echo '{line}' >&2")
    monkeypatch.setenv("PATH", str(tmp_path))
    count = pure.counter()
    assert count is not None
    assert count.__name__ == found
    assert count(["true"]) == {"_perf": 1234, "_valgrind": 77}[found]


def test_how_far_counts_differ_is_in_percent() -> None:
    assert pure.differ([1000, 1010]) == pytest.approx(1.0)
    assert pure.differ([1000, 1000]) == 0


def test_how_it_grows_is_said_from_the_fewest_keys_to_the_most() -> None:
    rows = [
        Row("work", size, [ms], rivals={"rsync": Shot(ms * 10)})
        for size, ms in ((1000, 2.0), (10_000, 3.0), (100_000, 5.0))
    ]
    assert growth([*rows, Row("other", 1000, [1.0])]).splitlines()[2:] == [
        "| work | 1 000 → 100 000 | × 2.5 | × 2.5 | - | - | - |"
    ]
    assert growth(rows[:1]) == ""


class Told(EngineProcess):
    """Of an engine only what ``ha.once`` is answered."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.says: dict[str, Any] = {}

    def control(self, command: str, payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.says


def test_a_master_that_leads_when_another_one_has_begun_to_is_counted(tmp_path: Path) -> None:
    engines = [Told(Place(tmp_path, name)) for name in leader.MASTERS]
    group = leader.Group(engines)

    def lead(**fences: int) -> str:
        for engine in engines:
            fence = fences.get(engine.place.name)
            do = "wait" if fence is None else "run"
            engine.says = {"leader": next(iter(fences), None), "do": do, "fence": fence}
        return group.followed(leader.MASTERS)

    assert lead(m1=7) == "m1"
    assert lead() == ""
    assert (lead(m2=9), group.twice) == ("m2", 0)
    assert lead(m2=9, m3=8) == "", "two lead"
    assert (lead(m1=7), group.twice) == ("m1", 2)
