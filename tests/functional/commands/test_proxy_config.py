"""``ha.proxy_config`` over engines that tell each other where their salt-api is, or cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.engines import Place, free_port
from tests.engines import met, run
from tests.functional.comparing import place
from tests.loop import in_a_loop

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


def master(root: Path, name: str, port: int | None, **ha: Any) -> Place:
    """A master with a salt-api on *port* of an address of its own, or without one."""
    own = {"host": f"127.0.0.{name[1:]}", "port": port, "disable_ssl": True}
    api = {} if port is None else {"rest_cherrypy": own}
    more = {"address": "127.0.0.1", "listen_host": "127.0.0.1", **ha}
    return place(root, name, more, **api)


@in_a_loop
async def test_masters_that_answer_and_one_that_does_not(tmp_path: Path) -> None:
    port = free_port()
    m1 = master(tmp_path, "m1", 8001, status={"port": port})
    m2, m3 = (master(tmp_path, name, 8002) for name in ("m2", "m3"))
    async with met(m1, m2, m3) as engines:
        told = await run(m1, "proxy_config", "haproxy")
        assert (told["kind"], told["retcode"]) == ("proxy_config", 0)
        assert [(row["name"], row["api"], row["ready"]) for row in told["masters"]] == [
            ("m1", "127.0.0.1:8001", f"127.0.0.1:{port}"),
            ("m2", "127.0.0.2:8002", None),
            ("m3", "127.0.0.3:8002", None),
        ]
        assert not any(row["unknown"] for row in told["masters"])
        await engines[2].stop()
        told = await run(m1, "proxy_config", "haproxy")
        assert told["retcode"] == 2
        gone = told["masters"][2]
        assert gone["name"] == "m3"
        assert "refused the connection" in gone["unknown"]
        # What is assumed of it is what the first of those says who are most alike.
        assert gone["api"] in ("127.0.0.1:8001", "127.0.0.1:8002")
        assert f"server m3 {gone['api']} check" in told["text"]
        told = await run(m1, "proxy_config", "nginx", api_port=8003)
        assert told["masters"][2]["api"] == "127.0.0.1:8003"
        assert [row["api"] for row in told["masters"][:2]] == ["127.0.0.1:8001", "127.0.0.2:8002"]
        assert "server 127.0.0.1:8003 max_fails" in told["text"]


@in_a_loop
async def test_one_that_is_down_is_assumed_to_be_like_most(tmp_path: Path) -> None:
    places = [master(tmp_path, "m1", 8001), *(master(tmp_path, f"m{n}", 8002) for n in (2, 3, 4))]
    async with met(*places) as engines:
        await engines[3].stop()
        told = await run(places[0], "proxy_config", "haproxy")
        assert told["masters"][3]["api"] == "127.0.0.1:8002"
        assert "NOTE m4 could not be asked; assumed: 127.0.0.1:8002, no TLS." in told["text"]


@in_a_loop
async def test_a_master_without_salt_api_and_nobody_with_one(tmp_path: Path) -> None:
    m1, m2 = master(tmp_path, "m1", None), master(tmp_path, "m2", 8002)
    m3 = master(tmp_path, "m3", None)
    async with met(m1, m2, m3) as engines:
        told = await run(m1, "proxy_config", "nginx")
        assert told["retcode"] == 0
        assert [row["api"] for row in told["masters"]] == [None, "127.0.0.2:8002", None]
        assert "NOTE m1 is left out" in told["text"]
        await engines[1].stop()
        told = await run(m1, "proxy_config", "nginx")
        assert (told["kind"], told["retcode"]) == ("error", 2)
        assert "no master of the group has a salt-api" in told["error"]
