"""Whether a master should be given callers, and whose echo on the bus counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.common.hysteresis import Health, Rules
from saltext_ha.common.tasks import begin
from saltext_ha.config.health import HealthSettings
from saltext_ha.health import verdict
from saltext_ha.health.echoes import ECHO, Echoes
from saltext_ha.health.fitness import HANGS
from saltext_ha.health.watcher import RECOVERING, Watcher, _Question
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.proof import Proofs
from tests.loop import in_a_loop, until

GOOD = Health(True, True, 0, 0.0, "")
BAD = Health(False, True, 0, 0.0, "publisher: timed out")
ASKS = HealthSettings()
# Of a clock that stands still: a proof is good for ten minutes, and this file may come later.
PROOFS = Proofs(b"key", lambda: 1e9)
MINE = PROOFS.mark(ECHO, {"master": "m1", "turn": 1})
DOWN, UP, UNASKED = (SimpleNamespace(up=up) for up in (False, True, None))


def watcher(
    state: Health = GOOD,
    settings: HealthSettings | None = ASKS,
    draining: bool = False,
    lost: bool = False,
    contacts: Mapping[str, Any] | None = None,
    peers: tuple[str, ...] = (),
    damage: str = "",
    behind: str = "",
    doubt: str = "",
    held: int = 0,
    busy: float = 0.0,
) -> Watcher:
    """One beside parts that are as told."""
    core: Any = SimpleNamespace(
        mode=SimpleNamespace(lost=lost, doubt=doubt),
        replica=SimpleNamespace(held=SimpleNamespace(count=held)),
        busy=busy,
    )
    pins: Any = SimpleNamespace(peers=lambda: dict.fromkeys(peers))
    made = Watcher(
        settings,
        {},
        host="10.0.0.1",
        core=core,
        pins=pins,
        contacts=dict(contacts or {}),
        echoes=Echoes("m1", EventBus({}), lambda tag, data: None, PROOFS),
        damage=lambda lately: damage,
        behind=lambda: behind,
    )
    made.draining = draining
    made.state = state
    return made


@pytest.mark.parametrize(
    ("made", "ready", "reason"),
    [
        (watcher(), True, ""),
        (watcher(settings=None, state=verdict.UNDECIDED), True, ""),
        (watcher(BAD), False, "publisher: timed out"),
        (watcher(verdict.UNDECIDED), False, "starting: not asked yet"),
        (watcher(draining=True), False, "drained"),
        (watcher(settings=None, draining=True), False, "drained"),
        (watcher(damage="/x was removed"), False, "/x was removed"),
        (watcher(settings=None, damage="/x was removed"), False, "/x was removed"),
        (watcher(behind="tree states is not served yet"), False, "tree states is not served yet"),
        (watcher(held=3), False, "its key store does not show what is known: 3 keys are held back"),
        (watcher(held=3, doubt="wiped?"), False, "wiped?"),
        (watcher(settings=None, doubt="wiped?"), False, "wiped?"),
        (
            watcher(busy=HANGS),
            False,
            "busy with its keys for 30 s: its key store is slow, or hangs",
        ),
        (watcher(settings=None, busy=40.4), False, "busy with its keys for 40 s"),
        (watcher(busy=HANGS - 1), True, ""),  # very many keys are no hang
        (watcher(lost=True), False, "its replica is being rebuilt"),
        (watcher(peers=("m2",)), False, "not yet in sync with m2 since its start"),
        (
            watcher(peers=("m2", "m3"), contacts={"m2": UNASKED, "m3": UP}),
            False,
            "not yet in sync with m2 since its start",
        ),
        # A peer that is down has been asked, too: this one may be the last that serves.
        (watcher(peers=("m2", "m3"), contacts={"m2": DOWN, "m3": UP}), True, ""),
        (watcher(settings=None, peers=("m2",)), False, "not yet in sync with m2"),
    ],
)
def test_who_is_ready(made: Watcher, ready: bool, reason: str) -> None:
    told = made.ready()
    assert told[0] is ready
    assert told[1].startswith(reason)
    assert bool(told[1]) is not ready
    assert (made.told()["ready"], made.told()["reason"]) == told


def test_a_master_that_answers_again_says_so_until_it_counts() -> None:
    state, rules = BAD, Rules()
    for turn in range(rules.rise - 1):
        state = verdict.follow(state, "", 100.0 + 5 * turn, rules, 100.0)
        made = watcher(state)
        assert made.ready() == (False, RECOVERING)
        assert made.unfit_to_lead() == made.told()["problem"] == RECOVERING
    state = verdict.follow(state, "", 200.0, rules, 100.0)
    assert watcher(state).ready() == (True, "")
    assert watcher(state).unfit_to_lead() == ""


def test_a_replica_that_turns_out_to_be_an_old_copy_later_on_makes_it_not_ready() -> None:
    made = watcher()
    assert made.ready() == (True, "")
    made._core.mode.lost = True
    assert made.ready() == (False, "its replica is being rebuilt")


def test_what_is_told_of_a_verdict() -> None:
    assert (watcher(BAD).told()["healthy"], watcher(BAD).told()["problem"]) == (False, BAD.reason)
    assert (watcher().told()["healthy"], watcher().told()["problem"]) == (True, "")
    starting = watcher(verdict.UNDECIDED).told()
    assert (starting["healthy"], starting["problem"], starting["since"]) == (None, "", None)


@in_a_loop
async def test_one_runner_that_came_too_late_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds until the next one would each count it."""
    said = iter(["timed out", "", "timed out", "timed out"])
    goes_on, rounds = asyncio.Semaphore(1), 0

    async def runner() -> str:
        await goes_on.acquire()
        return next(said)

    async def port() -> str:
        nonlocal rounds
        rounds += 1
        return ""

    monkeypatch.setattr(Watcher, "_expensive", lambda *_: [_Question("runner", runner)])
    monkeypatch.setattr(Watcher, "_questions", lambda *_: [_Question("request port", port)])
    made = watcher(settings=HealthSettings(interval=0.01, deep_interval=0.01))
    running = begin(made.run())
    for _ in range(3):
        before = rounds
        await until(lambda before=before: rounds > before + 3, "rounds that count the last answer")
        assert made.healthy
        goes_on.release()
    await until(lambda: made.healthy is False, "it fails twice in a row")
    assert made.state.reason == "runner: timed out"
    running.cancel()


@pytest.mark.parametrize(
    ("echoes", "heard"),
    [
        ([{**MINE, "_stamp": "x"}], True),
        ([{"master": "m1", "turn": 1}], False),  # of a minion that has turned
        ([{**MINE, "proof": "0" * 64}], False),
        ([{"master": "m2", "turn": 1}], False),  # in Salt's own cluster those of others come, too
        ([{"master": "m1", "turn": 7}], False),
        (["nonsense", None], False),
        ([{"master": "m2", "turn": 1}, MINE], True),
    ],
)
@in_a_loop
async def test_only_its_own_echo_is_one(echoes: list[Any], heard: bool) -> None:
    bus = EventBus({})

    def announce(kind: str, data: Mapping[str, Any]) -> None:
        assert (kind, data) == ("health", {"master": "m1", "turn": 1})
        for echo in echoes:
            bus.tell(ECHO, echo)

    asking = Echoes("m1", bus, announce, PROOFS).of_an_event()
    asked = asyncio.wait_for(asking, 60 if heard else 0.1)
    if heard:
        assert await asked == ""
    else:
        with pytest.raises(asyncio.TimeoutError):
            await asked
