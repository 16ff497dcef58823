"""``ha.cmd``: one command for minions of all masters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.commands.minions import cmd_batches
from saltext_ha.common.errors import (
    HaError,
    PeerMistrust,
    PeerUnreachable,
    PublishingTimedOut,
)
from saltext_ha.minions import own_jobs
from saltext_ha.minions.own_jobs import NO_ROOM
from saltext_ha.minions.publishing import new_jids
from saltext_ha.salt_bus import intake
from saltext_ha.transport import control_client
from tests.functional.minions.world import SECONDS, failover, hot, world
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)


@in_a_loop
async def test_a_master_of_masters_does_not_know_who_is_below_its_syndics(tmp_path: Path) -> None:
    """Salt publishes there, whoever matches; the salt-master that is played here does so always."""
    async with world(tmp_path, options={"order_masters": True}, web1=hot("m1", "m2")) as there:
        for target in "below*", "below1", ["below1"]:
            planned = await there.run("cmd", target, "test.arg", test=True)
            assert (planned["targets"], planned["retcode"]) == ([{"m1": target}], 0)
            ran = await there.run("cmd", target, "test.arg", timeout=SECONDS)
            assert there.jids("m1")[-1] == ran["jobs"][0]["m1"]
            assert (ran["returned"], ran["retcode"]) == ({}, 1)


@pytest.mark.parametrize("test", [False, True])
@in_a_loop
async def test_a_batch_is_not_published_for_all_below_syndics_at_once(
    tmp_path: Path, test: bool
) -> None:
    async with world(tmp_path, options={"order_masters": True}, web1=hot("m1", "m2")) as there:
        for target in "below*", ["below1", "below2"]:
            told = await there.run("cmd", target, "test.arg", batch=1, test=test)
            assert "those below its syndics" in told["error"]
            assert told["retcode"] == 2
        assert there.jids() == []
        ran = await there.run("cmd", "*", "test.arg", batch=1, test=test)
        assert ran["targets"] == [{"m1": ["web1"]}]


@in_a_loop
async def test_a_batch_for_nobody_is_not_published(tmp_path: Path) -> None:
    """Salt may find minions in its key folder that an engine with a lost replica does not know."""
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        for target in "lost*", ["lost1", "lost2"]:
            ran = await there.run("cmd", target, "test.arg", batch=1, timeout=SECONDS)
            assert (ran["jobs"], ran["returned"], ran["retcode"]) == ([{}], {}, 1)
            assert ran["unreachable"] == (target if isinstance(target, list) else [])
        assert there.jids() == []


@in_a_loop
async def test_a_job_that_may_have_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, fo2=failover("m2")) as there:
        there.start("m2", "fo2")
        contact = there.m1.link(there.m2).contact
        real = contact.call

        async def call(method: str, *more: Any) -> dict[str, Any]:
            if method == "job_run":
                raise PeerUnreachable("10.0.0.2:4530 timed out")
            return await real(method, *more)

        monkeypatch.setattr(contact, "call", call)
        ran = await there.run("cmd", "fo2", "test.arg", timeout=SECONDS)
        assert "timed out; may have run: job 20" in ran["unknown"]["m2"]
        assert (ran["jobs"], ran["retcode"]) == ([{}], 2)

        async def strange(method: str, *more: Any) -> dict[str, Any]:
            if method == "job_run":
                raise PeerMistrust("10.0.0.2:4530 shows another certificate")
            return await real(method, *more)

        monkeypatch.setattr(contact, "call", strange)
        ran = await there.run("cmd", "fo2", "test.arg", timeout=SECONDS)
        assert ran["unknown"] == {"m2": "10.0.0.2:4530 shows another certificate"}


@pytest.mark.parametrize(
    ("error", "may"), [(HaError("not taken"), False), (PublishingTimedOut("no answer"), True)]
)
@in_a_loop
async def test_a_job_that_its_master_may_yet_publish_is_named(
    tmp_path: Path, error: HaError, may: bool
) -> None:
    """Whichever master that is: this one, or a peer that says it of itself."""
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2")) as there:
        there.all_start()
        there.broken, there.error = {"m1", "m2"}, error
        ran = await there.run("cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["jobs"], ran["retcode"]) == ([{}], 2)
        for name in ("m1", "m2"):
            said = ran["unknown"][name]
            assert said.startswith(f"{name} could not publish: {error}")
            assert ("; may have run: job 20" in said) is may


@in_a_loop
async def test_one_command_for_the_whole_group(tmp_path: Path) -> None:
    minions = {"both": hot("m1", "m2"), "fo1": failover("m1"), "fo2": failover("m2")}
    async with world(tmp_path, **minions) as there:
        planned = await there.run("cmd", "*", "test.arg", test=True)
        assert planned["targets"] == [{"m1": "( * ) and not L@fo2", "m2": "( * ) and L@fo2"}]
        assert (planned["returned"], planned["jobs"]) == ({}, [{}])
        nothing = await there.run("cmd", "nosuch*", "test.arg", test=True)
        assert (nothing["targets"], nothing["retcode"]) == ([{}], 1)
        for known, retcode in (["fo1"], 0), ([], 1):
            listed = [*known, "nosuch"]
            for more in {}, {"batch": 1}:
                planned = await there.run("cmd", listed, "test.arg", test=True, **more)
                assert (planned["unreachable"], planned["retcode"]) == (["nosuch"], retcode)
        assert there.jids() == []
        ran = await there.run("cmd", ["fo1", "fo2", "both"], "test.arg", 1, x=2, timeout=SECONDS)
        value = [1, {"__kwarg__": True, "x": 2}]
        assert ran["returned"] == dict.fromkeys(("both", "fo1", "fo2"), value)
        assert (ran["retcode"], ran["missing"], ran["unknown"]) == (0, {}, {})
        assert ran["jobs"][0].keys() == {"m1", "m2"}
        once = {i: each.asked.count("test.arg") for i, each in there.minions.items()}
        assert once == dict.fromkeys(("both", "fo1", "fo2"), 1)
        ran = await there.run("cmd", "*", "test.arg", batch=1, timeout=SECONDS)
        assert (len(ran["jobs"]), len(ran["returned"]), ran["retcode"]) == (3, 3, 0)
        there.minions["fo2"].hears = set()
        ran = await there.run("cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["missing"], ran["retcode"]) == ({"fo2": "m2"}, 1)
        for wrong, said in (
            ({"fun": "ping"}, "no function"),
            ({"fun": "test.ping", "tgt_type": "range"}, "tgt_type"),
            ({"fun": "test.ping", "batch": "some"}, "batch"),
            ({"fun": "test.ping", "timeout": 0}, "timeout=0"),
        ):
            refused = await there.run("cmd", "*", **wrong)
            assert (refused["kind"], refused["retcode"]) == ("error", 2)
            assert said in refused["error"]
        there.m2.made.jobs.here.takes_commands = False
        ran = await there.run("cmd", ["fo1", "fo2"], "test.ping", timeout=SECONDS)
        assert (ran["returned"], ran["retcode"]) == ({"fo1": True}, 2)
        assert "takes no commands" in ran["unknown"]["m2"]
        assert "older" not in ran["unknown"]["m2"]


@dataclass
class Errors:
    """What is written to standard error."""

    capsys: pytest.CaptureFixture[str]
    lines: list[str] = field(default_factory=list)

    def has(self, line: str) -> bool:
        self.lines += self.capsys.readouterr().err.splitlines()
        return line in self.lines


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Errors:
    """Progress is said twenty times a second; what was said."""
    monkeypatch.setattr(cmd_batches, "EACH", 0.05)
    return Errors(capsys)


@in_a_loop
async def test_how_far_a_command_is_is_said_while_it_runs(tmp_path: Path, errors: Errors) -> None:
    minions = {"fo1": failover("m1"), "fo2": failover("m2"), "slow": failover("m2", busy=True)}
    async with world(tmp_path, **minions, last=failover("m2", busy=True)) as there:
        asked: dict[str, Any] = {"timeout": 30, "progress": True}
        wanted = ["fo1", "fo2", "slow", "last"]
        running = asyncio.ensure_future(there.run("cmd", wanted, "test.arg", **asked))
        await until(lambda: errors.has("2 of 4 returned, 0 failed"), "two have returned")
        there.late("slow", 1)
        await until(lambda: errors.has("3 of 4 returned, 1 failed"), "the next one")
        there.late("last")
        ran = await running
        assert (ran["missing"], ran["failed"]) == ({}, {"slow": 1})
        assert errors.has("done: 4 returned, 1 failed, 0 missing")
        assert len(errors.lines) == len(set(errors.lines)), "only what has changed"

        there.minions["slow"].busy = True
        running = asyncio.ensure_future(there.run("cmd", wanted[:3], "test.arg", batch=2, **asked))
        await until(lambda: errors.has("batch 2 of 2: 0 of 1 returned, 0 failed"), "batch 2")
        assert errors.has("batch 1 of 2 done, in all: 2 returned, 0 failed, 0 missing")
        there.late("slow")
        await running
        assert errors.has("batch 2 of 2 done, in all: 3 returned, 0 failed, 0 missing")


@in_a_loop
async def test_how_far_it_is_elsewhere_may_be_unknown(
    tmp_path: Path, errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True), "slow": hot("m1")}
    minions["slow"].busy = True
    async with world(tmp_path, **minions) as there:
        theirs = there.m2.made.jobs

        async def older(payload: Any) -> dict[str, Any]:  # it does not know what it is asked
            return {"returned": {}}

        theirs.here.strays = older  # type: ignore[method-assign]
        running = asyncio.ensure_future(there.run("cmd", "*", "test.arg", timeout=3, progress=True))
        line = "1 returned, 0 failed; nothing is known of m2"
        await until(lambda: errors.has(line), "m2 does not say")
        ran = await running
        assert ran["missing"] == {"fo2": "m2", "slow": "m1"}
        assert errors.has(line), "and nothing is left unread"
        # How many there are is said only when m2 has ended, too.
        totals = [each for each in errors.lines if " of " in each.partition(";")[0]]
        assert all(each.startswith("1 of 3 returned") for each in totals), totals
        assert await there.run("cmd", "*", "test.arg", test=True, progress=True)


@in_a_loop
async def test_a_master_that_is_down_is_not_tried_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure would have its link wait longer before it tries again."""
    async with world(tmp_path, fo1=failover("m1")) as there:
        link, (jid,) = there.m1.link(there.m2), new_jids(1)
        contact = link.contact
        ours = there.m1.made.jobs
        known, unknown = await ours.counts({"m2": jid, "m1": jid})
        assert (known.keys(), unknown) == ({"m1", "m2"}, {})
        asked: list[str] = []
        real = contact.call

        async def call(method: str, *more: Any) -> dict[str, Any]:
            asked.append(method)
            return await real(method, *more)

        monkeypatch.setattr(contact, "call", call)
        async with link._round:  # nor does the link try it meanwhile
            contact.up, contact.error = False, "refused the connection"
            assert await ours.counts({"m2": jid}) == ({}, {"m2": "refused the connection"})
        assert "job_strays" not in asked


