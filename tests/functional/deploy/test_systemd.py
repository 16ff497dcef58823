"""The drop-ins for systemd, as systemd reads them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.tools import program, script

FOLDER = Path(__file__).parents[3] / "deploy" / "systemd"
# As Salt's packages have it.
UNIT = """[Unit]
Description=The Salt {name}
After=network.target

[Service]
LimitNOFILE=100000
Type=notify
NotifyAccess=all
ExecStart=/bin/true

[Install]
WantedBy=multi-user.target
"""


def verify(folder: Path, name: str, drop_in: str) -> str:
    """What ``systemd-analyze verify`` says of the unit with *drop_in*; empty: nothing."""
    unit = folder / f"salt-{name}.service"
    unit.write_text(UNIT.format(name=name.capitalize()))
    own = folder / f"{unit.name}.d"
    own.mkdir(exist_ok=True)
    (own / "ha.conf").write_text(drop_in)
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(unit)],
        env={"SYSTEMD_UNIT_PATH": f"{folder}:/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if str(folder) in line or unit.name in line]
    return "\n".join(said) + ("" if done.returncode == 0 or said else done.stderr)


def kept(name: str, salt_ha: Path) -> str:
    """The drop-in, with *salt_ha* where it is on a host."""
    script(salt_ha)
    text = (FOLDER / f"salt-{name}.service.d" / "ha.conf").read_text()
    return text.replace("/usr/local/bin/salt-ha", str(salt_ha))


@pytest.mark.parametrize("name", ["master", "minion"])
def test_systemd_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    assert verify(tmp_path, name, kept(name, tmp_path / "salt-ha")) == ""


@pytest.mark.parametrize("wrong", ["Restart=sometimes", "Restrat=always", "ExecStartPre=/none/x"])
def test_what_is_wrong_is_found(wrong: str, tmp_path: Path) -> None:
    assert verify(tmp_path, "master", f"[Service]\n{wrong}\n")


def test_a_master_joins_before_it_starts_and_has_time_for_it() -> None:
    text = (FOLDER / "salt-master.service.d" / "ha.conf").read_text()
    (command,) = re.findall(r"(?m)^ExecStartPre=(.*)$", text)
    program_, *arguments = shlex.split(command)
    assert (Path(program_).name, arguments[0]) == ("salt-ha", "join")
    (wait,) = (int(each.removeprefix("wait=")) for each in arguments[1:])
    (limit,) = re.findall(r"(?m)^TimeoutStartSec=(\d+)$", text)
    assert int(limit) >= wait + 60
