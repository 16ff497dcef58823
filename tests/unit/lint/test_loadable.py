"""Which modules of the configuration are looked for, and what Salt's loaders say of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.lint import ask, loadable

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, []),
        (
            {"fileserver_backend": ["roots"], "external_auth": {"pam": {}}},
            [],
        ),
        ({"fileserver_backend": ["roots", "gitfs"]}, [("fileserver_backend", "gitfs")]),
        (
            {"ext_pillar": [{"stack": "x"}, {"stack": "y"}, {"git": [], "vault": ""}]},
            [("ext_pillar", "stack"), ("ext_pillar", "git"), ("ext_pillar", "vault")],
        ),
        ({"external_auth": {"^model": {}, "ldap": {}}}, [("external_auth", "ldap")]),
        ({"event_return": "mysql"}, [("event_return", "mysql")]),
        (
            {"rest_cherrypy": {"port": 8000}, "rest_tornado": None},
            [("rest_cherrypy", "rest_cherrypy")],
        ),
        ({"ext_pillar": [7, None, {3: 4}], "cache": False, "master_tops": "x" * 3}, [
            ("master_tops", "xxx")
        ]),
    ],
)  # fmt: skip
def test_what_a_configuration_names(options: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert loadable.named(options) == found


def test_a_module_of_the_sites_own_is_loaded_from_its_folder(tmp_path: Path) -> None:
    conf = tmp_path / "master"
    conf.write_text(f"root_dir: {tmp_path}\nextension_modules: {tmp_path}/ext\n")
    names = [("ext_pillar", "ours"), ("ext_pillar", "broken"), ("ext_pillar", "gone")]
    folder = tmp_path / "ext" / "pillar"
    folder.mkdir(parents=True)
    (folder / "ours.py").write_text("def ext_pillar(minion_id, pillar): return {}\n")
    (folder / "broken.py").write_text(
        "def __virtual__(): return False, 'hvac is not installed'\n"
        "def ext_pillar(minion_id, pillar): return {}\n"
    )
    found = loadable.unloadable(str(conf), names)
    assert [(each.option, each.name) for each in found] == names[1:]
    assert "hvac is not installed" in found[0].why


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 3", "exit code 3"), ("echo no >&2; exit 1", "no"), ("echo x", "Expecting value")],
)
def test_loaders_that_cannot_be_asked_are_unknown_not_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(HaError, match=why):
        loadable.unloadable("x", [("ext_pillar", "y")])
    conf = tmp_path / "master"
    conf.write_text(f"root_dir: {tmp_path}\nid: m1\next_pillar: [y: z]\n")
    running = {"conf_file": str(conf), "id": "m1"}
    answer = ask.master(running)
    assert "could not be asked" in answer["unknown"]["HA523"]
    assert answer["retcode"] == 2
    # Who does not ask for that rule need not know.
    assert ask.master(running, ignore="HA523")["unknown"].keys() == {"other masters"}
    assert ask.master(running, only="HA501")["unknown"].keys() == {"other masters"}
    conf.write_text(f"{conf.read_text()}ha: {{lint: {{ignore: [HA523]}}}}\n")
    assert ask.for_peer("m1", running)["unknown"] == {}


def test_a_driver_that_fails_is_not_quoted(tmp_path: Path) -> None:
    """Salt resolves ``sdb://`` while it loads the configuration."""
    folder = tmp_path / "ext" / "sdb"
    folder.mkdir(parents=True)
    (folder / "ours.py").write_text(
        "def get(key, profile=None): raise OSError('403: https://hunter2@h/x')\n"
    )
    conf = tmp_path / "master"
    conf.write_text(
        f"root_dir: {tmp_path}\nextension_modules: {tmp_path}/ext\next_pillar: [y: z]\n"
        "mysdb: {driver: ours}\nmine: sdb://mysdb/x\n"
    )
    answer = ask.master({"conf_file": str(conf), "id": "m1"})
    assert answer["unknown"]["HA523"] == "Salt's loaders could not be asked: OSError"
    assert "hunter2" not in str(answer)
