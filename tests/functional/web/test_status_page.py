"""What the engines of a group say to pages, callers of salt-api and Prometheus."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lab import key_folders
from lab.engines import befriend, free_port
from saltext_ha.common import master_key
from saltext_ha.common.errors import HaError
from saltext_ha.web import pages, snapshot
from tests.engines import met, put, run, running
from tests.forked import ForkedEngine
from tests.functional.comparing import place
from tests.loop import becomes, in_a_loop, until
from tests.pages import DOWN, SOON, UP, eventually, get, scraped, serving, url_of, watched

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was just done is to be seen at once; a busy machine may take long to find it."""
    monkeypatch.setattr(snapshot, "GOOD_FOR", 0.0)
    monkeypatch.setattr(snapshot, "NEWER_WITHIN", SOON)


@in_a_loop
async def test_a_group_that_is_well(tmp_path: Path) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    async with serving(m1, m2):
        status = await eventually(
            m1, "/status.json", lambda s: s["masters"][1]["behind"] == 0, "they are level"
        )
        # Nobody compared them yet: not ok.
        assert status["state"] == "unknown"
        assert (await run(m1, "check_consistency"))["status"] == "same"
        status = await get(m1, "/status.json")
        assert status["state"] == "ok"
        assert status["consistency"]["sections"]["access"]["status"] == "same"
        callers = await eventually(
            m2, "/api/saltstack/status", lambda c: c["status"] == "online", "m2 knows both"
        )
        assert callers == {
            "status": "online",
            "master_count": 2,
            "healthy_count": 2,
            "masters": [
                {
                    "url": "http://127.0.0.1:8000",
                    "healthy": True,
                    "name": name,
                    "ready": True,
                    "known": True,
                    "reason": "",
                }
                for name in ("m2", "m1")
            ],
            "group": "default",
            "at": pytest.approx(time.time(), abs=20),
        }


@in_a_loop
async def test_what_is_not_known_is_never_called_ok(tmp_path: Path) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    async with met(m1, m2) as (one, two):
        assert (await run(m1, "check_consistency"))["status"] == "same"
        one.parts.health.state = UP
        await eventually(
            m1, "/status.json", lambda s: s["masters"][1]["behind"] == 0, "they are level"
        )
        assert (await get(m1, "/status.json"))["state"] == "unknown"
        two.parts.health.state = UP
        assert (await get(m1, "/status.json"))["state"] == "ok"
        two.parts.health.state = DOWN
        status = await get(m1, "/status.json")
        assert status["state"] == "degraded"
        assert status["masters"][1]["health"]["problem"] == DOWN.reason
        callers = await get(m1, "/api/saltstack/status")
        assert (callers["status"], callers["healthy_count"]) == ("degraded", 1)
        assert "request port: timed out" in json.dumps(callers)
        await two.stop()
        callers = await eventually(
            m1, "/api/saltstack/status", lambda c: not c["masters"][1]["known"], "m2 is unknown"
        )
        assert callers["masters"][1]["healthy"] is False
        assert (await get(m1, "/status.json"))["state"] == "degraded"


@in_a_loop
async def test_a_peer_that_answers_nonsense_blinds_nobody(tmp_path: Path) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    good = {"healthy": True, "ready": True}
    lies: dict[str, dict[str, Any]] = {
        "held": {"held": float("nan")},
        "unused": {"unused": ["m1"]},
        "health": {"health": [good]},
        "healthy": {"health": {**good, "healthy": "yes"}},
        "seconds": {"health": {**good, "checks": [{"seconds": float("inf")}]}},
    }
    async with met(m1, m2) as (_, two):
        await eventually(m1, "/live", bool, "it listens")
        handlers = two.service.listener._handlers
        honest = handlers["summary"]
        for about, lie in lies.items():

            async def answer(
                peer: Any, payload: dict[str, Any], lie: dict[str, Any] = lie
            ) -> dict[str, Any]:
                return {**await honest(peer, payload), **lie}

            handlers["summary"] = answer
            row = (await get(m1, "/status.json"))["masters"][1]
            assert row["state"] == "unknown", about
            assert f"malformed {about}" in row["note"]
            assert not (await get(m1, "/api/saltstack/status"))["masters"][1]["known"]
            assert (await scraped(m1))["saltext_ha_up", "m2"] == 0
            assert (await run(m1, "status"))["state"] == "degraded"

        async def newer(peer: Any, payload: dict[str, Any]) -> dict[str, Any]:
            told = dict(await honest(peer, payload))
            return {**told, "new": b"x", "health": {**told["health"], "new": b"x"}}

        # What a later release may add is no nonsense.
        handlers["summary"] = newer
        row = (await get(m1, "/status.json"))["masters"][1]
        assert (row["state"], row["note"]) == ("running", "")