@in_a_loop
async def test_an_operation_is_known_by_its_name_while_it_lasts(tmp_path: Path) -> None:
    name = "0123456789abcdef" * 2
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True)}
    async with world(tmp_path, **minions) as there:
        socket = there.m1.place.config.control_socket
        job = {"tgt": "*", "fun": "test.arg", "timeout": 3, "operation": name}

        async def asked(what: str, **payload: Any) -> dict[str, Any]:
            return await asyncio.to_thread(control_client.request, socket, what, payload)

        for wrong in ("", "x", 5, ["a"], name + "0", name.upper()):
            for what in ("cmd", "cmd_progress"):
                with pytest.raises(HaError, match="operation: takes 32"):
                    await asked(what, **{**job, "operation": wrong})
        none = {"masters": {}, "unknown": {}}
        assert await asked("cmd_progress", operation=name) == none
        running = asyncio.ensure_future(asked("cmd", **job))
        told = none
        while not told["masters"].get("m1", {}).get("returned"):
            told = await asked("cmd_progress", operation=name)
        assert told["masters"]["m1"] == {"targeted": 1, "returned": 1, "failed": 0}
        assert told["masters"]["m2"]["returned"] == 0
        with pytest.raises(HaError, match="under way already"):
            await asked("cmd", **job)
        await running
        assert await asked("cmd_progress", operation=name) == none, "nothing is kept of it"


