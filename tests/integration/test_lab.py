"""The lab itself: what tests rely on when they kill, freeze and restart real masters."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lab import Lab, wait_for
from lab.detached import Member
from lab.master import Master
from lab.network import is_free
from lab.process import FROZEN, Daemon, status
from tests.integration.group import LONG, SOON

ROOT = Path(__file__).resolve().parents[2]


def accepts_all(master: Master) -> list[str]:
    master.salt_key("-A", "-y")
    accepted: list[str] = master.salt_key("-L").data["minions"]
    return accepted


@pytest.mark.core
def test_masters_and_minions_talk_and_end(make_lab) -> None:
    with make_lab(forked=False) as lab:
        m1, m2 = lab.add_master("m1", engine=False), lab.add_master("m2", engine=False)
        m1.share_master_key(m2)
        hot = lab.add_minion("hot", masters=[m1, m2])
        spare = lab.add_minion("spare", masters=[m1, m2], type="failover")
        lab.start_all([m1, m2, hot])
        assert m1.address != m2.address
        assert (m1.ret_port, m1.publish_port) == (m2.ret_port, m2.publish_port)

        for master in (m1, m2):
            wait_for(lambda m=master: "hot" in m.keys()["minions_pre"], SOON, "hot knocks")
        assert m1.keys()["minions_pre"]["hot"].strip() == hot.pub.strip()
        # Workers answer later than a master listens; it would pass by one that only listens.
        spare.start()
        wait_for(lambda: "spare" in m1.keys()["minions_pre"], SOON, "spare knocks at its first")
        # Salt writes a pending key anew at each knock, and just then it is not there.
        for master, names in ((m1, ["hot", "spare"]), (m2, ["hot"])):
            wait_for(lambda m=master, all_of=names: accepts_all(m) == all_of, SOON, "all accepted")

        hot.wait_ready()
        spare.wait_ready()
        assert hot.bound_to() == ["m1", "m2"]
        assert spare.bound_to() == ["m1"]
        # Connected is a little earlier than subscribed: the first job may pass a minion by.
        for master, target, names in ((m1, "*", ("hot", "spare")), (m2, "hot", ("hot",))):
            wait_for(
                lambda m=master, to=target, all_of=names: (
                    m.salt(to, "test.ping").data == dict.fromkeys(all_of, True)
                ),
                LONG,
                f"{names} answer {master.name}",
            )
        assert hot.salt_call("test.echo", "text").data == "text"
        assert m1.salt_run("test.arg", "x", flag=True).data == {
            "args": ["x"],
            "kwargs": {"flag": True},
        }

        before = m1.pids()
        assert len(before) > 3
        m1.kill()
        assert not m1.running
        assert not any(alive(pid) for pid in before)
        wait_for(lambda: hot.bound_to() == ["m2"], SOON, "hot lost m1")
        m1.start()
        wait_for(lambda: hot.bound_to() == ["m1", "m2"], SOON, "hot is back on m1")
        assert m2.stop(SOON), "a master ends by itself when told to"
        assert not m2.pids()

        left, root = [*m1.pids(), *hot.pids(), *spare.pids()], lab.root
    assert left
    assert not any(alive(pid) for pid in left)
    assert not root.exists()


def test_a_frozen_tree_answers_nothing_until_resumed(tmp_path: Path) -> None:
    # A child that outlives its parent, as a worker of a killed master does.
    script = "sh -c 'while :; do echo tick; sleep 0.02; done' & wait"
    daemon = Daemon(["sh", "-c", script], os.environ, tmp_path, tmp_path / "out")
    daemon.spawn()
    try:
        size = wait_for(lambda: daemon.output.stat().st_size, SOON, "first tick")
        daemon.suspend()
        assert {status(pid) for pid in daemon.pids()} <= FROZEN
        assert daemon.running
        frozen = daemon.output.stat().st_size
        assert frozen >= size
        daemon.resume()
        wait_for(lambda: daemon.output.stat().st_size > frozen, SOON, "ticks again")

        os.kill(daemon.pids()[0], signal.SIGKILL)
        wait_for(lambda: not daemon.running, SOON, "the leader is dead")
        assert daemon.pids(), "its child is not"
    finally:
        daemon.kill()
    assert not daemon.pids()


def test_a_master_that_cannot_start_says_why(lab: Lab) -> None:
    m1 = lab.add_master("m1", engine=False)
    with socket.socket() as taken:
        taken.bind((m1.address, m1.ret_port))
        taken.listen(1)
        with pytest.raises(RuntimeError, match="m1 ended while starting") as failure:
            m1.start()
    assert "Address already in use" in str(failure.value)
    m1.start()
    assert m1.running


def test_labs_side_by_side_share_nothing(make_lab) -> None:
    with make_lab() as one, make_lab() as two:
        addresses = [lab.add_master("m1").address for lab in (one, two)]
        assert addresses[0].rsplit(".", 1)[0] != addresses[1].rsplit(".", 1)[0]
        assert one.root != two.root


def test_an_address_with_a_taken_port_is_passed_over(lab: Lab) -> None:
    m1 = lab.add_master("m1")
    following = m1.address.rsplit(".", 1)[0] + ".2"
    with socket.socket() as taken:
        taken.bind((following, m1.peer_port))
        taken.listen(1)
        assert not is_free(following, m1.peer_port)
        assert lab.add_master("m2").address.endswith(".3")


def test_a_deep_folder_still_fits_unix_sockets(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with Lab(deep) as lab:
        m1 = lab.add_master("m1", engine=False)
        assert len(str(m1.control_socket)) < 100
        m1.start()
        assert (deep / "m1" / "conf" / "master").exists()
    assert deep.exists(), "a folder that was given is kept"
    assert not lab.root.exists(), "the short way to it is not"


def test_engine_settings_reach_the_configuration(lab: Lab) -> None:
    m1 = lab.add_master("m1", ha={"sync_interval": 0.5}, config={"engines": [{"test": {}}]})
    assert m1.opts["engines"] == [{"test": {}}, {"ha": {}}]
    assert m1.opts["ha"] == {
        "name": "m1",
        "address": m1.address,
        "listen_host": m1.address,
        "port": m1.peer_port,
        "sync_interval": 0.5,
        "status": {"host": m1.address, "port": m1.status_port},
    }
    assert m1.opts["auto_accept"] is m1.opts["open_mode"] is False
    assert lab.add_master("m2", engine=False).opts.get("ha") is None


def test_planted_keys_read_back(lab: Lab) -> None:
    m1 = lab.add_master("m1", engine=False)
    (_, first), (_, second) = lab.key_pair(), lab.key_pair()
    assert first != second
    m1.plant("minions", "web1", first)
    m1.plant("minions_denied", "web1", second)
    keys = m1.keys()
    assert keys.pop("minions") == {"web1": first}
    assert keys.pop("minions_denied") == {"web1": second}
    assert keys == {"minions_pre": {}, "minions_rejected": {}}
    assert m1.salt_key("-L").data["minions"] == ["web1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_daemons_too(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import signal, time\n"
        # In the background of a shell both are ignored, and children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from lab import Lab\n"
        "with Lab() as lab:\n"
        "    m1 = lab.add_master('m1', engine=False)\n"
        "    m1.launch()\n"
        "    print(m1.daemon.session, lab.root, flush=True)\n"
        # Python does not notice a signal that comes just before it begins to sleep.
        "    while True:\n"
        "        time.sleep(0.1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        session, root = owner.stdout.readline().split()
        assert alive(int(session))
        owner.send_signal(number)
        try:
            owner.wait(SOON)
        finally:
            owner.kill()
    assert not alive(int(session))
    assert not Path(root).exists()


def test_up_and_down(tmp_path: Path) -> None:
    def call(*args: str) -> str:
        command = [sys.executable, "-m", "lab", "--root", str(tmp_path / "lab"), *args]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        shown = call("up", "--masters", "1", "--minions", "1")
        (listing, *_) = [line for line in shown.splitlines() if line.endswith(" -L")]
        listed = subprocess.run(
            listing, shell=True, capture_output=True, text=True, check=True
        ).stdout
        assert "web1" in listed
        assert "already" in call("up")
    finally:
        ended = call("down")
    assert "m1, web1" in ended
    assert not (tmp_path / "lab").exists()
    assert "No lab" in call("down")


def test_down_spares_a_stranger_with_our_number(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        try:
            # Between its start and its exec a process shows no command line, or ours.
            sleeping = Member("m1", stranger.pid, "sleep")
            wait_for(lambda: sleeping.pids() == [stranger.pid], SOON, "its command line is there")
            assert Member("m1", stranger.pid, str(tmp_path / "m1" / "conf")).pids() == []
        finally:
            stranger.kill()


def test_waiting_tells_what_for_and_what_was_last() -> None:
    with pytest.raises(TimeoutError, match=r"the moon \(last value: 0\)"):
        wait_for(lambda: 0, 0.05, "the moon")
    with pytest.raises(TimeoutError, match=r"KeyError\('x'\)"):
        wait_for(lambda: {}["x"], 0.05, "x")
    assert wait_for(lambda: "now", 0, "at once") == "now"


def alive(pid: int) -> bool:
    return status(pid) != psutil.STATUS_ZOMBIE