@in_a_loop
async def test_drift_is_shown_by_section_with_what_mends_it(tmp_path: Path) -> None:
    m1 = watched(tmp_path, "m1")
    m2 = watched(tmp_path, "m2", external_auth={"pam": {"alice": ["test.*"]}})
    async with serving(m1, m2):
        await run(m1, "check_consistency")
        drift = (await get(m1, "/status.json"))["consistency"]
        assert drift["status"] == "differ"
        assert drift["sections"]["access"]["count"] == 1
        (difference,) = drift["sections"]["access"]["differences"]
        assert difference["path"] == "external_auth:pam:alice"
        assert difference["fix"]
        metrics = await scraped(m1)
        assert metrics["saltext_ha_drift", "access"] == 1
        assert metrics["saltext_ha_drift", "roots"] == 0


@in_a_loop
async def test_metrics(tmp_path: Path) -> None:
    m1, m2, m3 = (watched(tmp_path, name) for name in ("m1", "m2", "m3"))
    async with serving(m1, m2, m3) as (one, _, three):
        key_folders.plant(m1.pki_dir, ["web1", "web2"], key_folders.PENDING)
        key_folders.plant(m1.pki_dir, ["db1"], seed=2)
        there = [m.pki_dir / "minions" / "db1" for m in (m2, m3)]
        knocked = [m.pki_dir / "minions_pre" / name for m in (m2, m3) for name in ("web1", "web2")]
        await until(lambda: all(path.exists() for path in (*there, *knocked)), "they have all")
        (m1.pki_dir / "minions" / "db1").unlink()
        await until(lambda: not any(path.exists() for path in there), "it is revoked")
        await three.stop()
        one.parts.bus.tell(
            "salt/ha/minion/web1/failover", {"id": "web1", "from": "a", "to": "b", "why": "x"}
        )
        found = await scraped(m1)
        assert found["saltext_ha_up", "m1"] == found["saltext_ha_up", "m2"] == 1
        assert found["saltext_ha_up", "m3"] == 0
        assert found["saltext_ha_healthy", "m2"] == 1
        assert ("saltext_ha_healthy", "m3") not in found
        assert ("saltext_ha_keys", "m3", "accepted") not in found
        assert found["saltext_ha_keys", "m2", "pending"] == 2
        assert found["saltext_ha_keys", "m2", "accepted"] == 0
        assert found["saltext_ha_behind_keys", "m2"] == 0
        assert found["saltext_ha_propagation_seconds_count", "m2"] >= 2
        assert (
            found["saltext_ha_propagation_seconds_bucket", "+Inf", "m2"]
            == (found["saltext_ha_propagation_seconds_count", "m2"])
        )
        assert 0 < found["saltext_ha_propagation_seconds_sum", "m2"] < 2 * SOON
        assert found["saltext_ha_antientropy_bytes_total", "sent", "m2"] > 0
        assert found["saltext_ha_failovers_total",] == 1
        assert found["saltext_ha_conflicts",] == found["saltext_ha_held_keys", "m1"] == 0
        assert found["saltext_ha_state", "degraded"] == 1
        assert found["saltext_ha_certificate_expiry_timestamp_seconds",] > time.time()
        assert found["process_resident_memory_bytes",] > 0
        # m2 revoked what m1 deleted, and so had a new AES key made; m1's operator did himself.

        async def rotated() -> float:
            """A moment after the key is gone."""
            return (await scraped(m2))["saltext_ha_aes_rotations_total",]

        await becomes(rotated, 1)


