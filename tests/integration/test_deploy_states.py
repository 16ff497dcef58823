"""``deploy/states``: two masters that know nothing of each other become a group by a state."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab import Lab, Master, wait_for
from lab.cli import Result, run
from lab.master import listens
from tests.integration.conftest import MakeLab
from tests.integration.group import QUICK, SOON, level
from tests.tools import program

STATES = Path(__file__).parents[2] / "deploy" / "states"
SECRET = "0123456789abcdef" * 4


def apply(lab: Lab, master: Master, pillar: Mapping[str, Any]) -> Result:
    """``salt-call --local state.apply`` on the host of *master*."""
    folder = lab.root / f"host-{master.name}"
    folder.mkdir(exist_ok=True)
    settings = {"id": "some-host", "root_dir": str(folder), "pki_dir": str(folder / "pki")}
    (folder / "minion").write_text(json.dumps(settings), "utf-8")
    command = [str(Path(sys.executable).with_name("salt-call")), "--local", "-c", str(folder)]
    command += ["--retcode-passthrough", "--out=json", "--file-root", str(STATES)]
    command += ["state.apply", "ha_group", f"pillar={json.dumps({'ha_group': pillar})}"]
    return run(command, env=master.env, cwd=folder, timeout=300, server=master.server)


def results(applied: Result) -> dict[str, Any]:
    states = applied.data["local"]
    assert isinstance(states, dict), applied
    return {each["__id__"]: each for each in states.values()}


def described(lab: Lab, master: Master, masters: Mapping[str, str]) -> dict[str, Any]:
    return {
        "masters": dict(masters),
        "name": master.name,
        "secret": SECRET,
        "force": True,
        "port": master.peer_port,
        "config_dir": str(master.config_file.parent),
        "state_dir": str(Path(master.pki_dir) / "ha"),
        "ha": {**QUICK, "listen_host": master.address},
        "python": sys.executable,
        "user": master.opts["user"],
        "wait": 300,
        "restart": f"touch {lab.root / master.name}.restart",
    }


def test_two_plain_masters_become_a_group(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, engine=False) for name in ("m1", "m2"))
        lab.start_all()
        pub = [(Path(m.pki_dir) / "master.pub").read_text() for m in (m1, m2)]
        assert pub[0] != pub[1]
        masters = {m.name: m.address for m in (m1, m2)}
        for master in (m1, m2):
            pillar = described(lab, master, masters)
            found = results(apply(lab, master, pillar))
            assert all(each["result"] is True for each in found.values()), found
            assert SECRET not in json.dumps(found)
            restart = Path(f"{lab.root / master.name}.restart")
            assert restart.exists()
            restart.unlink()
            master.stop()
            master.start()
            again = results(apply(lab, master, pillar))
            assert not any(each["changes"] for each in again.values()), again
            assert not restart.exists()
        wait_for(lambda: level(m1), SOON, "the group has met")
        m1.plant("minions", "web1", lab.key_pair()[1])
        wait_for(lambda: "web1" in m2.keys()["minions"], SOON, "m2 has it")
        assert (Path(m2.pki_dir) / "master.pub").read_text() == pub[0]


def test_by_salt_ssh(make_lab: MakeLab) -> None:
    """As from an operator's machine: the hosts have sshd, and no minion."""
    with make_lab() as lab:
        m1, m2 = (lab.add_master(name, engine=False) for name in ("m1", "m2"))
        lab.start_all()
        masters = {m.name: m.address for m in (m1, m2)}
        with hosts_by_ssh(lab, masters) as salt_ssh:
            for master in (m1, m2):
                pillar = described(lab, master, masters)
                done = salt_ssh(master, "state.apply", "ha_group", pillar={"ha_group": pillar})
                found = {each["__id__"]: each for each in done.data[master.name].values()}
                assert all(each["result"] is True for each in found.values()), found
                assert SECRET not in json.dumps(found)
                master.stop()
                master.start()
        wait_for(lambda: level(m1), SOON, "the group has met")
        pub = [(Path(m.pki_dir) / "master.pub").read_text() for m in (m1, m2)]
        assert pub[0] == pub[1]


@contextmanager
def hosts_by_ssh(lab: Lab, addresses: Mapping[str, str]) -> Iterator[Callable[..., Result]]:
    """A real sshd at the address of each master; calls salt-ssh for a master."""
    folder = lab.root / "ssh"
    conf = folder / "conf"
    conf.mkdir(parents=True)
    for name in ("host", "operator"):
        keygen = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f"]
        subprocess.run([*keygen, str(folder / name)], check=True)
    port = lab.ports.cluster
    lines = [f"ListenAddress {address}" for address in addresses.values()]
    lines += [f"Port {port}", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/operator.pub"]
    lines += ["StrictModes no", "UsePAM no", f"PidFile {folder}/sshd.pid"]
    # Whatever the shell of this user sets, as that of pyenv.
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    command = f'env -i HOME={folder} PATH={path} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    lines += [f"ForceCommand {command}", "Subsystem sftp /usr/lib/openssh/sftp-server"]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n", "utf-8")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of root insists on it
    settings: dict[str, Any] = {"root_dir": str(folder), "cachedir": str(folder)}
    settings["pki_dir"] = str(folder / "pki")
    settings["file_roots"] = {"base": [str(STATES)]}
    settings["known_hosts_file"] = str(folder / "known")
    (folder / "known").touch()  # else Salt leaves it to ssh
    (conf / "master").write_text(json.dumps(settings), "utf-8")
    roster = {
        name: {
            "host": address,
            "port": port,
            "user": pwd.getpwuid(os.geteuid()).pw_name,
            "priv": str(folder / "operator"),
            "thin_dir": str(folder / f"thin-{name}"),
        }
        for name, address in addresses.items()
    }
    (conf / "roster").write_text(json.dumps(roster), "utf-8")

    def salt_ssh(master: Master, *args: str, pillar: Mapping[str, Any]) -> Result:
        command = [str(Path(sys.executable).with_name("salt-ssh")), "-c", str(conf), "-i"]
        command += ["--roster-file", str(conf / "roster"), "--out=json", master.name, *args]
        command.append(f"pillar={json.dumps(pillar)}")
        return run(command, env=master.env, cwd=folder, timeout=400, server=master.server)

    sshd = subprocess.Popen([program("sshd"), "-D", "-e", "-f", folder / "sshd_config"])
    try:
        for address in addresses.values():
            wait_for(partial(listens, (address, port)), SOON, f"sshd listens at {address}")
        yield salt_ssh
    finally:
        sshd.terminate()
        sshd.wait(60)


def test_what_is_missing_is_said_and_nothing_written(make_lab: MakeLab) -> None:
    with make_lab() as lab:
        m1 = lab.add_master("m1", engine=False)
        pillar = described(lab, m1, {"m1": m1.address, "m2": "10.0.0.2"})
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"masters": {"m1": m1.address}}, "fewer than two masters"),
            ({"name": "m9"}, "set ha_group:name"),
            ({"secret": "short"}, "openssl rand -hex 32"),
            ({"force": "false"}, "ha_group:force takes true or false"),
            ({"conf_dir": "/tmp"}, "ha_group:conf_dir: no such key; takes masters, name, secret"),
        ]
        for change, words in wrong:
            applied = apply(lab, m1, {**pillar, **change})
            (only,) = results(applied).values()
            assert only["result"] is False
            assert words in only["comment"]
            assert applied.returncode
        assert not (m1.config_file.parent / "master.d" / "ha.conf").exists()
