"""``tests/packages.sh``, which ``make test`` begins with; apt-get, sudo and id are stand-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools import PACKAGES, SCRIPT, program

NEEDED = ("env", "dirname", "cat", "chmod")
SUDO = """#!/bin/sh
[ "$2" = true ] && exit {may}
shift
echo "$@" >>{log}
[ "$1" != env ] || exec "$@"
"""


class Host:
    """A host that has none of the programs on its PATH; who calls is not root."""

    def __init__(self, root: Path) -> None:
        self.bin, self.log = root / "bin", root / "log"
        self.bin.mkdir()
        self.log.touch()
        for name in NEEDED:
            (self.bin / name).symlink_to(f"/usr/bin/{name}")
        self.has("id", "#!/bin/sh\necho 1000\n")

    def has(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def has_sudo(self, may: bool) -> None:
        self.has("sudo", SUDO.format(may=0 if may else 1, log=self.log))

    def install(self) -> tuple[int, str]:
        """The exit code, and what was said."""
        done = subprocess.run(
            ["/bin/bash", SCRIPT],
            env={"PATH": str(self.bin)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_where_all_is_there_nothing_is_called(host: Host) -> None:
    for name in PACKAGES:
        host.has(name)
    assert host.install() == (0, "")


@pytest.mark.parametrize("sudo", [False, True])
def test_who_may_not_install_is_told_the_one_command(host: Host, sudo: bool) -> None:
    host.has("apt-get")
    host.has("git")
    if sudo:
        host.has_sudo(may=False)
    code, said = host.install()
    assert code == 1
    assert "takes root, or sudo without a password" in said
    assert "Run as root: apt-get update && apt-get install -y chromium" in said
    assert " git" not in said
    assert host.log.read_text() == ""


def test_what_is_missing_is_installed_with_sudo(host: Host) -> None:
    host.has_sudo(may=True)
    everything = " ".join(PACKAGES)
    made = f"cat </dev/null >{host.bin}/$name && chmod 755 {host.bin}/$name"
    host.has("apt-get", f"#!/bin/sh\nfor name in {everything}; do {made}; done\n")
    code, said = host.install()
    assert (code, said.startswith("Installing for the tests: chromium")) == (0, True), said
    called = host.log.read_text()
    assert "apt-get -qq -o DPkg::Lock::Timeout=120 update" in called
    assert "--no-install-recommends chromium" in called


@pytest.mark.parametrize(
    ("apt", "reason"),
    [
        ("#!/bin/sh\nexit 100\n", "apt-get update failed"),
        ('#!/bin/sh\n[ "$4" = update ]\n', "apt-get install failed"),
        ("#!/bin/sh\n", "apt-get left them out"),
        ("", "there is no apt-get here"),
    ],
)
def test_a_failed_installation_is_said(host: Host, apt: str, reason: str) -> None:
    host.has_sudo(may=True)
    if apt:
        host.has("apt-get", apt)
    code, said = host.install()
    assert code == 1
    assert reason in said
    assert "NOT INSTALLED: chromium" in said
    assert "Tests that drive them will fail" in said


def test_a_test_that_lacks_a_program_fails_and_does_not_skip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        program("chromium")
