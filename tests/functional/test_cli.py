"""``salt-ha``: what it prepares before it calls a function of the runner."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest
import salt.config

from saltext_ha import cli

pytestmark = pytest.mark.core


def test_missing_folders_are_made_for_the_user_of_salt_master(tmp_path: Path) -> None:
    """As root for another user, where this runs as root; otherwise for who runs it."""
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    uid = pwd.getpwnam(user).pw_uid
    opts = salt.config.apply_master_config(
        {"root_dir": str(tmp_path), "user": user, "id": "m1", "conf_file": str(tmp_path / "master")}
    )
    cli.make_folders(opts)
    pki, cache = Path(opts["pki_dir"]), Path(opts["cachedir"])
    for folder in (pki, pki / "minions", cache, cache / "proc", Path(opts["sock_dir"])):
        assert folder.stat().st_uid == uid, folder
    assert stat.S_IMODE(pki.stat().st_mode) == 0o700


def test_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    opts = salt.config.apply_master_config(
        {
            "root_dir": str(tmp_path),
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "id": "m1",
            "conf_file": str(tmp_path / "master"),
        }
    )
    pki = Path(opts["pki_dir"])
    pki.mkdir(parents=True)
    pki.chmod(0o750)
    cli.make_folders(opts)
    assert stat.S_IMODE(pki.stat().st_mode) == 0o750
    assert (pki / "minions").is_dir()


def test_a_folder_without_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nowhere"
    assert cli.main(["-c", str(missing), "join"]) == 2
    assert str(missing) in capsys.readouterr().err