@in_a_loop
async def test_without_prometheus_client_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1 = watched(tmp_path, "m1")
    monkeypatch.delitem(sys.modules, "saltext_ha.web.metrics", raising=False)
    monkeypatch.delattr("saltext_ha.web.metrics", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    async with running(m1), aiohttp.ClientSession() as session:
        await eventually(m1, "/live", bool, "it listens")
        async with session.get(url_of(m1, "/metrics")) as answer:
            assert answer.status == 501
            assert "salt-pip install prometheus_client" in await answer.text()


@in_a_loop
async def test_every_page_is_described_and_every_description_is_a_page(tmp_path: Path) -> None:
    m1 = watched(tmp_path, "m1")
    async with running(m1) as (engine,):
        described = await eventually(m1, "/openapi.json", bool, "it listens")
        paths = engine.made.pages.by_path()
        parts = {"/page.css", "/page.js", "/icon.svg"}
        assert described["paths"].keys() == paths.keys() - parts
        known = described["components"]["schemas"]
        for path, name in (("/status.json", "Status"), ("/api/saltstack/status", "Callers")):
            answer = await get(m1, path)
            assert answer.keys() >= set(known[name]["required"])
            assert answer.keys() >= known[name]["properties"].keys()


@in_a_loop
async def test_the_description_is_valid_and_has_every_refusal(
    tmp_path: Path, token_file: str
) -> None:
    m1 = watched(tmp_path, "m1")
    m2 = place(tmp_path, "m2", {"status": {"port": free_port(), "token_file": token_file}})

    def types(node: Any) -> Iterator[Any]:
        """The types in the schemas: in OpenAPI 3.0 each is one word."""
        if isinstance(node, dict) and isinstance(node.get("type"), (str, list)):
            yield node["type"]
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        for part in parts:
            yield from types(part)

    async with running(m1, m2), aiohttp.ClientSession() as session:
        described = await eventually(m1, "/openapi.json", bool, "it listens")
        assert described["openapi"].startswith("3.0.")
        assert [kind for kind in types(described["components"]) if not isinstance(kind, str)] == []
        for path, how in described["paths"].items():
            known = how["get"]["responses"].keys()
            for asked, query, headers in (
                (m1, "", {"Host": "other.example"}),
                (m1, "?x=1", {}),
                (m2, "", {}),
            ):
                url = url_of(asked, path + query)
                async with session.get(url, headers=headers) as answer:
                    assert str(answer.status) in known, (path, answer.status)


@in_a_loop
async def test_one_snapshot_for_all_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "GOOD_FOR", 30.0)
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    async with met(m1, m2) as (_, two):
        await eventually(m1, "/live", bool, "it listens")
        handlers, asked = two.service.listener._handlers, list[str]()
        summary = handlers["summary"]

        async def counted(peer: Any, payload: dict[str, Any]) -> dict[str, Any]:
            asked.append(peer.name)
            return await summary(peer, payload)

        handlers["summary"] = counted
        answers = await asyncio.gather(*(get(m1, "/status.json") for _ in range(20)))
        assert len({answer["at"] for answer in answers}) == 1
        assert asked == ["m1"]


@in_a_loop
async def test_a_peer_that_hangs_makes_it_old_but_not_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    go = asyncio.Event()
    async with met(m1, m2) as (one, _):
        first = await eventually(m1, "/status.json", bool, "it listens")
        real = one.made.status.status

        async def hang(payload: dict[str, Any]) -> dict[str, Any]:
            await go.wait()
            return await real(payload)

        monkeypatch.setattr(one.made.status, "status", hang)
        monkeypatch.setattr(snapshot, "NEWER_WITHIN", 0.1)
        assert (await get(m1, "/status.json"))["at"] == first["at"]
        # What is old is said to be.
        monkeypatch.setattr(pages, "GOOD_FOR", 0.0)
        url, age, end = url_of(m1, "/status.json"), 0, time.monotonic() + SOON
        async with aiohttp.ClientSession() as session:
            while not age:
                assert time.monotonic() < end
                async with session.get(url) as answer:
                    age = int(answer.headers["Age"])
                await asyncio.sleep(0.05)
        go.set()
        await eventually(m1, "/status.json", lambda s: s["at"] > first["at"], "it is new")


@in_a_loop
async def test_a_pki_folder_that_hangs_makes_it_busy_and_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of the master's own key hang, as reads of all keys beside it do."""
    m1, m2 = (watched(tmp_path, name, peer_timeout=6) for name in ("m1", "m2"))
    real, hangs, go = master_key.read, threading.Event(), threading.Event()
    waiting: list[str] = []

    def read(opts: Any, name: str) -> bytes | None:
        if hangs.is_set() and opts["id"] == m1.opts["id"]:
            waiting.append(name)
            go.wait()
        return real(opts, name)

    monkeypatch.setattr(master_key, "read", read)

    async with met(m1, m2) as (_, two):
        key = (await run(m1, "status"))["masters"][0]
        hangs.set()
        try:
            for _ in range(2):
                for asked in (m1, m2):
                    found = await asyncio.wait_for(run(asked, "status"), SOON)
                    (row,) = (row for row in found["masters"] if row["name"] == "m1")
                    assert (row["state"], row["accepted"]) == ("running", key["accepted"])
                    assert "busy with its keys" in row["note"]
            for _ in range(2):
                _, why = await two.parts.group.ask("endpoint", {}, 6.0)
                assert "busy with its keys" in why["m1"]
            assert len(waiting) == 1, "only the thread of the keeper waits"
        finally:
            go.set()


