"""
The salt-api pool against real salt-api processes of two real masters, with a minion on both.

Every job appends a line of its own to a file on the minion: that, not the pool, says what was run
how often.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from lab import Lab, Master, Minion, wait_for
from lab.api import PASSWORD, USER, SaltApi, api_settings
from saltext_ha.api import (
    ApiPoolError,
    CallFailed,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    SaltApiPool,
    TimedOut,
)
from tests.certificates import self_signed
from tests.forwarder import Forwarder
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.timeout(240)

numbers = itertools.count(1)


@dataclass
class Site:
    """m1 is asked over HTTP, so that a forwarder can read along; m2 over TLS."""

    lab: Lab
    m1: Master
    m2: Master
    api1: SaltApi
    api2: SaltApi
    web: Minion
    ca: Path
    ran: Path

    def pool(self, url1: str | None = None, **more: Any) -> SaltApiPool:
        masters = [
            {"name": "m1", "url": url1 or self.api1.url},
            {"name": "m2", "url": self.api2.url, "verify": str(self.ca)},
        ]
        usual = {"username": USER, "password": PASSWORD, "eauth": "file", "deadline": 40}
        # Probes only where a test is about them: they are logins, and would hide what calls do.
        quick = {"probe_interval": 600, "probe_timeout": 3, "spacing": 0.1, "rise": 2}
        return SaltApiPool(**{"masters": masters, **usual, **quick, **more})

    def job(self) -> tuple[str, str]:
        """A word of its own, and a command that appends it to the file."""
        word = f"job{next(numbers)}"
        return word, f"echo {word} >> {self.ran}"

    def runs(self) -> Counter[str]:
        return Counter(self.ran.read_text().split()) if self.ran.exists() else Counter()

    def settled(self, word: str) -> int:
        """How often *word* ran, when all that was published before has run, too."""
        for master in (self.m1, self.m2):
            if master.running:
                master.salt("web", "test.ping").check()
        return self.runs()[word]


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[Site]:
    with make_lab() as lab:
        folder, addresses = lab.root / "api", [lab.new_address(), lab.new_address()]
        folder.mkdir()
        certificate = self_signed(folder, addresses[1])
        m1, m2 = (
            lab.add_master(
                name,
                engine=False,
                address=address,
                config=api_settings(folder / name, address, lab.ports.api, pair),
            )
            for name, address, pair in zip(("m1", "m2"), addresses, (None, certificate))
        )
        m1.share_master_key(m2)
        web = lab.add_minion("web", [m1, m2])
        gone = lab.add_minion("gone", [m1, m2])  # accepted, never started
        for master in (m1, m2):
            master.plant("minions", web.name, web.pub)
        m2.plant("minions", gone.name, gone.pub)
        lab.start_all([m1, m2, web])
        with SaltApi(m1) as api1, SaltApi(m2) as api2:
            web.wait_ready()
            for master in (m1, m2):
                wait_for(lambda m=master: m.salt("web", "test.ping").data, 60, "web answers")
            yield Site(lab, m1, m2, api1, api2, web, certificate[0], lab.root / "ran")


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
        assert pool.local_async("nobody*", "test.ping").minions == ()

        assert pool.runner("test.arg", ["a"], {"x": 1}) == {"args": ["a"], "kwargs": {"x": 1}}
        assert pool.wheel("key.list_all")["minions"] == ["web"]
        assert pool.wheel("key.finger", ["web"])["minions"].keys() == {"web"}
        with pytest.raises(CallFailed, match="m1: runner .*no_such"):
            pool.runner("test.no_such", idempotent=True)
        assert site.settled(word) == 1
        assert {m["name"]: m["healthy"] for m in pool.status()["masters"]}["m1"]
