"""A job is handed to salt-master once, and what does not come of it is said in time."""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import salt.client  # here, not when a test measures
import salt.config
import salt.payload
import zmq

from lab.wait import wait_for
from saltext_ha.common.errors import HaError, PublishingTimedOut
from saltext_ha.minions import publishing
from saltext_ha.minions.job_specs import PING, JobSpec

pytestmark = pytest.mark.core

JID = "20260131031245123456"


class Played:
    """A salt-master: it takes requests, and answers all of them, or none: its workers are stuck."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer: dict[str, Any] | None = None
        self._over = threading.Event()
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while not self._over.is_set():
            if self._router.poll(50):
                *way, _ = self._router.recv_multipart()
                self.requests += 1
                if self.answer is not None:
                    self._router.send_multipart([*way, salt.payload.dumps(self.answer)])

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._router.close(linger=0)
        self._context.term()


@pytest.fixture
def master() -> Iterator[Played]:
    played = Played()
    yield played
    played.close()


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
    tmp_path: Path, master: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salt would ask three times, and a master that is only slow would publish it three times."""
    monkeypatch.setattr(publishing, "PUBLISHING", 2)
    began = time.monotonic()
    with pytest.raises(PublishingTimedOut, match="is salt-master well"):
        publishing.publish_here(opts_of(tmp_path, master.port), JobSpec(PING, glob="*"), JID)
    assert time.monotonic() - began < 60
    wait_for(lambda: master.requests, 60, "it arrives")
    assert master.requests == 1


def test_whom_it_is_for_and_what_another_job_answers(tmp_path: Path, master: Played) -> None:
    opts, order = opts_of(tmp_path, master.port), JobSpec(PING, glob="*")
    master.answer = {"enc": "clear", "load": {"jid": JID, "minions": ["db1", "web1"]}}
    assert publishing.publish_here(opts, order, JID) == ["db1", "web1"]
    nobody = "Master could not resolve minions for target *"
    master.answer = {"enc": "clear", "load": {"jid": None, "minions": [], "error": nobody}}
    assert publishing.publish_here(opts, order, JID) == []
    other = "20260131031245999999"
    for jid, minions in ((other, ["web1"]), (other, []), (None, ["web1"])):
        master.answer = {"enc": "clear", "load": {"jid": jid, "minions": minions}}
        with pytest.raises(HaError, match="did not take the job"):
            publishing.publish_here(opts, order, JID)
    master.answer = {}
    with pytest.raises(HaError, match="did not take the job"):
        publishing.publish_here(opts, order, JID)


def test_what_the_master_says_no_to_was_not_published(tmp_path: Path, master: Played) -> None:
    """Only of a job that nobody has said anything about it is unknown whether it may have run."""
    master.answer = {"error": {"name": "AuthenticationError", "message": "no such user"}}
    with pytest.raises(HaError, match="no such user; is salt-master well") as refused:
        publishing.publish_here(opts_of(tmp_path, master.port), JobSpec(PING, glob="*"), JID)
    assert not isinstance(refused.value, PublishingTimedOut)
