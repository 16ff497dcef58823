"""A leader by etcd, real: exactly one or none, whatever is killed or stopped."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.etcd import Member, cluster
from saltext_ha.common.errors import EtcdError
from saltext_ha.config.leader import ETCD, LeaderSettings
from saltext_ha.once import etcd_leader
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.etcd_client import CANNOT, EtcdClient
from saltext_ha.once.etcd_leader import EtcdLeader
from tests.loop import in_a_loop, until
from tests.tools import program

TTL = 4
LONG = 15
"""Seconds of a lease that is not to end by itself, however busy the machine is."""
SOON = 120.0
SLOW = 3.0


class Masters:
    """Leaders of several masters, and whether ever two of them led at once."""

    def __init__(self, settings: LeaderSettings, *names: str) -> None:
        self.unfit = dict.fromkeys(names, "")
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.leaders = {
            name: EtcdLeader(
                Candidate(
                    name,
                    lambda name=name: self.unfit[name],  # type: ignore[misc]
                    lambda tag, data: self.events.append((tag, data)),
                ),
                "g",
                settings,
                names.__contains__,
            )
            for name in names
        }
        self.tasks = {n: asyncio.ensure_future(each.run()) for n, each in self.leaders.items()}
        self.twice = False
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            self.twice |= len(self.leading()) > 1
            await asyncio.sleep(0.005)

    def leading(self) -> list[str]:
        return [name for name, each in self.leaders.items() if each.standing.leads]

    def known(self) -> set[str]:
        return {each.standing.leader for each in self.leaders.values()}

    async def one_leads(self, *but: str) -> str:
        def known() -> bool:
            return len(self.leading()) == 1 and self.leading()[0] not in but

        await until(known, "one leads", SOON)
        return self.leading()[0]

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[name]

    async def close(self) -> None:
        self._watching.cancel()
        for name in self.tasks:
            await self.stop(name)


@contextlib.asynccontextmanager
async def masters(members: list[Member], *names: str, **more: Any) -> AsyncIterator[Masters]:
    endpoints = tuple(each.endpoint for each in members)
    settings = LeaderSettings(ETCD, endpoints=endpoints, **{"ttl": TTL, **more})
    found = Masters(settings, *names)
    try:
        yield found
    finally:
        await found.close()


@in_a_loop
async def test_one_leads_and_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_leader, "GIVING_BACK", SOON)  # however busy the machine is
    with cluster(tmp_path, 1) as members:
        async with masters(members, "m1", "m2", "m3", ttl=LONG) as group:
            first = await group.one_leads()
            await until(lambda: group.known() == {first}, "all know")
            fence = group.leaders[first].standing.fence
            group.unfit[first] = "drained"
            assert group.leading() == [], "it does not lead from that instant on"
            second = await group.one_leads(first)
            assert (group.leaders[second].standing.fence or 0) > (fence or 0)
            began = time.monotonic()
            await group.stop(second)  # as an engine ends: it gives the key back
            group.leaders.pop(second)
            third = await group.one_leads()
            assert time.monotonic() - began < LONG
            await until(lambda: group.known() == {third}, "all know")
            group.unfit[third] = "drained"
            await until(lambda: group.known() == {""}, "nobody leads")
            last = group.leaders[third]
            await until(lambda: "this one may not lead: drained" in last.standing.why, "it says so")
            assert not group.twice
            assert ("leader", {"leader": first, "before": None}) in group.events


@in_a_loop
async def test_members_of_etcd_are_killed_and_stopped(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as members:
        async with masters(members, "m1", "m2", ttl=LONG) as group:
            leader = await group.one_leads()
            members[0].kill()
            # As long as two are there, it goes on: for more than the life of a lease.
            end = time.monotonic() + LONG + 2
            await until(lambda: time.monotonic() > end, "time goes by")
            assert group.leading() == [leader]
            members[1].send(signal.SIGSTOP)
            await until(lambda: group.leading() == [], "nobody leads without a quorum", SOON)
            await until(lambda: group.known() == {""}, "all know that nobody does", SOON)
            for each in group.leaders.values():
                assert members[1].endpoint in each.standing.why
            members[1].send(signal.SIGCONT)
            await group.one_leads()
            members[0].start(members)
            await until(lambda: members[0].healthy, "it is back", SOON)
            for member in members[1:]:
                member.send(signal.SIGSTOP)
            await until(lambda: group.leading() == [], "nobody leads", SOON)
            for member in members[1:]:
                member.send(signal.SIGCONT)
            await group.one_leads()
            assert not group.twice


@in_a_loop
async def test_the_disks_of_etcd_become_slow(tmp_path: Path) -> None:
    """To prolong a lease, and to look, etcd needs no disk; what is written waits for two."""
    with cluster(tmp_path, 3, disk=True) as members:
        async with masters(members, "m1", "m2") as group:

            async def goes_on(name: str) -> None:
                """Where the machine itself is so slow that etcd elects anew, nobody leads."""
                end = time.monotonic() + 2 * TTL
                await until(lambda: time.monotonic() > end, "time goes by")
                assert group.leading() in ([name], [])

            first = await group.one_leads()
            (other,) = group.unfit.keys() - {first}
            group.unfit[other] = "drained"  # or it may lead where a lease ends for that reason
            slow = [next(each for each in members if not each.leads)]
            slow[0].slow_down(SLOW)
            await goes_on(first)
            group.unfit = {first: "drained", other: ""}
            second = await group.one_leads(first)
            for each in members:
                if each not in slow:
                    each.slow_down(SLOW)
            await goes_on(second)
            group.unfit = {first: "", second: "drained"}
            why: Callable[[], str] = lambda: group.leaders[first].standing.why  # noqa: E731
            await until(
                lambda: (
                    set(why().removeprefix(CANNOT).removesuffix(": timed out").split(", "))
                    == {each.endpoint for each in members}
                ),
                "it is said",
                SOON,
            )
            assert group.leading() == []
            for member in members:
                member.speed_up()
            assert await group.one_leads() == first
            await until(lambda: group.known() == {first}, "all know", SOON)
            assert not group.twice


@in_a_loop
async def test_a_leader_that_was_stopped_leads_no_more(tmp_path: Path) -> None:
    """As by SIGSTOP: its clock goes on, and nothing of it runs."""
    with cluster(tmp_path, 1) as members:
        async with masters(members, "m1", "m2") as group:
            first = await group.one_leads()
            leader = group.leaders[first]
            shifted = [0.0]
            clock = leader._clock
            leader._clock = lambda: clock() + shifted[0]
            group.tasks[first].cancel()  # nothing of it runs any more; its lease is not given back
            shifted[0] = TTL * 0.91
            assert not leader.standing.leads, "it ceases before the lease ends"
            assert not group.twice
            await group.one_leads(first)


@in_a_loop
async def test_an_earlier_start_of_the_same_master_is_not_this_one(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        client = EtcdClient(LeaderSettings(ETCD, endpoints=(members[0].endpoint,)), SOON)
        lease, _ = await client.grant(60)
        await client.take("/salt-ha/g/leader", "m1 0123", lease)
        async with masters(members, "m1") as group:
            await until(
                lambda: "an earlier lease" in group.leaders["m1"].standing.why, "it is said"
            )
            assert group.leading() == []
            await client.revoke(lease)  # it ends
            await group.one_leads()
        await client.close()


@in_a_loop
async def test_etcd_with_users_and_a_password(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as members:
        client = EtcdClient(LeaderSettings(ETCD, endpoints=(members[0].endpoint,)), SOON)
        for path, payload in (
            ("auth/user/add", {"name": "root", "password": "secret"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            await client._call(path, payload, dict)
        with pytest.raises(EtcdError, match="user"):
            await client.get("/salt-ha/g/leader")
        await client.close()
        async with masters(members, "m1", username="root", password="wrong") as group:
            await until(
                lambda: "refuses the login of root" in group.leaders["m1"].standing.why,
                "it is said",
            )
            assert "wrong" not in group.leaders["m1"].standing.why
        access = {"username": "root", "password": "secret", "ttl": LONG}  # a login takes etcd long
        async with masters(members, "m1", "m2", **access) as group:
            leader = await group.one_leads()
            members[0].kill()  # its tokens are in memory: they end with it
            members[0].start(members)
            await until(lambda: members[0].healthy, "it is back", SOON)
            assert await group.one_leads() in ("m1", "m2")
            assert leader


@in_a_loop
async def test_what_is_wrong_with_etcd_is_told(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, "--enable-grpc-gateway=false") as members:
        async with masters(members, "m1") as group:
            said = "enable-grpc-gateway: true"
            await until(lambda: said in group.leaders["m1"].standing.why, "it is said")
        members[0].kill()
        async with masters(members, "m1") as group:
            await until(lambda: "refused" in group.leaders["m1"].standing.why, "it is said")
            assert group.leading() == []


@in_a_loop
async def test_by_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    more = (
        *("--cert-file", str(files["server.pem"]), "--key-file", str(files["server.key"])),
        *("--trusted-ca-file", str(files["ca.pem"]), "--client-cert-auth"),
    )
    member = Member(tmp_path, "etcd0", *more)
    member.scheme = "https"
    member.start([member])
    try:
        own = {"ca": files["ca.pem"], "cert": files["client.pem"], "key": files["client.key"]}
        async with masters([member], "m1", **own) as group:
            assert await group.one_leads() == "m1"
        renewed = tmp_path / "renewed.pem"
        shutil.copy(files["expired.pem"], renewed)
        for given, says in (
            ({"ca": files["ca.pem"]}, "is cert: set, valid, and of a CA that it trusts?"),
            ({}, "give in ca: the file with the CA of its certificate"),
            ({**own, "cert": renewed}, "is cert: set, valid, and of a CA that it trusts?"),
        ):
            async with masters([member], "m1", **given) as group:
                found = group.leaders["m1"]
                await until(lambda it=found: member.endpoint in it.standing.why, "it is refused")
                assert says in found.standing.why
                assert group.leading() == []
                if given.get("cert") == renewed:
                    shutil.copy(files["client.pem"], renewed)
                    await group.one_leads()
    finally:
        member.kill()


def certificates(folder: Path) -> dict[str, Path]:
    """
    Of an authority, and of a server and a client that it signed; and one of that client that has
    expired.
    """
    openssl = program("openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], check=True, capture_output=True, cwd=folder)

    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *made, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        run("req", *made, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        asked = ("-req", "-in", f"{name}.csr", "-out", f"{name}.pem")
        run("x509", *asked, *signed, "-extfile", f"{name}.ext")
    run("x509", "-req", "-in", "client.csr", "-out", "expired.pem", *signed, "-days", "0")
    return {path.name: path for path in folder.iterdir() if path.is_file()}