def test_a_frozen_peer_is_not_shown_from_an_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = (watched(tmp_path, name, peer_timeout=1) for name in ("m1", "m2"))
    befriend(m1, m2)
    monkeypatch.setattr(snapshot, "NEWER_WITHIN", 0.05)

    async def scene(peer: ForkedEngine) -> None:
        async with running(m1) as (one,):
            await one.meets(m2)
            await eventually(
                m1, "/status.json", lambda s: s["masters"][1]["state"] == "running", "both run"
            )
            os.kill(peer.pid, signal.SIGSTOP)
            try:
                monkeypatch.setattr(snapshot, "TOO_OLD", 0.0)
                first = (await get(m1, "/status.json"))["masters"][1]
                assert first["state"] != "running", first
                assert (await scraped(m1))["saltext_ha_up", "m2"] == 0
                assert not (await get(m1, "/api/saltstack/status"))["masters"][1]["known"]

                async def hang(payload: dict[str, Any]) -> dict[str, Any]:
                    raise asyncio.TimeoutError

                # Where no new one comes, nothing is said instead of what was.
                monkeypatch.setattr(one.made.status, "status", hang)
                async with aiohttp.ClientSession() as session:
                    for path in ("/status.json", "/metrics", "/api/saltstack/status"):
                        async with session.get(url_of(m1, path)) as answer:
                            assert answer.status == 503
                            assert "is too old" in await answer.text()
            finally:
                os.kill(peer.pid, signal.SIGCONT)

    with ForkedEngine(m2) as peer:
        asyncio.run(scene(peer))


@in_a_loop
async def test_who_follows_is_told_and_too_many_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_STREAMS", 2)
    monkeypatch.setattr(pages, "STREAM_INTERVAL", 0.05)
    m1 = watched(tmp_path, "m1")
    async with running(m1) as (engine,), aiohttp.ClientSession() as session:
        await eventually(m1, "/live", bool, "it listens")
        url = url_of(m1, "/events")
        async with session.get(url) as one, session.get(url) as _:
            assert one.content_type == "text/event-stream"
            assert "default-src 'none'" in one.headers["Content-Security-Policy"]
            assert one.headers["X-Accel-Buffering"] == "no", "nginx would keep events for a while"
            engine.parts.health.state = DOWN
            seen: list[bytes] = []
            while not seen or b"request port: timed out" not in seen[-1]:
                seen.append(await asyncio.wait_for(one.content.readline(), SOON))
            assert json.loads(seen[-1].removeprefix(b"data: "))["age"] == 0
            async with session.get(url) as third:
                assert third.status == 503
        # Who has gone makes room.
        await eventually(m1, "/live", bool, "it listens")
        end = time.monotonic() + SOON
        while True:
            async with session.get(url) as again:
                if again.status == 200:
                    break
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


@in_a_loop
async def test_who_follows_is_told_when_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "STREAM_INTERVAL", 0.05)
    m1 = watched(tmp_path, "m1")
    async with running(m1) as (engine,), aiohttp.ClientSession() as session:
        await eventually(m1, "/live", bool, "it listens")
        assert m1.config.status

        async def fail(payload: dict[str, Any]) -> dict[str, Any]:
            raise HaError("the disk is full")

        monkeypatch.setattr(engine.made.status, "status", fail)
        async with session.get(url_of(m1, "/events")) as stream:
            told = [await asyncio.wait_for(stream.content.readline(), SOON) for _ in range(2)]
            assert told == [b"event: trouble\n", b'data: "the disk is full"\n']
            monkeypatch.undo()
            monkeypatch.setattr(snapshot, "GOOD_FOR", 0.0)
            while await asyncio.wait_for(stream.content.readline(), SOON) != b"event: status\n":
                pass


