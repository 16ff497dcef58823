"""
A pytest plugin beside pytest-salt-factories: each master that a suite starts also runs the engine
``ha``, each minion ``ha_watchdog``, and the masters of a suite form a group.

Environment: ``SALTEXT_HA_ON`` (``1``: on; otherwise the suite runs as it is), ``SALTEXT_HA_PORT``
(this and the next TCP port are free), ``SALTEXT_HA_SECRET_FILE``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from saltfactories.manager import FactoriesManager
from saltfactories.plugins.event_listener import EventListener
from saltfactories.plugins.log_server import LogServer

ON = os.environ.get("SALTEXT_HA_ON") == "1"
LOOPBACK = "127.0.0.1"

_masters: list[dict[str, Any]] = []
_minions: list[dict[str, Any]] = []


def add_engine(config: dict[str, Any], engine: str, settings: dict[str, Any]) -> None:
    """Switch *engine* on in the configuration of a master or minion."""
    config.setdefault("engines", []).append({engine: {}})
    config["ha"] = settings


def group_of(master_id: str) -> tuple[str, str]:
    """The group of a master, and its name there: ``mm-failover-master-2`` is 2 of mm-failover."""
    group, _, number = master_id.rpartition("-")
    return group.removesuffix("-master"), f"m{number}"


def master_settings(config: dict[str, Any]) -> dict[str, Any]:
    """
    The settings under ``ha:`` of a master.

    Salt's suites start their masters on 127.0.0.1 and 127.0.0.2, both or one at a time, in any
    order; so each is told where the others may be, and they join each other when they meet.
    """
    port = int(os.environ["SALTEXT_HA_PORT"])
    group, name = group_of(config["id"])
    return {
        "name": name,
        "group": group,
        "address": config["interface"],
        "listen_host": config["interface"],
        "port": port,
        "status": {"host": config["interface"], "port": port + 1},
        "masters": [f"https://127.0.0.{number}:{port}" for number in (1, 2)],
        "secret_file": os.environ["SALTEXT_HA_SECRET_FILE"],
    }


def _after(
    work: Callable[..., None], more: Callable[[dict[str, Any]], None]
) -> Callable[..., None]:
    def both(manager: FactoriesManager, config: dict[str, Any]) -> None:
        work(manager, config)
        more(config)

    return both


def _master(config: dict[str, Any]) -> None:
    add_engine(config, "ha", master_settings(config))
    _masters.append(config)


def _minion(config: dict[str, Any]) -> None:
    add_engine(config, "ha_watchdog", {"watchdog": {}})
    _minions.append(config)


def _on_loopback() -> None:
    """Keep two servers of pytest-salt-factories from listening on all addresses of the machine."""
    create, prepare = LogServer.__init__, EventListener.__attrs_post_init__

    def log_server(self: Any, **kwargs: Any) -> None:
        create(self, **{"log_host": LOOPBACK, **kwargs})

    def event_listener(self: Any) -> None:
        self.host, self.address = LOOPBACK, f"tcp://{LOOPBACK}:{self.port}"
        prepare(self)

    LogServer.__init__, EventListener.__attrs_post_init__ = log_server, event_listener


_on_loopback()
if ON:
    FactoriesManager.final_master_config_tweaks = _after(
        FactoriesManager.final_master_config_tweaks, _master
    )
    FactoriesManager.final_minion_config_tweaks = _after(
        FactoriesManager.final_minion_config_tweaks, _minion
    )


def missing() -> list[str]:
    """The daemons that ran without ours after all, as their own files show."""
    found = []
    for config in _masters:
        peers = Path(config["root_dir"], config["pki_dir"], "ha", "peers")
        if not list(peers.glob("*.json")):
            found.append(f"{config['id']}: no engine, or one that met no other master")
    for config in _minions:
        log = Path(config["root_dir"], config["log_file"])
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if "ha_watchdog: watching" not in text:
            found.append(f"{config['id']}: no watchdog")
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a suite that is green only because ours never ran."""
    if session.config.option.collectonly or not ON:
        return
    report: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    without = missing() if _masters and _minions else ["no master or no minion was started"]
    for line in without:
        report.write_line(f"saltext-ha: {line}", red=True)
    if without:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    else:
        report.write_line(
            f"saltext-ha: {len(_masters)} masters in groups, {len(_minions)} minions with watchdog"
        )
