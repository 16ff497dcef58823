"""Notes say when, from where and by whom, go when it is over, and ordinary work leaves none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from lab.wait import wait_for
from saltext_ha.common import refusals
from saltext_ha.common.errors import EngineUnavailable, HaError
from saltext_ha.common.refusals import Refusals
from saltext_ha.output import ha
from saltext_ha.sync.hello import TOO_OLD
from saltext_ha.transport import control_client, identity
from saltext_ha.transport.client import call_once
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.trust import Trust
from tests.engines import met, places, run, running
from tests.loop import in_a_loop, until

pytestmark = pytest.mark.usefixtures("no_bus")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha, "__opts__", {"color": False}, raising=False)


@in_a_loop
async def test_who_hangs_up_is_counted_and_no_note(tmp_path: Path) -> None:
    (m1,) = places(tmp_path, "m1")
    async with running(m1) as (engine,):
        _, writer = await asyncio.open_connection("127.0.0.1", m1.port)
        writer.write(b"\x16\x03\x01")
        await writer.drain()
        writer.close()
        listener = engine.service.listener
        await until(lambda: listener.refused == {refusals.HUNG_UP: 1}, "it is counted")
        status = await run(m1, "status")
        assert status["refused"] == {refusals.HUNG_UP: 1}
        assert status["refusals"] == []
        assert "refused" not in ha.output(status)


@in_a_loop
async def test_a_peer_of_a_release_that_is_too_old_is_told(tmp_path: Path) -> None:
    """It answers, so nothing else would show that this master exchanges no keys with it."""
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):

        async def hello(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return m2.parts.hello.greet()  # as before it told by which name it knows the caller

        m2.service.listener._handlers["hello"] = hello
        link = m1.link(m2)
        link.contact.up = None  # it is met anew
        link._wake.set()
        await until(lambda: link.contact.why_down == TOO_OLD, "it is known")
        status = await run(one, "status")
        row = next(row for row in status["masters"] if row["name"] == "m2")
        assert (row["state"], row["note"]) == ("running", TOO_OLD)
        assert status["state"] == "degraded"


@in_a_loop
async def test_a_configured_url_of_nobody_is_told(tmp_path: Path) -> None:
    """Not so that of a member whose file is damaged."""
    peers = [{"name": name, "url": "https://127.0.0.1:1"} for name in ("m2", "m3", "mm2")]
    (one,) = places(tmp_path, "m1", ha={"peer_timeout": 20, "peers": peers})
    two, three = places(tmp_path, "m2", "m3")
    befriend(one, two, three)
    (one.config.state_dir / "peers" / "m3.json").write_text("{")
    async with running(one):
        own = (await run(one, "status"))["masters"][0]["note"]
        told = [note for note in own.split("; ") if "ha: peers:" in note]
        assert told == ["ha: peers: no member is called mm2, so the URL there is not used"]


@in_a_loop
async def test_a_refusal_says_when_and_from_where_and_goes_when_it_is_over(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with running(one, two) as (m1, m2):
        stranger = identity.load_or_create(two.config.state_dir, "m2")
        with pytest.raises(HaError):
            await call_once(stranger, one.peer, "hello", {}, 20.0)
        await until(lambda: bool(m1.parts.refusals.lately()), "it is noted")
        status = await run(one, "status")
        (told,) = status["refusals"]
        assert told["from"] == "127.0.0.1"
        assert told["last"] == pytest.approx(time.time(), abs=60)
        assert re.search(  # a call is repeated
            r"\d+ [×x] certificate not pinned, from 127.0.0.1, \d+ [sm] ago", ha.output(status)
        )
        # It is let in: what was refused before is over.
        befriend(one, two)
        await m2.meets(m1)
        await until(lambda: not m1.parts.refusals.lately(), "it is over")
        assert sum(m1.parts.refusals.counts.values()) >= 1


def pinned_by(engine: Engine) -> list[str]:
    return [peer.certificate for peer in engine.parts.trust.pinned().values()]


@in_a_loop
async def test_a_renewal_leaves_no_note(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        former = m1.parts.renewal.identity
        assert (await run(one, "renew"))["retcode"] == 0
        await m2.meets(m1)
        # As a call does that began before the renewal, and arrives when m2 knows of it.
        await until(lambda: former.certificate not in pinned_by(m2), "m2 has the new one")
        with pytest.raises(HaError):
            await call_once(former, two.peer, "hello", {}, 20.0)
        assert m2.parts.refusals.counts["certificate not pinned"]
        for engine in (m1, m2):
            await until(lambda e=engine: not e.parts.refusals.lately(), "none")


def test_a_refusal_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(refusals.time, "monotonic", lambda: now)
    seen, pinned = Refusals(lambda: pinned[0]), [999.0]
    for host in ("10.0.0.8", "10.0.0.9", "10.0.0.8"):
        seen.add("not TLS", host)
    assert [(each["from"], each["times"]) for each in seen.lately()] == [
        ("10.0.0.8", 2),
        ("10.0.0.9", 1),
    ]
    # A peer at the same address says nothing about a stranger there.
    now += refusals.UNDERWAY
    seen.add("not TLS", "10.0.0.8")
    seen.admitted("10.0.0.8")
    assert len(seen.lately()) == 2
    # A peer was pinned; what it had begun before is still refused.
    pinned[0] = now
    now += 1
    seen.add("not TLS", "10.0.0.8")
    seen.admitted("10.0.0.8")
    assert [each["from"] for each in seen.lately()] == ["10.0.0.9"]
    now += refusals.UNDERWAY
    seen.add("not TLS", "10.0.0.8")
    seen.admitted("10.0.0.8")
    assert [each["from"] for each in seen.lately()] == ["10.0.0.8", "10.0.0.9"]
    now += refusals.OVER + 1
    assert seen.lately() == []
    seen.add("not TLS", "10.0.0.9")
    assert [each["times"] for each in seen.lately()] == [1]
    assert seen.counts == {"not TLS": 7}
    for number in range(100):
        seen.add("not TLS", f"10.0.1.{number}")
    assert len(seen.lately()) == refusals.TOLD


@in_a_loop
async def test_a_pause_says_since_when_and_by_whom(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    when = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"

    async def note(place: Place) -> str:
        return next(
            str(row["note"]) for row in (await run(place, "status"))["masters"] if row["self"]
        )

    async with met(one, two):
        await run(one, "pause", all=True)
        assert re.fullmatch(rf"paused: .* not written; {when}, by \w+", await note(one))
        said = await note(two)
        assert re.fullmatch(rf"paused: .* not written; {when}, by an operator of m1", said)
    async with Engine(two):
        assert await note(two) == said
        await run(two, "resume")
        assert "paused" not in await note(two)
    async with Engine(two):
        assert "paused" not in await note(two)


START = """
import json, sys
from lab.engines import Place
from saltext_ha.engines import ha
ha.__opts__ = Place.of(json.loads(sys.argv[1])).opts
ha.__opts__["ha"] |= json.loads(sys.argv[3])
settings = json.loads(sys.argv[2])
# Of one with another name; Salt took its engine_module out before.
ha.__opts__["engines"] = [{"of the group": settings}]
ha.start(**settings)
"""


@contextlib.contextmanager
def starting(
    place: Place, wrong: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[None]:
    """
    A process that starts the engine as Salt does, with what stands in ``engines:``.

    :param wrong: what stands in ``ha:`` as well.
    """
    given = [json.dumps(each) for each in (place.data(), options, wrong or {})]
    process = subprocess.Popen(
        [sys.executable, "-c", START, *given],
        cwd=Path(__file__).parents[3],
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def said(place: Place) -> str:
    """What a command is told of the engine."""
    try:
        return str(control_client.request(place.config.control_socket, "status"))
    except EngineUnavailable as exc:
        return str(exc)


def test_settings_below_engines_are_named(tmp_path: Path) -> None:
    """Other engines of Salt have theirs there."""
    place = Place(tmp_path, "m1")
    with starting(place, mode="observe"):
        wait_for(lambda: "could not start at" in said(place), 60, "it says why")
        wrong = "engines: ha: takes no settings (mode); write them below ha: itself"
        assert wrong in said(place)
        assert "mend it, and restart salt-master" in said(place)


def test_it_is_no_engine_for_a_minion(tmp_path: Path) -> None:
    """On a machine with a master as well, it would take that one's port."""
    place = Place(tmp_path, "m1", options={"__role": "minion"})
    with starting(place):
        wait_for(lambda: "could not start at" in said(place), 60, "it says why")
        assert "engines: ha: is for salt-master; salt-minion has  ha_watchdog" in said(place)
        assert not place.config.state_dir.exists()


