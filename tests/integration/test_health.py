"""What a real master's engine finds out about it: each of its doors closed in turn."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lab import Lab, Master, wait_for
from lab.api import PASSWORD, USER, SaltApi, api_settings
from saltext_ha.config.salt_api import api_of
from saltext_ha.health import checks
from tests.integration.conftest import MakeLab
from tests.integration.group import SOON, frozen, log_lines, parts

pytestmark = pytest.mark.core

QUICK = {"interval": 1, "timeout": 5, "deep_interval": 10, "eauth": "file", "user": USER}


@pytest.fixture(scope="module")
def site(make_lab: MakeLab) -> Iterator[tuple[Lab, Master, SaltApi]]:
    """A master that is well, and its salt-api, with TLS."""
    from tests.certificates import self_signed

    with make_lab() as lab:
        password = lab.root / "health-password"
        password.write_text(PASSWORD)
        password.chmod(0o600)
        address = lab.new_address()
        folder = lab.root / "api"
        folder.mkdir()
        settings = api_settings(folder, address, lab.ports.api, self_signed(folder, address))
        ha = {"health": {**QUICK, "password_file": str(password)}}
        m1 = lab.add_master("m1", ha=ha, config=settings, address=address)
        m1.start()
        with SaltApi(m1) as api:
            yield lab, m1, api


def ask(master: Master, path: str = "/ready") -> tuple[int, str]:
    """Status and text of a page."""
    url = f"http://{master.address}:{master.status_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()
    except OSError as exc:
        return 0, str(exc)


def comes_to(master: Master, status: int, *words: str) -> None:
    """Wait until ``/ready`` answers that."""
    seen: list[Any] = []

    def there() -> bool:
        seen[:] = [ask(master)]
        return seen[0][0] == status and all(word in seen[0][1] for word in words)

    try:
        wait_for(there, SOON, "", poll=0.2)
    except TimeoutError:
        raise AssertionError(f"not within {SOON:g} s: {status} {words}; last: {seen}") from None


def test_a_master_that_serves_is_ready(site: tuple[Lab, Master, SaltApi]) -> None:
    _, m1, _ = site
    comes_to(m1, 200, "ready")
    names = {"request port", "publisher", "event bus", "runner", "salt-api", "salt-api login"}

    def all_good() -> bool:
        (row,) = m1.control("status")["masters"]
        checks = row["health"]["checks"]
        return {check["name"] for check in checks if check["ok"]} == names

    wait_for(all_good, SOON, "every question has a good answer")


def test_asking_salt_api_leaves_no_error_in_its_log(site: tuple[Lab, Master, SaltApi]) -> None:
    """It is asked every 5 s, for years."""
    _, m1, _ = site
    api = api_of(yaml.safe_load(m1.config_file.read_text()))
    assert api is not None
    assert checks.api_answers(api, 60.0) == ""
    # api_logfile of the configuration, which Salt takes to be below root_dir.
    (log,) = m1.root.rglob("api.log")
    assert "ERROR" not in log.read_text()


def test_workers_that_hang(site: tuple[Lab, Master, SaltApi]) -> None:
    _, m1, _ = site
    comes_to(m1, 200)
    with frozen(*parts(m1, "MWorker-")):
        comes_to(m1, 503, "request port")
        # The engine goes on, and says what is the matter to who asks for the state of the group.
        status = m1.control("status")
        assert status["state"] == "degraded"
        assert "does not serve: request port" in status["masters"][0]["note"]
        assert ask(m1, "/live") == (200, "live\n")
    comes_to(m1, 200)
    assert log_lines(m1, "this master does not serve")


@pytest.mark.parametrize(
    ("process", "problem"), [("PubServerChannel", "publisher"), ("EventPublisher", "event bus")]
)
def test_another_process_that_hangs(
    site: tuple[Lab, Master, SaltApi], process: str, problem: str
) -> None:
    _, m1, _ = site
    comes_to(m1, 200)
    with frozen(*parts(m1, process)):
        comes_to(m1, 503, f"{problem}: timed out")
    comes_to(m1, 200)


def test_salt_api_that_hangs_or_is_gone(site: tuple[Lab, Master, SaltApi]) -> None:
    _, m1, api = site
    comes_to(m1, 200)
    with frozen(*map(psutil.Process, api.daemon.pids())):
        comes_to(m1, 503, "salt-api: timed out")
    comes_to(m1, 200)
    api.kill()
    comes_to(m1, 503, "salt-api: refused the connection")
    api.start()
    comes_to(m1, 200)


def test_a_login_that_is_refused(site: tuple[Lab, Master, SaltApi]) -> None:
    _, m1, _ = site
    comes_to(m1, 200)
    users = Path(m1.opts["external_auth"]["file"]["^filename"])
    before = users.read_text()
    users.write_text(f"{USER}:another\n")
    try:
        comes_to(m1, 503, f"salt-api login: does not let {USER} in by eauth file")
    finally:
        users.write_text(before)
    comes_to(m1, 200)
    assert PASSWORD not in json.dumps(m1.control("status"))
    assert not any(PASSWORD in line for line in log_lines(m1, ""))


def test_a_dead_master_says_nothing(site: tuple[Lab, Master, SaltApi]) -> None:
    """Also while its salt-api goes on answering."""
    _, m1, api = site
    comes_to(m1, 200)
    m1.kill()
    wait_for(lambda: ask(m1)[0] == 0, SOON, "nobody answers for it")
    assert api.daemon.running
