"""What is no etcd, or one gone wrong, answers: nobody leads by that, and the engine goes on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lab.engines import free_port
from saltext_ha.common.errors import EtcdError, HaError, LeadsNoMore
from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once import etcd_client, etcd_leader
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.etcd_client import EtcdClient
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.once.locks import EtcdLocks, Wish
from tests.loop import in_a_loop, until

HEADER = {"header": {"revision": "7"}}
GRANT, KEEP, RANGE, TXN = "lease/grant", "lease/keepalive", "kv/range", "kv/txn"
RUNS = base64.b64encode(b"/salt-ha/g/runs/").decode()[:20]
RUN_RANGE, RUN_TXN = f"{RANGE} of runs", f"{TXN} of runs"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_leader, "TURN", 0.02)


class Etcd:
    """Answers as etcd does where nobody has the key and all goes well, but for what is set."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.waits: dict[str, asyncio.Event] = {}
        self.says: dict[str, tuple[int, Any]] = {
            GRANT: (200, {**HEADER, "ID": "11", "TTL": "8"}),
            KEEP: (200, {"result": {**HEADER, "ID": "11", "TTL": "8"}}),
            RANGE: (200, HEADER),
            TXN: (200, {**HEADER, "succeeded": True}),
        }
        self.headers: dict[str, str] = {}
        self.heard: Callable[[str, dict[str, Any]], None] = lambda path, payload: None

    async def answer(self, request: web.Request) -> web.Response:
        path, payload = request.path.removeprefix("/v3/"), json.loads(await request.read())
        if RUNS in json.dumps(payload):
            path += " of runs"
        self.asked.append((path, payload))
        self.heard(path, payload)
        if path in self.waits:
            await self.waits[path].wait()
        status, said = self.says.get(path, (200, HEADER))
        text = said if isinstance(said, str) else json.dumps(said)
        return web.Response(status=status, text=text, headers=self.headers)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Etcd]:
    etcd = Etcd()
    app = web.Application()
    app.router.add_post("/{path:.*}", etcd.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(etcd.url.rpartition(":")[2])).start()
    try:
        yield etcd
    finally:
        for each in etcd.waits.values():
            each.set()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def leader(*endpoints: str) -> AsyncIterator[tuple[EtcdLeader, asyncio.Task[None]]]:
    settings = LeaderSettings(ETCD, endpoints=endpoints, ttl=8)
    me = Candidate("m1", lambda: "", lambda tag, data: None)
    found = EtcdLeader(me, "g", settings, {"m2"}.__contains__)
    task = asyncio.ensure_future(found.run())
    try:
        yield found, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def leads(etcd: Etcd, found: EtcdLeader) -> None:
    """
    Until *found* leads and etcd shows that it has the key. Where it shows none, the leader takes
    the key anew at each turn, and does not lead meanwhile.
    """
    await until(lambda: found.standing.leads, "it leads")
    etcd.says[RANGE] = 200, _held(base64.b64encode(found._own.encode()).decode())
    etcd.asked.clear()
    # The first may be of before.
    await until(lambda: [path for path, _ in etcd.asked].count(RANGE) > 2, "it has looked")
    assert found.standing.leads


def _held(value: Any, revision: Any = "7") -> dict[str, Any]:
    kept = {"value": value, "create_revision": revision, "mod_revision": revision}
    return {**HEADER, "kvs": [kept]}


def _written(text: str) -> dict[str, Any]:
    value = base64.b64encode(text.encode()).decode()
    return {**HEADER, "kvs": [{"value": value, "create_revision": "5", "mod_revision": "5"}]}


HTML = "<html>It works!</html>"
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("path", "says"),
    [
        *((path, says) for path in (GRANT, RANGE, TXN) for says in (HTML, DEEP, [], 5, None, {})),
        (GRANT, {"ID": "11"}),
        (GRANT, {"ID": "11", "TTL": "many"}),
        (GRANT, {"ID": "11", "TTL": float("inf")}),
        (GRANT, {"ID": "11", "TTL": float("nan")}),
        (GRANT, {"ID": "11", "TTL": [8]}),
        (GRANT, {"ID": "11", "TTL": "0"}),
        (RANGE, {**HEADER, "kvs": 5}),
        (RANGE, {**HEADER, "kvs": [5]}),
        (RANGE, _held("%")),
        (RANGE, _held(5)),
        (RANGE, _held(None)),
        (RANGE, _held("bTE=", "one")),
        (RANGE, _held("bTE=", None)),
        (TXN, {"succeeded": True}),
        (TXN, {"succeeded": True, "header": 5}),
        (TXN, {**HEADER, "responses": 5}),
        (TXN, {**HEADER, "responses": [{"response_range": 5}]}),
    ],
)
@in_a_loop
async def test_nonsense_is_told_and_nobody_leads(path: str, says: Any) -> None:
    async with serving() as etcd:
        etcd.says[path] = 200, says
        async with leader(etcd.url) as (found, task):
            await until(lambda: etcd.url in found.standing.why or task.done(), "it is said")
            assert not task.done(), "the engine would be started anew, again and again"
            assert not found.standing.leads
            etcd.says[path] = Etcd().says[path]
            await until(lambda: found.standing.leads or task.done(), "it leads")
            for says_then in (HTML, [], {"result": []}, {"result": {"TTL": []}}):
                etcd.says[KEEP] = 200, says_then
                seen = len(etcd.asked)
                await until(lambda n=seen: len(etcd.asked) > n + 3 or task.done(), "it is asked")
            assert not task.done()