@in_a_loop
async def test_who_has_not_returned_is_asked_whether_it_still_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {
        "busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True),
        "fo2": failover("m2"), "gone": failover(),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        ran = await there.run("cmd", "*", "test.arg", 1, timeout=SECONDS)
        assert ran["running"] == {f"busy{n}": ran["jobs"][0][f"m{n}"] for n in (1, 2)}
        assert ran["missing"] == {"busy1": "m1", "busy2": "m2", "gone": "m1"}
        assert (ran["returned"], ran["retcode"]) == ({"fo2": [1]}, 1)
        looked = [name for name, fun, _ in there.published if fun == "saltutil.find_job"]
        assert sorted(looked) == ["m1", "m2"]
        assert "saltutil.find_job" not in minions["fo2"].asked, "it has returned"
        # In batches, too; and where it cannot be asked, nobody said so.
        ran = await there.run("cmd", "busy*", "test.arg", batch=1, timeout=SECONDS)
        assert ran["running"] == {f"busy{n}": ran["jobs"][n - 1][f"m{n}"] for n in (1, 2)}

        there.broken = {"saltutil.find_job"}
        ran = await there.run("cmd", "busy2", "test.arg", timeout=SECONDS)
        assert (ran["running"], ran["missing"], ran["unknown"]) == ({}, {"busy2": "m2"}, {})
        # All of them returned: nobody is asked.
        there.published.clear()
        await there.run("cmd", "fo2", "test.arg", timeout=SECONDS)
        assert there.functions == ["test.arg"]


@in_a_loop
async def test_who_returns_more_than_is_kept_has_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when thousands of minions return a highstate: none of them is missing."""
    monkeypatch.setattr(intake, "HELD_AT_LEAST", 20_000)
    async with world(tmp_path, **{f"web{n}": failover("m1") for n in range(8)}) as there:
        there.m1.parts.memory.suit(len(there.minions))
        ran = await there.run("cmd", "*", "test.arg", "x" * 5_000, timeout=SECONDS)
        assert (len(ran["returned"]), ran["missing"], ran["retcode"]) == (8, {}, 0)
        (jid,) = ran["jobs"][0].values()
        left_out = {"error": f"{NO_ROOM}; salt-run jobs.lookup_jid {jid} on m1 shows it"}
        whole = [value for value in ran["returned"].values() if value == ["x" * 5_000]]
        assert 0 < len(whole) < 4
        assert [*ran["returned"].values()].count(left_out) == 8 - len(whole)
        assert not there.m1.parts.memory.note()
        monkeypatch.setitem(intake.FIELDS, "return", intake.Size(100, 10_000))
        ran = await there.run("cmd", "web1", "test.arg", "x" * 10_001, timeout=SECONDS)
        assert ran["returned"]["web1"].startswith(intake.TOO_MUCH)
        assert "salt-run jobs.lookup_jid 2" in ran["returned"]["web1"]


@in_a_loop
async def test_who_is_slow_to_say_that_it_runs_it_has_the_time_that_salt_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the other master, too: as configured where it was asked for."""
    monkeypatch.setattr(own_jobs, "FINDING", 0.2)
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {"fo2": failover("m2"), "slow": failover("m2", busy=True, slow=1.0)}
    async with world(tmp_path, options={"gather_job_timeout": 10}, **minions) as there:
        there.all_start()
        ran = await there.run("cmd", "*", "test.arg", timeout=SECONDS)
        assert ran["running"] == {"slow": ran["jobs"][0]["m2"]}


@pytest.mark.parametrize("batch", [None, 1, "50%"])
@pytest.mark.parametrize("listed", [["fo1", "fo2", "typo"], "fo1,fo2,typo,"], ids=["list", "text"])
@in_a_loop
async def test_a_listed_id_without_a_key_is_told(
    tmp_path: Path, listed: list[str] | str, batch: int | str | None
) -> None:
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2")) as there:
        asked = {"tgt_type": "list", "timeout": SECONDS, "batch": batch}
        ran = await there.run("cmd", listed, "test.arg", **asked)
        assert set(ran["returned"]) == {"fo1", "fo2"}
        assert (ran["unreachable"], ran["retcode"]) == (["typo"], 1)


@in_a_loop
async def test_an_id_that_salt_has_made_a_number_of_is_refused(tmp_path: Path) -> None:
    """It may have been 0123, and 123 is another minion."""
    async with world(tmp_path, **{"123": failover("m1")}) as there:
        for number in (123, [123], 1.5, ["web1", 1.5]):
            for refused in (
                await there.run("where", number),
                await there.run("reachability", number),
                await there.run("cmd", number, "test.arg"),
                await there.run("install_minions", number),
            ):
                assert (refused["kind"], refused["retcode"]) == ("error", 2)
                assert "quote it twice" in refused["error"]
        for quoted in ("123", ["123"]):
            assert (await there.run("where", quoted))["retcode"] == 0
            ran = await there.run("cmd", quoted, "test.arg", timeout=SECONDS)
            assert ran["returned"].keys() == {"123"}
        for wrong in (True, None, [True], [None]):
            for refused in (
                await there.run("where", wrong),
                await there.run("cmd", wrong, "test.arg"),
            ):
                assert (refused["kind"], refused["retcode"]) == ("error", 2), wrong


@in_a_loop
async def test_a_job_id_reaches_minions_of_all_masters(tmp_path: Path) -> None:
    """For Salt, ``saltutil.kill_job jid=2026…`` has a number; msgpack takes none so large."""
    jid = 20261124120000123456
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2")) as there:
        there.all_start()
        ran = await there.run("cmd", "fo*", "test.arg", jid, jid=jid, timeout=SECONDS)
        assert ran["retcode"] == 0, ran
        told = [str(jid), {"__kwarg__": True, "jid": str(jid)}]
        assert ran["returned"] == {"fo1": told, "fo2": told}
