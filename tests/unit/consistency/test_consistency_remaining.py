"""What is left of a comparison when masters have left, and when it is made anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.consistency import consistency_watch
from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.consistency.remaining import without
from saltext_ha.consistency.result import answer, of_differences
from tests.loop import in_a_loop, until

GONE = {"unknown": "timed out"}


def one(section: str, path: str, **values: Any) -> dict[str, Any]:
    return {"path": path, "values": values, "severity": "drift", "fix": "", "section": section}


def at(seconds: float) -> dict[str, float]:
    return {"offset": seconds, "error": 0.1}


@pytest.mark.parametrize(
    ("section", "path", "values", "left"),
    [
        ("access", "open_mode", {"m1": False, "m2": False, "m3": True}, False),
        ("access", "open_mode", {"m1": False, "m2": True, "m3": True}, True),
        ("access", "open_mode", {"m1": {"absent": True}, "m2": GONE, "m3": True}, False),
        ("access", "open_mode", {"m1": {"absent": True}, "m2": 1, "m3": True}, True),
        ("running", "open_mode", {"m3": {"file": 1, "running": 2}}, False),
        ("running", "open_mode", {"m2": {"file": 1, "running": 2}}, True),
        ("clock", "clock", {"m1": at(0), "m2": at(0.5), "m3": at(99)}, False),
        ("clock", "clock", {"m1": at(0), "m2": at(50), "m3": at(99)}, True),
        ("keys", "held", {"m1": 0, "m2": 0, "m3": 7}, False),
        ("keys", "held", {"m1": 7, "m2": 7, "m3": 7}, True),
        ("keys", "web1", {"m1": "accepted", "m2": "accepted", "m3": {"absent": True}}, False),
        # Every master must have that very value.
        ("master_key", "pair", {"m1": "fits", "m2": "fits", "m3": "does not fit"}, False),
        ("master_key", "pair", {"m1": "broken", "m2": "broken", "m3": "fits"}, True),
    ],
)
def test_what_only_those_had_different_is_gone(
    section: str, path: str, values: dict[str, Any], left: bool
) -> None:
    found = of_differences(section, [one(section, path, **values)], {"m3": "hung up"})
    whole = answer({section: found}, ["m1", "m2", "m3"], {"m3": "hung up"})
    now = without(whole, {"m3"})
    assert now["masters"] == ["m1", "m2"]
    assert now["unknown"] == {}
    assert now["status"] == ("differ" if left else "same")
    differences = now["sections"][section]["differences"]
    assert bool(differences) == left
    assert all("m3" not in difference["values"] for difference in differences)


def test_what_was_left_out_may_concern_the_others() -> None:
    found = of_differences("access", [one("access", "a", m1=1, m2=1, m3=2)], {})
    whole = answer({"access": {**found, "left_out": 5}}, ["m1", "m2", "m3"], {})
    assert without(whole, {"m3"})["status"] == "differ"


def same(*masters: str, **unknown: str) -> dict[str, Any]:
    return answer({"access": of_differences("access", [], unknown)}, masters, unknown)


def test_who_comes_and_who_leaves(tmp_path: Path) -> None:
    members, events = {"m1", "m2"}, []
    arguments = tmp_path, "m1", lambda tag, data: events.append(tag), 600.0, lambda: members
    watch = ConsistencyWatch(*arguments)
    watch.note(same("m1", "m2"))
    assert watch.compared(True)["status"] == "same"
    members.add("m3")
    assert watch.compared(True)["status"] == "unknown"
    assert watch.stale() == "m3 came since"
    found = of_differences("access", [one("access", "a", m1=1, m2=1, m3=2)], {})
    watch.note(answer({"access": found}, ["m1", "m2", "m3"], {}))
    assert watch.compared(True)["status"] == "differ"
    again = ConsistencyWatch(*arguments)
    members.discard("m3")
    assert watch.compared(True)["status"] == "same"
    assert watch.shown(True)["counts"] == {}  # type: ignore[index]
    assert events == ["drift", "consistent"]
    # After a restart nobody knows any more who differed in what.
    assert again.stale() == "m3 left since"
    assert ConsistencyWatch(*arguments).compared(True)["status"] == "same"


@in_a_loop
async def test_who_comes_or_comes_back_is_compared_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consistency_watch, "SETTLED", 0.01)
    monkeypatch.setattr(consistency_watch, "TURN", 0.01)
    up, checks = {"m1"}, []
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, 86400.0, up=lambda: set(up))

    async def check() -> Any:
        checks.append(set(up))
        down = {"m2", "m3"} - up
        # m3 is there, and cannot be compared: it is not asked again and again.
        return same("m1", "m2", "m3", **dict.fromkeys({*down, "m3"}, "no answer"))

    task = asyncio.ensure_future(watch.run(check))
    for number, now in enumerate(({"m1"}, {"m1", "m2"}, {"m1", "m2", "m3"}), 1):
        up.clear()
        up.update(now)
        await until(lambda number=number: len(checks) >= number)
        assert checks[-1] == now
    up.discard("m2")
    await until(lambda: watch._asked == {"m1", "m3"})
    assert len(checks) == 3
    up.add("m2")
    await until(lambda: len(checks) >= 4)
    task.cancel()


@in_a_loop
async def test_keys_that_were_not_known_are_compared_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SETTLED", "TURN", "RETRY"):
        monkeypatch.setattr(consistency_watch, name, 0.01)
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, 86400.0, up=lambda: {"m1", "m2"})
    why = [{"m2": "its keys are not known"}, {}]

    async def check() -> Any:
        keys = of_differences("keys", [], why.pop(0))
        return answer({"keys": keys}, ["m1", "m2"], {})

    task = asyncio.ensure_future(watch.run(check))
    await until(lambda: watch.compared(True)["status"] == "same", "compared again", 10.0)
    task.cancel()