@in_a_loop
async def test_one_whose_key_is_gone_leads_no_more_while_it_takes_it_anew() -> None:
    """As when somebody revokes its lease: another one may be first."""
    async with serving() as etcd, leader(etcd.url) as (found, _):
        await until(lambda: found.standing.leads, "it leads")
        etcd.waits[TXN] = asyncio.Event()
        etcd.says[KEEP] = 200, {"result": {**HEADER, "ID": "11"}}
        etcd.asked.clear()
        await until(lambda: TXN in [path for path, _ in etcd.asked], "it takes it anew")
        assert not found.standing.leads


@in_a_loop
async def test_a_lease_of_a_thousand_years_is_not_believed() -> None:
    async with serving() as etcd:
        etcd.says[GRANT] = 200, {**HEADER, "ID": "11", "TTL": "31536000000"}
        async with leader(etcd.url) as (found, _):
            await until(lambda: found.standing.leads, "it leads")
            assert found._until - found._clock() < 8


@in_a_loop
async def test_another_endpoint_is_asked_where_one_is_no_etcd() -> None:
    async with serving() as other, serving() as etcd:
        other.says = dict.fromkeys(other.says, (200, HTML))
        async with leader(other.url, etcd.url) as (found, _):
            await until(lambda: found.standing.leads, "it leads")


@pytest.mark.parametrize("access", [{}, {"username": "salt", "password": "hunter2"}])
@in_a_loop
async def test_that_the_gateway_is_off_is_told(access: dict[str, str]) -> None:
    async with serving() as etcd:
        etcd.says[RANGE] = etcd.says["auth/authenticate"] = 404, "404 page not found\n"
        client = EtcdClient(LeaderSettings(ETCD, endpoints=(etcd.url,), **access), 2)
        with pytest.raises(EtcdError, match="enable-grpc-gateway: true"):
            await client.get("/k")
        await client.close()


@in_a_loop
async def test_a_refusal_in_plain_text_is_told_once_for_all_endpoints() -> None:
    """As etcd with users refuses each certificate that has a CommonName."""
    said = "CommonName of client sending a request against gateway will be ignored"
    async with serving() as first, serving() as second:
        first.says[RANGE] = second.says[RANGE] = 400, f"{said}\n"
        settings = LeaderSettings(ETCD, endpoints=(first.url, second.url))
        client = EtcdClient(settings, 2)
        with pytest.raises(
            EtcdError, match=f"^etcd cannot be asked: {first.url}, {second.url}: {said} "
        ):
            await client.get("/k")
        await client.close()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (400, "<html>\r\n<head><title>400 Bad Request</title></head>\r\n", "HTTP 400"),
        (400, "{\n", "HTTP 400"),
        (421, "\netcd received your request, but\n\nTo fix\n", "etcd received your request, but$"),
        (503, "no healthy upstream", "no healthy upstream"),
    ],
)
@in_a_loop
async def test_of_other_refusals_plain_text_is_told_and_no_page(
    status: int, body: str, told: str
) -> None:
    """A page is of a load balancer; with a host whitelist etcd says why below an empty line."""
    async with serving() as etcd:
        etcd.says[RANGE] = status, body
        client = EtcdClient(LeaderSettings(ETCD, endpoints=(etcd.url,)), 2)
        with pytest.raises(EtcdError, match=f"{etcd.url}: {told}"):
            await client.get("/k")
        await client.close()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("etcdserver: user name is empty", "set username: and password_file:"),
        (
            "etcdserver: authentication failed, invalid user ID or password",
            "password_file: is read when the engine starts",
        ),
        ("etcdserver: permission denied", "readwrite on all keys below /salt-ha/"),
        ("etcdserver: mvcc: database space exceeded", "disarm its alarm"),
        ("CommonName of client sending a request", "a cert: without a CommonName"),
    ],
)
@in_a_loop
async def test_what_to_do_is_told(said: str, advice: str) -> None:
    async with serving() as etcd:
        etcd.says[RANGE] = 400, {"error": said, "message": said, "code": 3}
        client = EtcdClient(LeaderSettings(ETCD, endpoints=(etcd.url,)), 2)
        with pytest.raises(EtcdError, match=re.escape(f"{etcd.url}: {said} (") + f".*{advice}"):
            await client.get("/k")
        await client.close()


@in_a_loop
async def test_who_asks_for_a_lock_is_told_that_it_is_etcd_that_does_not_answer() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    settings = LeaderSettings(ETCD, endpoints=(url,))
    client = EtcdClient(settings, 2)
    with pytest.raises(HaError, match=f"^etcd cannot be asked: {url}: refused the connection$"):
        await EtcdLocks("default", settings, client).hold(Wish("backup", "alice"))
    await client.close()


