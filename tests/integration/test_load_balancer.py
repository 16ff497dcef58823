"""
``ha.proxy_config`` as an operator uses it: what it prints goes into the real haproxy and nginx, in
front of the salt-api of two real masters, which are then killed and frozen.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from lab import Lab, Master, wait_for
from lab.api import PASSWORD, USER, SaltApi, api_settings
from lab.master import listens
from tests.balancer import Balancer, From, pem
from tests.integration.bus import heard
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, frozen, meet, parts

KINDS = ["haproxy", "nginx"]
# A login that hangs is given up after 15 s, and tried on the other master.
LONG = 240.0
CALL = 5  # seconds that one call may take, where that is short
CREDENTIALS = {"username": USER, "password": PASSWORD, "eauth": "file"}
TRAINEE = {**CREDENTIALS, "username": "trainee"}  # may run some runners only
sources = itertools.count(1)


class Caller:
    """An application with an address of its own; it logs in once, and again after a 401."""

    def __init__(self, url: str, ca: Path, address: str = "") -> None:
        self._session = requests.Session()
        self._session.verify, self._session.trust_env = str(ca), False
        self.address = address or f"127.88.1.{next(sources)}"
        self._session.mount("https://", From(self.address))
        self._url, self._token, self.refused = url, "", 0

    def close(self) -> None:
        self._session.close()

    def login(self, credentials: dict[str, str] = CREDENTIALS) -> None:
        answer = self._session.post(f"{self._url}/login", json=credentials, timeout=LONG)
        answer.raise_for_status()
        self._token = answer.json()["return"][0]["token"]
        # It is the header that tells; a browser's cookie would, too.
        self._session.cookies.clear()

    def take_over(self, other: Caller) -> None:
        """Use the token of *other*."""
        self._token = other._token

    def send(self, *lows: dict[str, Any], path: str = "") -> requests.Response:
        """Whatever is answered."""
        headers = {"X-Auth-Token": self._token, "Accept": "application/json"}
        url = self._url + path
        answer = self._session.post(url, json=list(lows), headers=headers, timeout=LONG)
        self._session.cookies.clear()
        return answer

    def master(self) -> str:
        """Call a runner; which master ran it."""
        low = {"client": "runner", "fun": "config.get", "arg": ["id"]}
        answer = self.send(low) if self._token else None
        if answer is None or answer.status_code == 401:
            self.refused += answer is not None
            self.login()
            answer = self.send(low)
        answer.raise_for_status()
        return str(answer.json()["return"][0]).removesuffix("_master")

    def get(self, path: str) -> int:
        """The status of a page."""
        headers = {"X-Auth-Token": self._token}
        answer = self._session.get(self._url + path, headers=headers, timeout=LONG)
        self._session.cookies.clear()
        return answer.status_code

    @contextmanager
    def events(self) -> Iterator[Iterator[bytes]]:
        headers = {"X-Auth-Token": self._token, "Accept": "text/event-stream"}
        with self._session.get(
            f"{self._url}/events", headers=headers, stream=True, timeout=LONG
        ) as answer:
            answer.raise_for_status()
            yield answer.iter_lines(chunk_size=1)


@dataclass(frozen=True)
class Printed:
    """What was printed for one kind, where it listens, and whom its certificate is checked by."""

    text: str
    address: str
    ca: Path


@dataclass(frozen=True)
class Site:
    """Two masters with salt-api, and what the first of them printed."""

    lab: Lab
    masters: list[Master]
    apis: list[SaltApi]
    printed: dict[str, Printed]


class Door:
    """A balancer that has just been started, and those who come to it."""

    def __init__(self, kind: str, site: Site, balancer: Balancer) -> None:
        self.kind, self._balancer = kind, balancer
        self._ca, self._callers = site.printed[kind].ca, list[Caller]()

    def caller(self, address: str = "") -> Caller:
        """Somebody with an address of its own, or another one with that *address*."""
        made = Caller(self._balancer.url, self._ca, address)
        self._callers.append(made)
        return made

    def on_both(self) -> tuple[Caller, Caller]:
        """A caller that is on m1, and one that is on m2."""
        found: dict[str, Caller] = {}

        def both() -> bool:
            caller = self.caller()
            found.setdefault(caller.master(), caller)
            return found.keys() == {"m1", "m2"}

        wait_for(both, LONG, "callers are on both masters")
        return found["m1"], found["m2"]

    def close(self) -> None:
        for caller in self._callers:
            caller.close()


@pytest.fixture(scope="module")
def site(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with make_lab() as lab:
        masters = []
        for name in ("m1", "m2"):
            address = lab.new_address()
            folder = lab.root / f"api-{name}"
            settings = api_settings(folder, address, lab.ports.api)
            with (folder / "api-users").open("a", encoding="utf-8") as users:
                users.write(f"trainee:{PASSWORD}\n")
            allowed = [{"@runner": ["config.get", "event.send"]}]
            settings["external_auth"]["file"]["trainee"] = allowed
            # Beside rest_cherrypy, in the same process.
            other = {"address": address, "port": lab.ports.cluster, "disable_ssl": True}
            settings["rest_tornado"] = other
            # One that hangs for some seconds is not down: a test freezes a part of it for so long,
            # and a busy machine all of it.
            health = {"interval": 1, "timeout": 10, "deep_interval": 0, "fall": 5}
            ha = {**QUICK, "health": health}
            masters.append(lab.add_master(name, address=address, ha=ha, config=settings))
        masters[0].share_master_key(masters[1])
        lab.start_all(masters)
        meet(lab)
        with SaltApi(masters[0]) as api1, SaltApi(masters[1]) as api2:
            for master in masters:
                wait_for(lambda m=master: ready(m), SOON, f"{master.name} is ready")
            printed = {}
            for kind in KINDS:
                address = lab.new_address()
                cert, ca = pem(tmp_path_factory.mktemp(kind), address)
                listen = f"{address}:{lab.ports.api}"
                answer = masters[0].salt_run_text(
                    "ha.proxy_config", kind, cert=str(cert), listen=listen
                )
                assert answer.returncode == 0, answer.stdout + answer.stderr
                printed[kind] = Printed(answer.stdout, address, ca)
            yield Site(lab, masters, [api1, api2], printed)


@pytest.fixture(params=KINDS)
def door(request: pytest.FixtureRequest, site: Site, tmp_path: Path) -> Iterator[Door]:
    kind = request.param
    printed = site.printed[kind]
    balancer = Balancer(kind, printed.text, tmp_path, printed.address, site.lab.ports.api)
    balancer.check()
    with balancer:
        door = Door(kind, site, balancer)
        yield door
        door.close()


def ready(master: Master) -> bool:
    """Whether it says that it takes callers."""
    url = f"http://{master.address}:{master.status_port}/ready"
    return requests.get(url, timeout=5).status_code == 200


@contextmanager
def fired(master: Master, tag: str) -> Iterator[None]:
    """Events with *tag* on the bus of *master*, again and again: nobody says when one listens."""
    over = threading.Event()

    def keep_firing() -> None:
        while not over.is_set():
            master.salt_run("event.send", tag)

    firing = threading.Thread(target=keep_firing)
    firing.start()
    try:
        yield
    finally:
        over.set()
        firing.join()


@pytest.mark.core
def test_what_is_printed_names_both_masters(site: Site) -> None:
    first, port = site.masters[0], site.lab.ports.api
    answer = first.salt_run("ha.proxy_config", "haproxy").data
    assert answer["masters"] == [
        {
            "name": master.name,
            "api": f"{master.address}:{port}",
            "tls": False,
            "ready": f"{master.address}:{master.status_port}",
            "unknown": "",
        }
        for master in site.masters
    ]
    wrong = first.salt_run("ha.proxy_config", "apache")
    assert wrong.returncode == 2
    assert "takes haproxy or nginx" in wrong.data["error"]


@pytest.mark.core
def test_no_token_comes_to_a_wrong_master(door: Door) -> None:
    callers = [*door.on_both(), *(door.caller() for _ in range(4))]
    homes = [caller.master() for caller in callers]
    for _ in range(3):
        assert [caller.master() for caller in callers] == homes
    assert sum(caller.refused for caller in callers) == 0


@pytest.mark.core
def test_a_token_is_good_from_every_address(door: Door) -> None:
    on_m1, on_m2 = door.on_both()
    for name, owner, other in (("m1", on_m1, on_m2), ("m2", on_m2, on_m1)):
        caller = door.caller(other.address)
        caller.take_over(owner)
        assert caller.master() == name
        # salt-api says 401 before it has read it.
        much = {
            "client": "runner",
            "fun": "config.get",
            "arg": ["id"],
            "kwarg": {"x": "y" * 900_000},
        }
        answer = caller.send(much)
        assert answer.status_code == 200, answer.text
        with caller.events() as lines:
            assert next(lines) == b"retry: 400"
        for path in ("/minions", "/jobs", "/keys", "/stats"):
            assert caller.get(path) == 200
        assert caller.send(path="/logout").status_code == 200
        assert owner.send().status_code == 401
        assert caller.refused == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_of_rest_tornado_comes_to_a_wrong_master(
    site: Site, kind: str, tmp_path: Path
) -> None:
    """It tells a new token in a cookie only, and redirects calls with one that it does not know."""
    printed, ports = site.printed[kind], site.lab.ports
    text = printed.text
    for master in site.masters:
        tornado = (master.address, ports.cluster)
        wait_for(lambda at=tornado: listens(at), SOON, f"rest_tornado of {master.name} listens")
        text = text.replace(f"{master.address}:{ports.api}", f"{master.address}:{ports.cluster}")
    assert text != printed.text
    with Balancer(kind, text, tmp_path, printed.address, ports.api) as balancer:
        door = Door(kind, site, balancer)
        callers = [*door.on_both(), *(door.caller() for _ in range(2))]
        homes = [caller.master() for caller in callers]
        for _ in range(3):
            assert [caller.master() for caller in callers] == homes
        assert sum(caller.refused for caller in callers) == 0
        door.close()


@pytest.mark.core
def test_what_its_master_refuses_in_the_middle_is_not_begun_twice(site: Site, door: Door) -> None:
    on_m1, on_m2 = door.on_both()
    trainee, elsewhere = door.caller(on_m1.address), door.caller(on_m2.address)
    trainee.login(TRAINEE)
    elsewhere.take_over(trainee)
    forbidden = {"client": "runner", "fun": "manage.up"}
    with ExitStack() as stack:
        buses = [stack.enter_context(heard(master)) for master in site.masters]
        for caller in (trainee, elsewhere):
            tag = f"salt/test/{door.kind}/{caller.address}"
            fire = {"client": "runner", "fun": "event.send", "arg": [tag]}
            assert caller.send(fire, forbidden).status_code == 401
            # What came before this one is heard before it.
            assert caller.send({**fire, "arg": [f"{tag}/last"]}).status_code == 200

            def last(tag: str = tag) -> bool:
                return f"{tag}/last" in [heard_tag for heard_tag, _ in buses[0]]

            wait_for(last, SOON, "all was heard")
            assert [heard_tag for bus in buses for heard_tag, _ in bus].count(tag) == 1


def test_events_pass(site: Site, door: Door) -> None:
    for caller, master in zip(door.on_both(), site.masters, strict=True):
        with caller.events() as lines:
            assert next(lines) == b"retry: 400"
            tag = f"test/{door.kind}/{master.name}"
            with fired(master, tag):
                assert any(line == f"tag: {tag}".encode() for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_events_may_be_silent_for_longer_than_a_call(site: Site, kind: str, tmp_path: Path) -> None:
    printed, port, m1 = site.printed[kind], site.lab.ports.api, site.masters[0]
    text = printed.text.replace(" 3600s", f" {CALL}s")
    assert text != printed.text
    with Balancer(kind, text, tmp_path, printed.address, port) as balancer:
        door = Door(kind, site, balancer)
        on_m1, _ = door.on_both()
        with on_m1.events() as lines:
            assert next(lines) == b"retry: 400"
            # salt-api of m1 hears nothing; not for so long that m1 would count as down.
            with frozen(*parts(m1, "EventPublisher")):
                threading.Event().wait(CALL + 2)
            tag = f"test/{kind}/silence"
            with fired(m1, tag):
                assert any(line == f"tag: {tag}".encode() for line in lines)
        door.close()
    wait_for(lambda: ready(m1), LONG, "m1 is ready")


@pytest.mark.core
def test_a_master_is_killed_and_the_next_call_works(site: Site, door: Door) -> None:
    on_m1, on_m2 = door.on_both()
    m1, api1 = site.masters[0], site.apis[0]
    m1.kill()
    api1.kill()
    try:
        assert on_m2.master() == "m2"
        assert on_m1.master() == "m2"
        assert (on_m1.refused, on_m2.refused) == (1, 0), "its master is gone, so it logs in again"
        assert door.caller().master() == "m2"
    finally:
        m1.start()
        api1.start()
        wait_for(lambda: ready(m1), LONG, "m1 is ready again")


def test_nginx_finds_the_token_of_the_time_when_a_master_was_down(
    site: Site, tmp_path: Path
) -> None:
    printed, port = site.printed["nginx"], site.lab.ports.api
    text = printed.text.replace("fail_timeout=30s", "fail_timeout=2s")
    assert text != printed.text
    with Balancer("nginx", text, tmp_path, printed.address, port) as balancer:
        door = Door("nginx", site, balancer)
        caller, _ = door.on_both()
        api1 = site.apis[0]
        api1.kill()
        try:
            gone = (api1.address, api1.port)
            wait_for(lambda: not listens(gone), SOON, "m1 refuses connections")
            assert caller.master() == "m2"
            assert caller.refused == 1
        finally:
            api1.start()
        # Calls from there go to m1 again.
        wait_for(lambda: door.caller(caller.address).master() == "m1", SOON, "m1 is used again")
        assert caller.master() == "m2"
        assert caller.refused == 1
        door.close()


@pytest.mark.parametrize("door", ["haproxy"], indirect=True)
def test_a_dead_master_behind_a_living_salt_api(site: Site, door: Door) -> None:
    door.on_both()
    m1 = site.masters[0]
    m1.kill()
    try:
        # salt-api of m1 goes on, and says 200 on GET /.
        assert requests.get(site.apis[0].url, timeout=SOON).status_code == 200
        assert [door.caller().master() for _ in range(4)] == ["m2"] * 4
    finally:
        m1.start()
        wait_for(lambda: ready(m1), LONG, "m1 is ready again")


def test_a_master_hangs(site: Site, door: Door) -> None:
    on_m1, on_m2 = door.on_both()
    with_token = door.caller(on_m1.address)
    with_token.take_over(on_m1)
    m1, api1 = site.masters[0], site.apis[0]
    m1.suspend()
    api1.daemon.suspend()
    try:
        assert on_m2.master() == "m2"
        if door.kind == "nginx":
            on_m1.login()  # what notices it there
        # haproxy ends what waits there, or sends it elsewhere at once.
        wait_for(lambda: on_m1.master() == "m2", LONG, "its caller is on m2")
        if door.kind == "nginx":
            # Nobody who can answer knows its token: it does not wait for the one that hangs.
            assert (with_token.master(), with_token.refused) == ("m2", 1)
        assert [door.caller().master() for _ in range(4)] == ["m2"] * 4
        assert on_m2.refused == 0
    finally:
        m1.resume()
        api1.daemon.resume()
        wait_for(lambda: ready(m1), LONG, "m1 is ready again")


def test_a_master_that_is_down_stays_in_the_configuration(site: Site) -> None:
    m1, m2 = site.masters
    m2.kill()
    try:
        printed = m1.salt_run("ha.proxy_config", "haproxy")
        assert printed.returncode == 2
        text = printed.data["text"]
        assert f"NOTE m2 could not be asked; assumed: {m2.address}:{site.lab.ports.api}" in text
        assert f"    server m2 {m2.address}:{site.lab.ports.api} check\n" in text
        assert printed.data["masters"][1]["unknown"]
    finally:
        m2.start()
        wait_for(lambda: ready(m2), LONG, "m2 is ready again")
