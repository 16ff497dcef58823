"""``ha.restart_masters`` on engines that are processes; the test does what systemd would."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.wait import wait_for
from saltext_ha.commands.masters import restart_masters_runner
from saltext_ha.common.errors import HaError
from saltext_ha.health.fitness import unfit
from tests.processes import SOON, Group, Master


def order(root: Path, name: str) -> Path:
    """Where the command of a master says that it is to be restarted."""
    return root / f"restart-{name}"


def group_of(root: Path, **commands: Any) -> Group:
    """Masters that are restarted by these commands."""
    ha = {name: {"restart": command} for name, command in commands.items()}
    group = Group(root, *commands, ha=ha)
    group.start()
    wait_for(lambda: all(could_take_over(m) for m in group.masters), SOON, "they have met")
    return group


def could_take_over(master: Master) -> bool:
    """Whether *master* finds that each master could, itself too."""
    return master.is_fine() and not any(map(unfit, master.ask("status")["masters"]))


@contextlib.contextmanager
def service_manager(root: Path, group: Group, dead: str = "") -> Iterator[list[str]]:
    """
    Restarts the engine of whoever orders it.

    :param dead: the master that does not come back. :return: who was restarted.
    """
    done: list[str] = []
    end = threading.Event()

    def look(master: Master) -> None:
        ordered = order(root, master.name)
        if ordered.exists():
            ordered.unlink()
            others = [m for m in group.masters if m is not master]
            assert all(m.name == dead or m.engine.control("status", {}) for m in others)
            master.engine.kill()
            if master.name != dead:
                master.engine.start()
            done.append(master.name)

    def work() -> None:
        while not end.wait(0.05):
            for master in group.masters:
                look(master)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        end.set()
        thread.join()
        group.kill()


def run(master: Master, *, test: bool = False, timeout: float = 60, **more: Any) -> dict[str, Any]:
    return restart_masters_runner.run(master.place.config, test, timeout, **more)


def test_one_after_the_other_and_itself_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("m1", "m2", "m3")
    group = group_of(tmp_path, **{n: f"touch '{order(tmp_path, n)}'" for n in names})
    with service_manager(tmp_path, group) as done:
        two = group.masters[1]
        planned = run(two, test=True)
        assert [row["name"] for row in planned["masters"]] == ["m1", "m3", "m2"]
        assert planned["masters"][0]["command"] == f"touch {order(tmp_path, 'm1')}"
        assert planned["retcode"] == 0
        assert done == []
        answer = run(two)
        assert answer["retcode"] == 0, answer
        assert done == ["m1", "m3", "m2"]
        assert all(row["restarted"] and row["seconds"] > 0 for row in answer["masters"])
        assert "m3: serves again after" in capsys.readouterr().err
        assert all(master.is_fine() for master in group.masters)


def test_it_stops_at_the_first_that_does_not_come_back(tmp_path: Path) -> None:
    names = ("m1", "m2", "m3")
    group = group_of(tmp_path, **{n: f"touch '{order(tmp_path, n)}'" for n in names})
    with service_manager(tmp_path, group, dead="m2") as done:
        answer = run(group.masters[0], timeout=5)
        assert answer["retcode"] == 1
        one, two, last = answer["masters"]
        assert (one["name"], one["restarted"]) == ("m2", False)
        assert "not within 5 s" in one["problem"]
        assert [two["restarted"], last["restarted"]] == [None, None]
        wait_for(lambda: done, SOON, "m2 was told to restart")  # within 5 s, mostly
        assert done == ["m2"]
        # Nothing is restarted either as long as one is away.
        with pytest.raises(HaError, match="nothing was restarted: m2: ") as refused:
            run(group.masters[0])
        assert "without=m2 leaves out m2" in str(refused.value)
        assert done == ["m2"]
        assert run(group.masters[0], test=True)["retcode"] == 1
        for wrong, why in (
            ("m9", "there is no master 'm9'"),
            ("m1,m2", "without=m1: that is this"),
        ):
            with pytest.raises(HaError, match=why):
                run(group.masters[0], without=wrong)
        answer = run(group.masters[0], without="m2")
        assert [row["name"] for row in answer["masters"] if row["restarted"]] == ["m3", "m1"]
        assert done == ["m2", "m3", "m1"]


def test_a_command_that_fails_is_shown(tmp_path: Path) -> None:
    group = group_of(tmp_path, m1="true", m2="sh -c 'echo no such service; exit 5'")
    with service_manager(tmp_path, group):
        answer = run(group.masters[0])
        assert answer["retcode"] == 1
        assert "exit code 5: no such service" in answer["masters"][0]["problem"]


def test_a_master_may_refuse(tmp_path: Path) -> None:
    group = group_of(tmp_path, m1="true", m2=False)
    with service_manager(tmp_path, group), pytest.raises(HaError, match=r"m2: .*restart: False"):
        run(group.masters[0])