@in_a_loop
async def test_a_password_is_in_no_message_and_goes_nowhere_else() -> None:
    settings = LeaderSettings(ETCD, username="salt", password="hunter2")
    login = "auth/authenticate"
    async with serving() as etcd, serving() as other:

        async def said() -> str:
            client = EtcdClient(dataclasses.replace(settings, endpoints=(etcd.url,)), 2)
            with pytest.raises(EtcdError) as raised:
                await client.get("/k")
            await client.close()
            return str(raised.value)

        etcd.says[login] = 400, {"error": "no user salt with hunter2", "code": 3}
        assert "no user salt with ***" in await said()
        etcd.says[login] = 200, {**HEADER, "token": "t0ken.9"}
        etcd.says[RANGE] = 400, {"error": "bad token t0ken.9", "code": 3}
        assert "bad token ***" in await said()
        etcd.headers["Location"] = f"{other.url}/v3/auth/authenticate"
        etcd.says[login] = 307, ""
        assert "HTTP 307" in await said()
        assert not other.asked


@in_a_loop
async def test_a_refused_password_is_not_tried_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To compare one takes etcd a tenth of a second of a processor."""
    login = "auth/authenticate"
    said = "etcdserver: authentication failed, invalid user ID or password"
    async with serving() as etcd, serving() as other:
        for each in (etcd, other):
            each.says[login] = 400, {"error": said, "message": said, "code": 3}
        settings = LeaderSettings(
            ETCD, endpoints=(etcd.url, other.url), username="salt", password="hunter2"
        )
        client = EtcdClient(settings, 2)

        async def refused() -> int:
            """How many logins it takes to be told so."""
            before = len(etcd.asked) + len(other.asked)
            with pytest.raises(EtcdError, match=f"{other.url}: refuses the login of salt: {said}"):
                await client.get("/k")
            return len(etcd.asked) + len(other.asked) - before

        assert [await refused() for _ in range(5)] == [1, 0, 0, 0, 0]
        monkeypatch.setattr(etcd_client, "REFUSED_PAUSE", 0.0)
        assert await refused() > 0
        for each in (etcd, other):
            each.says[login] = 200, {**HEADER, "token": "t0ken"}
        assert await client.get("/k") is None
        await client.close()


@in_a_loop
async def test_it_logs_in_anew_where_users_changed() -> None:
    settings = LeaderSettings(ETCD, username="salt", password="hunter2")
    async with serving() as etcd:
        etcd.says["auth/authenticate"] = 200, {**HEADER, "token": "t0ken"}
        client = EtcdClient(dataclasses.replace(settings, endpoints=(etcd.url,)), 2)
        assert await client.get("/k") is None
        old = "etcdserver: revision of auth store is old"
        etcd.says[RANGE] = 400, {"error": old, "message": old, "code": 3}
        with pytest.raises(EtcdError, match="auth store is old"):
            await client.get("/k")
        await client.close()
        assert [path for path, _ in etcd.asked].count("auth/authenticate") == 2


@pytest.mark.parametrize("content", [None, "no certificate"])
@in_a_loop
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)
    for wrong, says in (
        ({"ca": file}, f"ha: leader: ca: {file}: "),
        ({"cert": file, "key": file}, f"ha: leader: cert: {file}, key: {file}: "),
    ):
        settings = LeaderSettings(ETCD, endpoints=("https://127.0.0.1:9",), **wrong)
        client = EtcdClient(settings, 2)
        with pytest.raises(EtcdError, match=re.escape(says) + ".*[a-z]"):
            await client.get("/k")
        await client.close()


@in_a_loop
async def test_a_run_of_a_clock_that_went_ahead_is_no_run_of_now() -> None:
    """As what masters tell each other has it; else it would not run until that time."""
    async with serving() as etcd, leader(etcd.url) as (found, _):
        await leads(etcd, found)
        etcd.says[RUN_TXN] = 200, {**HEADER, "succeeded": True}
        for ahead, runs in ((30, False), (365 * 86400, True)):
            etcd.says[RUN_RANGE] = 200, _written(f"{time.time() + ahead:.3f} m2")
            assert (await found.claim("nightly", 60.0) == "") == runs
        assert await found.claim("nightly", 0.0) == "", "within=0 repeats it in any case"


@in_a_loop
async def test_a_run_that_is_noted_though_the_answer_was_lost_is_run() -> None:
    """The next endpoint says that somebody wrote it before: that was this master."""
    async with serving() as etcd, leader(etcd.url) as (found, _):
        await leads(etcd, found)
        etcd.says[RUN_TXN] = 200, HEADER
        with pytest.raises(LeadsNoMore):
            await found.claim("nightly", 60.0)

        def heard(path: str, payload: dict[str, Any]) -> None:
            if path == RUN_TXN:
                put = payload["success"][0]["request_put"]["value"]
                etcd.says[RUN_RANGE] = 200, _written(base64.b64decode(put).decode())

        etcd.heard = heard
        assert await found.claim("nightly", 60.0) == ""
