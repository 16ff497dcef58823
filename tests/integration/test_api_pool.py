"""
The salt-api pool against real salt-api processes of two real masters, with a minion on both.

Every job appends a line of its own to a file on the minion: that, not the pool, says what was run
how often.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import salt.payload

from lab import Master, Minion, wait_for
from lab.api import PASSWORD, USER, SaltApi, api_settings
from lab.master import listens
from saltext_ha.api import (
    CallFailed,
    Endpoint,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    SaltApiPool,
    Secret,
    TimedOut,
)
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.jobs import new_jid
from saltext_ha.api.master import MasterApi
from saltext_ha.api.minions import Minions
from saltext_ha.common.hysteresis import Rules
from tests.api_server import everything
from tests.certificates import self_signed
from tests.forwarder import SLOW, Forwarder
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, answers

numbers = itertools.count(1)
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "api-pool.md"


@dataclass
class Site:
    """m1 is asked over HTTP, so that a forwarder can read along; m2 over TLS."""

    m1: Master
    m2: Master
    api1: SaltApi
    api2: SaltApi
    web: Minion
    ca: Path
    ran: Path
    barriers: list[MasterApi]

    def pool(self, url1: str | None = None, **more: Any) -> SaltApiPool:
        masters = [
            {"name": "m1", "url": url1 or self.api1.url},
            {"name": "m2", "url": self.api2.url, "verify": str(self.ca)},
        ]
        usual = {"username": USER, "password": PASSWORD, "eauth": "file", "deadline": 120}
        # Probes only where a test is about them: they are logins, and would hide what calls do.
        quick = {"probe_interval": 600, "probe_timeout": 10, "spacing": 0.1, "rise": 2}
        pool = SaltApiPool(**{"masters": masters, **usual, **quick, **more})
        # There is no saltext-ha here to ask where minions are: that takes time, and is not tested.
        for master in pool._masters.values():
            pool._jobs._group._be_silent(master, "no saltext-ha", 600)
        return pool

    def job(self) -> tuple[str, str]:
        """A word of its own, and a command that appends it to the file."""
        word = f"job{next(numbers)}"
        return word, f"echo {word} >> {self.ran}"

    def runs(self) -> Counter[str]:
        return Counter(self.ran.read_text().split()) if self.ran.exists() else Counter()

    def settled(self, word: str) -> int:
        """How often *word* ran, when all that was published before has run, too."""
        self.answers()
        return self.runs()[word]

    def answers(self) -> None:
        """Wait until the minion answers both masters; it is connected to them a little earlier."""
        ping = {"client": "local", "tgt": "web", "fun": "test.ping"}
        for master in self.barriers:
            wait_for(
                lambda m=master: m.call(ping, Deadline(120)) == {"web": True},  # type: ignore[misc]
                SOON,
                "web answers",
            )


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        folder, addresses = lab.root / "api", [lab.new_address(), lab.new_address()]
        folder.mkdir()
        certificate = self_signed(folder, addresses[1])
        other = {"address": addresses[0], "port": lab.ports.cluster, "disable_ssl": True}
        m1, m2 = (
            lab.add_master(
                name,
                engine=False,
                address=address,
                config={
                    **api_settings(folder / name, address, lab.ports.api, pair),
                    # Beside rest_cherrypy, in the same process.
                    **({} if pair else {"rest_tornado": other}),
                },
            )
            for name, address, pair in (
                ("m1", addresses[0], None),
                ("m2", addresses[1], certificate),
            )
        )
        m1.share_master_key(m2)
        # Jobs as threads of the minion: fifty processes at once are not what is tested.
        web = lab.add_minion("web", [m1, m2], config={"multiprocessing": False})
        spare = lab.add_minion("spare", [m2])
        gone = lab.add_minion("gone", [m2])  # never started
        for master in (m1, m2):
            for minion in (web, spare):
                master.plant("minions", minion.name, minion.pub)
        gone.plant_key()
        lab.start_all([m1, m2, web, spare])
        with SaltApi(m1) as api1, SaltApi(m2) as api2:
            web.wait_ready()
            spare.wait_ready()
            for master in (m1, m2):
                answers(master, web)
            user = {"username": USER, "password": Secret(PASSWORD), "eauth": "file"}
            ca = certificate[0]
            barriers = [
                MasterApi(Endpoint(api1.url, **user), Rules()),
                MasterApi(Endpoint(api2.url, verify=str(ca), **user), Rules()),
            ]
            yield Site(m1, m2, api1, api2, web, ca, lab.root / "ran", barriers)


def healthy(pool: SaltApiPool) -> dict[str, bool | None]:
    return {master["name"]: master["healthy"] for master in pool.status()["masters"]}


@pytest.mark.core
def test_calls(site: Site) -> None:
    with site.pool() as pool:
        word, command = site.job()
        assert pool.local("web", "cmd.run", [command]) == {"web": ""}
        answer = pool.local("web", "test.arg", ["a", 2], {"x": [1]})["web"]
        assert answer["args"] == ["a", 2]
        assert answer["kwargs"]["x"] == [1]
        job = pool.local_async("web", "test.echo", ["hello"])
        assert (job.master, job.minions) == ("m1", ("web",))
        assert pool.wait(job) == {"web": "hello"}
        assert pool.wait(job.jid) == {"web": "hello"}
        assert pool.lookup(job.jid).complete
        assert not pool.lookup("20200101000000000000_1", "m1").found
        assert pool.local("nobody*", "test.ping") == {}
        assert pool.local("gone", "test.ping", timeout=1) == {}, "m1 does not know it"
        assert pool.local_async("nobody*", "test.ping").minions == ()

        assert pool.runner("test.arg", ["a"], {"x": 1}) == {"args": ["a"], "kwargs": {"x": 1}}
        assert pool.wheel("key.list_all")["minions"] == ["spare", "web"]
        assert pool.wheel("key.finger", kwarg={"match": "web"})["minions"].keys() == {"web"}
        with pytest.raises(CallFailed, match=r"m[12]: runner test\.arg_not_there"):
            pool.runner("test.arg_not_there", idempotent=True)
        assert site.settled(word) == 1
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both probed")


def test_rest_tornado_is_refused(site: Site) -> None:
    """Its answers have no full_return: each minion that returned would seem to be down."""
    port = site.m1.opts["rest_tornado"]["port"]
    url = f"http://{site.api1.address}:{port}"
    wait_for(lambda: listens((site.api1.address, port)), SOON, "rest_tornado listens")
    with SaltApiPool([url], username=USER, password=PASSWORD, eauth="file") as pool:
        with pytest.raises(NoMasterAvailable, match="it is rest_tornado"):
            pool.local("web", "test.ping")
        assert not pool.status()["healthy_count"]


def test_the_example_of_the_documentation(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    settings = {
        "SALT_MASTER_URLS": f"{site.api1.url},{site.api2.url}",
        "SALT_API_USERNAME": USER,
        "SALT_API_PASSWORD_FILE": str(password),
        "SALT_API_EAUTH": "file",
    }
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    text = DOCUMENTATION.read_text(encoding="utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    assert len(example.splitlines()) <= 22
    exec(example.replace("/etc/ssl/salt-ca.pem", str(site.ca)), {})
    shown = capsys.readouterr().out
    assert "{'web': True}" in shown
    assert "'status': 'online'" in shown or "'healthy': None" in shown


@pytest.mark.core
def test_minions_are_the_union_of_what_masters_see(site: Site) -> None:
    with site.pool() as pool:

        def all_in_time() -> Minions | None:
            seen = pool.minions(timeout=2)
            found = {(name, len(masters)) for name, masters in seen.masters.items()}
            return seen if found >= {("web", 2), ("spare", 1)} else None

        seen = wait_for(all_in_time, SOON, "all answer in time")
        assert seen.up == {"web", "spare"}, "spare listens to m2 only; m1 alone calls it down"
        assert seen.down == {"gone"}
        assert seen.masters["spare"] == ("m2",)
        assert sorted(seen.masters["web"]) == ["m1", "m2"]
        assert not seen.partial
    with site.pool("http://127.0.0.1:1") as pool:
        seen = pool.minions(timeout=2)
        assert seen.partial
        assert seen.unasked == {"m1": "refused the connection"}
        wait_for(lambda: "web" in pool.minions(timeout=2).up, SOON, "it answers in time")


@pytest.mark.core
@pytest.mark.parametrize(
    ("client", "fault"),
    [
        ("local", "reset"),
        ("local", "drop"),
        ("local", "silence"),
        ("local_async", "reset"),
        ("local_async", "drop"),
    ],
)
def test_a_job_whose_answer_is_lost_runs_once(site: Site, client: str, fault: Any) -> None:
    with Forwarder((site.api1.address, site.api1.port)) as between:
        # Half of the time is waited for an answer that is swallowed.
        with site.pool(between.url, deadline=40 if fault == "silence" else 120) as pool:
            pool.runner("test.arg")  # logged in
            trap = between.set(f'"client": "{client}"'.encode(), fault)
            word, command = site.job()
            if client == "local":
                assert pool.local("web", "cmd.run", [command]) == {"web": ""}
            else:
                job = pool.local_async("web", "cmd.run", [command])
                assert (job.master, job.minions) == ("m1", ("web",))
                assert pool.wait(job) == {"web": ""}
        assert trap.sprung == 1
        assert site.settled(word) == 1
        sent = [
            json.loads(_body(request))[0] for request in between.requests if trap.word in request
        ]
        assert len(sent) == (2 if fault == "drop" else 1)
        assert len({low["jid"] for low in sent}) == 1, "sent again with the same jid only"


@pytest.mark.core
def test_a_minion_runs_a_jid_once_whoever_sends_it(site: Site) -> None:
    """What sending again relies on."""
    word, command = site.job()
    low = {"client": "local_async", "tgt": "web", "fun": "cmd.run", "arg": [command]}
    with site.pool() as pool:
        low["jid"] = new_jid()
        for name in ("m1", "m1", "m2"):
            assert pool._masters[name].call(low, Deadline(60))["minions"] == ["web"]
        wait_for(lambda: site.runs()[word], SOON, "it runs")
        assert site.settled(word) == 1


def test_tokens_stay_with_their_master_and_are_renewed(site: Site) -> None:
    target = (site.api1.address, site.api1.port)
    with Forwarder(target) as a, Forwarder(target) as b:
        masters = [{"name": "a", "url": a.url}, {"name": "b", "url": b.url}]
        with site.pool(masters=masters, selection="round_robin") as pool:
            for _ in range(4):
                pool.runner("test.arg")
            tokens = [_tokens(forwarder) for forwarder in (a, b)]
            assert tokens[0]
            assert tokens[1]
            assert not tokens[0] & tokens[1]
            current = pool._masters["a"]._tokens.current
            assert current is not None
            requests.post(
                f"{a.url}/logout", headers={"X-Auth-Token": current.secret.read()}, timeout=SOON
            )
            word, command = site.job()
            for _ in range(2):
                pool.local("web", "cmd.run", [command])
            assert pool._masters["a"]._tokens.current is not current
            assert site.settled(word) == 2
        assert all(b"session_id" not in request for request in a.requests + b.requests)


@pytest.mark.core
@pytest.mark.parametrize("what", ["wrong", "of another master", "expired"])
def test_a_token_that_is_not_taken(site: Site, what: str) -> None:
    """Nothing was run with it: the pool logs in again, and sends the job once more."""
    with site.pool() as pool:
        pool.runner("test.arg")
        mine, other = (pool._masters[name]._tokens for name in ("m1", "m2"))
        former = mine.current
        assert former is not None
        if what == "expired":
            expire(site.m1)
        elif what == "wrong":
            mine._token = dataclasses.replace(
                former, secret=Secret("f" * len(former.secret.read()))
            )
        else:
            mine._token = dataclasses.replace(former, secret=other.get(Deadline(60)).secret)
        shown = mine.current
        assert shown is not None
        word, command = site.job()
        job = pool.local_async("web", "cmd.run", [command])
        assert (job.master, pool.wait(job)) == ("m1", {"web": ""})
        assert mine.current is not None
        taken = mine.current.secret.read()
        assert taken not in (shown.secret.read(), former.secret.read())
        assert healthy(pool)["m1"], "it is not the master that is at fault"
        assert site.settled(word) == 1


def test_a_token_that_ends_while_a_job_runs(site: Site, tmp_path: Path) -> None:
    """
    Salt asks silent minions with it whether they still run the job, and then says 401 of a job that
    was published long ago.
    """
    masters = [{"name": "m2", "url": site.api2.url, "verify": str(site.ca)}]
    # One minion returns at once, and would not do so again.
    first_is_quick = f"mkdir {tmp_path}/taken 2> /dev/null || sleep 9"
    with site.pool(masters=masters) as pool, ThreadPoolExecutor() as threads:
        pool.runner("test.arg")
        targets = ["web", "spare"]
        call = threads.submit(pool.local, targets, "cmd.run", [first_is_quick], timeout=3)
        wait_for((tmp_path / "taken").exists, SOON, "it was published")
        expire(site.m2)
        came = call.result()
        assert came == {"web": "", "spare": ""}
        assert healthy(pool)["m2"], "it is not the master that is at fault"
        assert set(pool.lookup(came.jids["m2"]).returned) == {"web", "spare"}


def expire(master: Master) -> None:
    """The eauth tokens that *master* has given end now, sooner than it said at the login."""
    found = list(Path(master.opts["token_dir"]).iterdir())
    assert found
    for path in found:
        token = salt.payload.loads(path.read_bytes())
        path.write_bytes(salt.payload.dumps({**token, "expire": time.time() - 1}))


def test_answers_that_are_slow(site: Site) -> None:
    target = (site.api1.address, site.api1.port)
    # One failure would be enough.
    with Forwarder(target) as between, site.pool(between.url, fall=1) as pool:
        pool.runner("test.arg")
        trap = between.set(b'"client": "local"', "slow")
        word, command = site.job()
        assert pool.local("web", "cmd.run", [command]) == {"web": ""}
        assert (trap.sprung, sent(between, trap.word)) == (1, 1), "it is waited for"
        assert healthy(pool)["m1"]
        # Slower than the caller has time for, and the job is found.
        between.slow = 24
        trap = between.set(b'"client": "local_async"', "slow")
        found, command = site.job()
        job = pool.local_async("web", "cmd.run", [command], deadline=40)
        assert (job.master, job.minions, pool.wait(job)) == ("m1", ("web",), {"web": ""})
        assert (trap.sprung, sent(between, trap.word)) == (1, 1)
        # So slow that it is not even found.
        between.slow = SLOW
        between.set(b"POST / ", "slow", times=99)
        late, command = site.job()
        with pytest.raises(OutcomeUnknown, match="sent to m1") as caught:
            pool.local_async("web", "cmd.run", [command], deadline=2)
        assert healthy(pool)["m1"], "slow is not down"
        between.set(b"", "slow", times=0)
        jid = caught.value.jid
        assert jid
        wait_for(lambda: pool.lookup(jid).found, SOON, "it is published")
        assert pool.wait(jid) == {"web": ""}
        assert [site.settled(each) for each in (word, found, late)] == [1, 1, 1]


def sent(between: Forwarder, word: bytes) -> int:
    """How many requests with *word* came through, whatever became of them."""
    return sum(word in request for request in between.requests)


def test_a_wrong_password(site: Site, tmp_path: Path) -> None:
    with Forwarder((site.api1.address, site.api1.port)) as between:
        file = tmp_path / "password"
        file.write_text("hunter2\n")
        entry = {"name": "m1", "url": between.url, "password_file": str(file)}
        other = {"name": "m2", "url": site.api2.url, "verify": str(site.ca)}
        with site.pool(masters=[entry, other]) as pool:
            assert pool.local_async("web", "test.ping").master == "m2"
        with site.pool(masters=[entry]) as pool:
            for _ in range(3):
                with pytest.raises(NotAuthorised, match=f"m1: login of {USER}") as caught:
                    pool.local("web", "test.ping")
            assert "hunter2" not in everything(caught.value)
            logins = [request for request in between.requests if b"POST /login" in request]
            assert len(logins) <= 4, "one a pool, and one a probe: accounts are locked after a few"
            file.write_text(f"{PASSWORD}\n")
            assert pool.local("web", "test.ping") == {"web": True}, "a new password is tried"


@pytest.mark.core
def test_salt_master_killed_while_salt_api_lives(site: Site) -> None:
    probing = {"probe_interval": 0.5, "probe_timeout": 5}
    with site.pool(**probing) as pool, site.pool() as blind:
        for one in (pool, blind):
            assert one.local_async("web", "test.ping").master == "m1"
        site.m1.kill()
        try:
            assert requests.get(site.api1.url, timeout=SOON).status_code == 200, (
                "this proves nothing"
            )
            word, command = site.job()
            # This pool has a token and no idea: the job may be anywhere between the two.
            with pytest.raises(OutcomeUnknown, match="sent to m1") as caught:
                blind.local_async("web", "cmd.run", [command], deadline=4)
            assert caught.value.jid
            again, command = site.job()
            blind.local("web", "cmd.run", [command], deadline=40, idempotent=True)
            assert site.runs()[again] == 1
            wait_for(lambda: healthy(pool) == {"m1": False, "m2": True}, SOON, "m1 is down")
            third, command = site.job()
            assert pool.local("web", "cmd.run", [command]) == {"web": ""}
            assert site.runs()[third] == 1
        finally:
            site.m1.start()
            site.web.wait_ready()
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "m1 is up")
        assert pool.local_async("web", "test.ping").master == "m1", "back to the preferred one"
        # "again" had leave to run twice, and did when m1 found the first one in its queue.
        assert 1 <= site.settled(again) <= 2
        assert site.runs()[third] == 1
        # m1 may have found it in its queue, and published it before the minion was back.
        assert site.runs()[word] <= pool.lookup(caught.value.jid, "m1").found


@pytest.mark.core
def test_salt_master_frozen(site: Site) -> None:
    with site.pool(probe_timeout=3) as pool, site.pool(probe_timeout=3) as patient:
        for one in (pool, patient):
            one.local_async("web", "test.ping")
        site.m1.suspend()
        try:
            lost, command = site.job()
            with pytest.raises(OutcomeUnknown) as caught:
                pool.local_async("web", "cmd.run", [command], deadline=3)
            found = pool.local_async("web", "test.ping", deadline=40)
            assert found.master == "m2", "it is looked at before a second one is lost"
            assert pool.runner("test.arg", ["x"], deadline=40)["args"] == ["x"], "m2 answers reads"
            with ThreadPoolExecutor(1) as thread:
                word, command = site.job()
                future = thread.submit(patient.local, "web", "cmd.run", [command], deadline=120)
                assert not done_within(future, 2)
                site.m1.resume()
                assert future.result() == {"web": ""}
        finally:
            site.m1.resume()
        assert site.settled(word) == 1
        jid = caught.value.jid
        assert jid
        status = wait_for(lambda: pool.lookup(jid, "m1"), SOON, "m1 tells")
        assert site.settled(lost) == status.found


def test_salt_api_frozen(site: Site) -> None:
    with site.pool(probe_interval=0.5, probe_timeout=5) as pool:
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both up")
        site.api1.daemon.suspend()
        try:
            assert pool.runner("test.arg", ["x"], deadline=40)["args"] == ["x"], "m2 answers reads"
            wait_for(lambda: healthy(pool) == {"m1": False, "m2": True}, SOON, "m1 is down")
            word, command = site.job()
            assert pool.local("web", "cmd.run", [command]) == {"web": ""}
        finally:
            site.api1.daemon.resume()
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "m1 is up")
        assert site.settled(word) == 1


def test_both_salt_masters_killed_and_back(site: Site) -> None:
    """Their salt-apis go on answering 200 on ``GET /``."""
    with site.pool(probe_interval=0.5, probe_timeout=5) as pool:
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both up")
        before, command = site.job()
        job = pool.local_async("web", "cmd.run", [command])
        assert pool.wait(job) == {"web": ""}
        for master in (site.m1, site.m2):
            master.kill()
        try:
            word, command = site.job()
            with pytest.raises(OutcomeUnknown) as caught:
                pool.local_async("web", "cmd.run", [command], deadline=4)
            wait_for(lambda: pool.status()["status"] == "offline", SOON, "both are down")
            with pytest.raises((NoMasterAvailable, TimedOut)):
                pool.runner("test.arg", deadline=4)
        finally:
            for master in (site.m1, site.m2):
                master.start()
            site.web.wait_ready()
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both up again")
        site.answers()
        after, command = site.job()
        assert pool.local("web", "cmd.run", [command]) == {"web": ""}
        assert pool.wait(job.jid) == {"web": ""}, "what was known is not lost"
        assert [site.settled(each) for each in (before, after)] == [1, 1]
        jid = caught.value.jid
        assert jid
        assert site.runs()[word] <= pool.lookup(jid, caught.value.master).found


def test_both_down_and_back(site: Site) -> None:
    with site.pool(probe_interval=0.5) as pool:
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both up")
        for api in (site.api1, site.api2):
            api.kill()
        for api in (site.api1, site.api2):
            # The last threads of a killed process keep its sockets for a moment.
            wait_for(lambda a=api: not listens((a.address, a.port)), SOON, "it is gone")
        try:
            with pytest.raises(NoMasterAvailable) as caught:
                pool.local("web", "test.ping", deadline=10)
            assert caught.value.reasons.keys() == {"m1", "m2"}
            assert "refused the connection" in caught.value.reasons["m1"]
            wait_for(lambda: pool.status()["status"] == "offline", SOON, "both down")
        finally:
            site.api2.daemon.spawn()
            site.api1.start()
            site.api2.start()
        word, command = site.job()
        assert pool.local("web", "cmd.run", [command]) == {"web": ""}
        wait_for(lambda: healthy(pool) == {"m1": True, "m2": True}, SOON, "both up again")
        assert site.settled(word) == 1


def test_fifty_threads_while_things_break(site: Site) -> None:
    # Its jobs take a minion of one core a minute; how long is not what is tested.
    with Forwarder((site.api1.address, site.api1.port)) as between:
        with site.pool(between.url, selection="round_robin", deadline=240) as pool:
            pool.runner("test.arg")
            trap = between.set(b'"fun": "cmd.run"', "reset", times=5)
            jobs = [site.job() for _ in range(50)]

            def run(job: tuple[str, str]) -> None:
                assert pool.local("web", "cmd.run", [job[1]], timeout=200) == {"web": ""}

            with ThreadPoolExecutor(50) as threads:
                futures = [threads.submit(run, job) for job in jobs]
                wait_for(lambda: site.runs()[jobs[0][0]] or trap.sprung == 5, SOON, "under way")
                site.api1.kill()
                site.api1.start()
                outcomes = [future.exception() for future in futures]
        for (word, _), outcome in zip(jobs, outcomes, strict=True):
            assert outcome is None, f"{word}: {outcome}"
            assert site.runs()[word] == 1
        assert trap.sprung == 5


def done_within(future: Future[Any], seconds: float) -> bool:
    try:
        future.result(seconds)
    except FutureTimeout:
        return False
    return True


def _body(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


def _tokens(forwarder: Forwarder) -> set[bytes]:
    return {
        line.partition(b":")[2].strip()
        for request in forwarder.requests
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"x-auth-token:")
    }
