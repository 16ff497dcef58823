"""A job is handed to salt-master once, and what does not come of it is said in time."""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import salt.config
import zmq

from saltext_ha.errors import HaError
from saltext_ha.service import jobs
from saltext_ha.service.orders import PING, Order

pytestmark = [pytest.mark.core, pytest.mark.timeout(60)]

JID = "20260131031245123456"


class Stuck:
    """A salt-master whose workers are stuck: it takes requests, and answers none."""

    def __init__(self) -> None:
        self.requests = 0
        self._over = threading.Event()
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while not self._over.is_set():
            if self._router.poll(50):
                self._router.recv_multipart()
                self.requests += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._router.close(linger=0)
        self._context.term()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    master = Stuck()
    yield master
    master.close()


def opts_of(root: Path, port: int) -> dict[str, Any]:
    """The configuration of that master, with the files that Salt's client looks for."""
    opts: dict[str, Any] = salt.config.apply_master_config(
        {
            "root_dir": str(root),
            "cachedir": str(root / "cache"),
            "sock_dir": str(root / "run"),
            "pki_dir": str(root / "pki"),
            "conf_file": str(root / "master"),
            "interface": "127.0.0.1",
            "ret_port": port,
            "user": getpass.getuser(),
        }
    )
    for folder in ("cachedir", "sock_dir", "pki_dir"):
        Path(opts[folder]).mkdir()
    Path(opts["cachedir"], f".{getpass.getuser()}_key").write_text("secret")
    Path(opts["sock_dir"], "publish_pull.ipc").touch()
    return opts


def test_a_job_is_published_once_or_not_at_all(
    tmp_path: Path, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt would ask three times, and a master that is only slow would publish it three times."""
    monkeypatch.setattr(jobs, "PUBLISHING", 2)
    began = time.monotonic()
    with pytest.raises(HaError, match="is salt-master well"):
        jobs.publish_here(opts_of(tmp_path, stuck.port), Order(PING, glob="*"), JID)
    assert time.monotonic() - began < 5
    assert stuck.requests == 1
