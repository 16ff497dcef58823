"""What an operator does with the group, and what happens to it; after each scene it is well."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import pytest

from lab.wait import wait_for
from proving.containers.docker import CommandFailed, Docker
from proving.containers.group import M1, M2, MASTERS, SECRET, SOON, START, ComposedGroup
from proving.containers.image import build

pytestmark = pytest.mark.timeout(900)
MINION = "web1"


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with Docker() as docker:
        build(docker)
        yield docker


@pytest.fixture(scope="module")
def group(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposedGroup]:
    """
    Two masters and a minion that is connected to both. The second is started first, alone; then
    the first.
    """
    group = ComposedGroup(docker, tmp_path_factory.mktemp("site"))
    try:
        group.compose("up", "--detach", M2)
        wait_for(lambda: "trying for" in docker.logs(M2), SOON, "the second waits", poll=0.5)
        # It has founded nothing, and has no key yet.
        group.inside(M2, "test", "!", "-e", "/etc/salt/pki/master/master.pem")
        group.compose_one("up", "--detach")
        group.is_ready(M1)
        group.compose("up", "--detach")
        group.is_ready(*MASTERS)
        group.start_minion(MINION)
        pending = {MINION, *MASTERS}
        wait_for(lambda: pending <= {*group.keys(M1)["minions_pre"]}, SOON, "all knock", poll=1)
        for name in pending:
            group.inside(M1, "salt-key", "--yes", f"--accept={name}")
        wait_for(lambda: pending <= group.accepted(M2), SOON, "the second has the keys", poll=1)
        for master in MASTERS:
            group.answers(master, MINION, START)
        yield group
    finally:
        for name in MASTERS:
            print(f"--- {name}\n{docker.logs(name)[-6000:]}")
        docker("rm", "--force", "--volumes", MINION)
        group.close()


def test_one_group_with_one_master_key_and_nothing_shared(group: ComposedGroup) -> None:
    group.is_well(*MASTERS)
    prints = [group.inside(name, "md5sum", "/etc/salt/pki/master/master.pub") for name in MASTERS]
    assert prints[0] == prints[1]
    script = "import importlib.metadata as m; print(m.version('saltext-ha'))"
    assert group.inside(M1, "python", "-c", script).strip() == version("saltext-ha")
    own = [group.salt_ha(name, "status")["masters"] for name in MASTERS]
    assert [{row["name"] for row in rows} for rows in own] == [{*MASTERS}] * 2
    volumes = [
        {mount["Name"] for mount in group.docker.shows(name)["Mounts"] if mount["Type"] == "volume"}
        for name in MASTERS
    ]
    assert len(volumes[0]) == len(volumes[1]) == 2
    assert not volumes[0] & volumes[1]


def test_no_process_is_root_and_no_secret_is_shown(group: ComposedGroup) -> None:
    for name in MASTERS:
        users = group.docker("top", name, "-eo", "pid,uid,args").splitlines()[1:]
        assert {line.split()[1] for line in users} == {"450"}, users
        assert any("salt-api" in line for line in users)
        shown = group.docker("inspect", name) + group.docker.logs(name)
        assert SECRET not in shown
        assert "plain HTTP on port 8002" in group.docker.logs(name)


def test_probes_get_what_they_ask(group: ComposedGroup) -> None:
    for name in MASTERS:
        for probe in ("live", "ready"):
            group.inside(name, "entrypoint", probe)


def test_up_twice_changes_nothing(group: ComposedGroup) -> None:
    before = [group.docker.shows(name)["State"]["StartedAt"] for name in MASTERS]
    group.compose("up", "--detach")
    assert [group.docker.shows(name)["State"]["StartedAt"] for name in MASTERS] == before


def test_states_come_from_the_mounted_folder(group: ComposedGroup) -> None:
    for master in MASTERS:
        found = group.salt(master, MINION, "state.show_sls", "there")
        assert "there" in found[MINION], found
        written = ("sh", "-c", "echo > /srv/salt/x")
        with pytest.raises(CommandFailed, match="Read-only file system"):
            group.docker("exec", master, *written)


def test_salt_api_behind_the_balancer(group: ComposedGroup) -> None:
    group.api_reaches(MINION)
    printed = group.inside(
        *(M1, "salt-ha", "proxy_config", "nginx", "listen=8080", "tls=False", "prefix=/salt-api/")
    )
    kept = (group.folder / "nginx" / "salt-api.conf").read_text()
    assert printed.strip() == kept.strip()


def test_the_local_minions_answer(group: ComposedGroup) -> None:
    for name in MASTERS:
        group.answers(name, name)


def test_the_first_is_stopped_and_started(group: ComposedGroup) -> None:
    group.docker("stop", "--time", "60", M1)
    state = group.docker.shows(M1)["State"]
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False), "it did not end by itself"
    group.answers(M2, MINION)
    group.api_reaches(MINION)
    # A change while it is away reaches it when it is back.
    group.inside(M2, "salt-key", "--yes", f"--delete={M1}")
    group.docker("start", M1)
    group.is_ready(*MASTERS)
    wait_for(lambda: M1 not in group.accepted(M1), SOON, "the deletion is there, too", poll=1)
    wait_for(lambda: M1 in group.keys(M1)["minions_pre"], START, "its minion knocks", poll=1)
    group.inside(M1, "salt-key", "--yes", f"--accept={M1}")
    for master in MASTERS:
        group.answers(master, MINION)
    group.is_well(*MASTERS)


def test_a_partition(group: ComposedGroup) -> None:
    group.disconnect(M2)
    try:
        seen = group.salt_ha(M1, "status")
        wait_for(
            lambda: group.salt_ha(M1, "status")["retcode"] == 2,
            SOON,
            f"the first says that it does not know of the second: {seen}",
            poll=1,
        )
        group.answers(M1, MINION)
        group.api_reaches(MINION)
        # An id without a minion: an idle minion would learn late that its key is gone.
        knock = "cp /etc/salt/pki/minion/minion.pub /etc/salt/pki/master/minions_pre/absent"
        group.inside(M1, "sh", "-c", knock)
        group.inside(M1, "salt-key", "--yes", "--accept=absent")
        assert "absent" not in group.accepted(M2), "it was cut off, and knows all the same"
    finally:
        group.connect(M2)
    wait_for(lambda: "absent" in group.accepted(M2), START, "the key arrives", poll=1)
    group.inside(M2, "salt-key", "--yes", "--delete=absent")
    wait_for(lambda: "absent" not in group.accepted(M1), SOON, "the deletion, too", poll=1)
    group.is_ready(*MASTERS)
    for master in MASTERS:
        group.answers(master, MINION, START)
    group.is_well(*MASTERS)


def test_a_first_process_that_is_frozen_and_one_master_that_is(group: ComposedGroup) -> None:
    # Only the first of the container's processes, which only watches the others.
    group.docker("kill", "--signal", "STOP", M1)
    group.answers(M1, MINION)
    group.docker("kill", "--signal", "CONT", M1)
    # All of them: for the others this master hangs.
    group.docker("pause", M1)
    try:
        wait_for(
            lambda: group.salt_ha(M2, "status")["retcode"] == 2,
            SOON,
            "the second says that it does not know of the first",
            poll=1,
        )
        group.answers(M2, MINION)
        group.api_reaches(MINION, START)
    finally:
        group.docker("unpause", M1)
    group.is_ready(*MASTERS)
    group.is_well(*MASTERS)


def test_a_daemon_that_dies_is_started_again_with_its_container(group: ComposedGroup) -> None:
    before = group.docker.shows(M2)["RestartCount"]
    group.inside(M2, "python", "-c", _KILL)
    wait_for(lambda: group.docker.shows(M2)["RestartCount"] > before, SOON, "again", poll=0.5)
    group.is_ready(M2)
    assert "a daemon has ended" in group.docker.logs(M2)
    group.is_well(*MASTERS)


def test_a_master_whose_volumes_are_gone(group: ComposedGroup) -> None:
    keys = group.accepted(M1)
    group.compose("rm", "--stop", "--force", "-v", M2)
    group.docker("volume", "rm", "deploy_keys-2", "deploy_cache-2")
    group.compose("up", "--detach")
    # A stranger under a known name waits until an operator says that the old one is gone.
    wait_for(lambda: "remove_peer" in group.docker.logs(M2), START, "it says why", poll=1)
    assert group.health(M2) != "healthy"
    group.salt_ha(M1, "remove_peer", M2)
    group.is_ready(M2)
    wait_for(lambda: keys - {M2} <= group.accepted(M2), SOON, "it has the keys", poll=1)
    group.answers(M2, MINION, START)


_KILL = """
import os, signal, psutil
api = [each for each in psutil.process_iter() if "salt-api" in " ".join(each.cmdline())]
os.kill(min(each.pid for each in api), signal.SIGKILL)
"""