def test_a_mistake_that_is_mended_is_told_until_salt_master_is_restarted(tmp_path: Path) -> None:
    """The command finds none in the configuration any more."""
    place = Place(tmp_path, "m1")
    with starting(place, {"sync_interval": 0}):
        wait_for(lambda: "could not start at" in said(place), 60, "it says why")
        assert "ha: sync_interval: 0 takes a number from 0.1 to 3600 (mend it, and" in said(place)


@pytest.mark.parametrize(("what", "reason"), [("", "is a link"), ("peers", "File exists")])
def test_why_an_engine_does_not_run(tmp_path: Path, what: str, reason: str) -> None:
    """The state folder, or one in it, is not what it was; as if it were another user's."""
    place = Place(tmp_path, "m1")
    Trust(place.config.state_dir)  # makes the folder
    wrong = place.config.state_dir / what
    real = wrong.rename(tmp_path / "elsewhere")
    if what:
        wrong.touch()
    else:
        wrong.symlink_to(real)

    assert (
        said(place) == f"the ha engine of this master is not running: {control_client.NOT_STARTED}"
    )
    with starting(place):
        wait_for(lambda: "could not start at" in said(place), 60, "it says why")
        assert reason in said(place)
        assert "tried again every 10 s" in said(place)
        wrong.unlink()
        real.rename(wrong)
        wait_for(lambda: "'state': 'unknown'" in said(place), 60, "it runs")
    assert (
        said(place) == f"the ha engine of this master is not running: {control_client.NOT_STARTED}"
    )