@in_a_loop
async def test_conflicts_do_not_make_it_wait_once_more_for_who_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2, m3 = (watched(tmp_path, name) for name in ("m1", "m2", "m3"))
    for number, each in enumerate((m1, m2)):
        put(each, "db2", number)
    async with met(m1, m2, m3) as (one, *_):
        await eventually(m1, "/status.json", lambda s: s["conflict_count"], "it is in conflict")
        spared: dict[str, list[str]] = {}
        contact, group, busy = one.parts.links.contacts["m3"], one.parts.group, True

        async def call(method: str, *args: Any) -> dict[str, Any]:
            if not busy:
                raise HaError("timed out")
            return {**await real(method, *args), "busy": 12.0}  # its key folder hangs

        async def ask(method: str, *args: Any, without: Collection[str] = (), **how: Any) -> Any:
            spared[method] = [*without]
            return await asking(method, *args, without=without, **how)

        real, asking = contact.call, group.ask
        monkeypatch.setattr(contact, "call", call)
        monkeypatch.setattr(group, "ask", ask)
        for busy in (True, False):
            spared.clear()
            found = await run(m1, "status")
            assert [row["state"] for row in found["masters"]].count("running") == 2 + busy
            ((conflict,),) = (found["conflicts"],)
            assert conflict["keys"].keys() == {"m1", "m2"}
            # Before a large question there is a small one, for which it would wait as long.
            assert (spared["summary"], spared["keys"]) == ([], ["m3"])


@in_a_loop
async def test_many_conflicts_are_counted_and_some_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1 = watched(tmp_path, "m1")
    async with running(m1) as (engine,):
        await eventually(m1, "/live", bool, "it listens")
        real = engine.made.status.status

        async def torn(payload: dict[str, Any]) -> dict[str, Any]:
            conflicts = [{"id": f"db{number}", "keys": {}} for number in range(150)]
            return {**await real(payload), "conflicts": conflicts}

        monkeypatch.setattr(engine.made.status, "status", torn)
        status = await get(m1, "/status.json")
        assert (status["conflict_count"], len(status["conflicts"])) == (150, 100)
        assert (await scraped(m1))["saltext_ha_conflicts",] == 150


@in_a_loop
async def test_the_last_changes_are_those_of_now(tmp_path: Path) -> None:
    m1 = watched(tmp_path, "m1")
    async with running(m1):
        for name in ("web1", "web2"):
            key_folders.plant(m1.pki_dir, [name], seed=len(name))
            status = await eventually(
                m1,
                "/status.json",
                lambda s, name=name: s["changes"] and s["changes"][0]["id"] == name,
                f"{name} is shown",
            )
        assert [change["id"] for change in status["changes"]] == ["web2", "web1"]


@in_a_loop
async def test_where_minions_hang(tmp_path: Path) -> None:
    m1 = watched(tmp_path, "m1")
    asked = []

    async def minions(payload: dict[str, Any]) -> dict[str, Any]:
        asked.append(payload["glob"])
        rows = [{"id": f"web{n}", "state": "bound", "masters": ["m1"]} for n in range(10_000)]
        return {"minions": rows, "counts": {"bound": 10_000}, "unknown": {}, "retcode": 0}

    async with running(m1) as (engine,), aiohttp.ClientSession() as session:
        await eventually(m1, "/live", bool, "it listens")
        async with session.head(url_of(m1, "/events")) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
        url = url_of(m1, "/minions.json")
        assert (await get(m1, "/minions.json"))["total"] == 0
        engine.made.pages._minions = minions
        found = await asyncio.gather(
            *(get(m1, "/minions.json?glob=web*&limit=3") for _ in range(5))
        )
        assert asked == ["web*"]
        assert [len(each["minions"]) for each in found] == [3] * 5
        assert found[0]["total"] == 10_000
        assert len((await get(m1, "/minions.json?limit=99999"))["minions"]) == 1000
        assert asked == ["web*", "*"], "another question has another answer"
        for wrong in ("-1", "x", "1" * 7):
            async with session.get(url, params={"limit": wrong}) as answer:
                assert (wrong, answer.status) == (wrong, 400)
                assert "limit takes a number" in (await answer.json())["error"]
        for wrong in ("tgt=web1", "glob=web1&max=3"):
            async with session.get(f"{url}?{wrong}") as answer:
                assert (wrong, answer.status) == (wrong, 400)
                assert "takes glob and limit, nothing" in (await answer.json())["error"]
        engine.made.pages._minions = engine.made.bound.minions
        async with session.get(url, params={"glob": "G@os:Linux"}) as answer:
            assert answer.status == 400
            assert "takes a minion id or a glob" in (await answer.json())["error"]
