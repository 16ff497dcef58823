"""
A state folder is one master's: who uses it, and who else tried to.

Masters that share ``pki_dir`` share ``<pki_dir>/ha`` by default. The second would be the first: it
has its certificate, takes all of ``ha: masters`` for itself, and founds the group once more. So an
engine writes down in the folder whose it is; another master is turned away as long as that engine
runs, and leaves word there, for the first one's operator to see.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import NO_SENSE, TrustError
from saltext_ha.common.files import read_plain, write_whole
from saltext_ha.config.mapping import HaConfig
from saltext_ha.replica.opening import in_use
from saltext_ha.replica.replica import REPLICA_FILE

TENANT_FILE = "tenant.json"
TURNED_AWAY_FILE = "turned-away.json"
REMEMBERED = 3600.0  # seconds for which it counts that another master tried
WHAT_TO_DO = (
    "give each master a pki_dir of its own (keys are replicated; salt-ha invite "
    "share_master_key=True, or ha: share_master_key, hands master.pem over); or, where they are to "
    "share it, each a folder of its own as  ha: state_dir  , outside of it. Then start salt-master"
)


@dataclass(frozen=True)
class OwningMaster:
    """A master as its configuration names it, and *when* (seconds since the epoch) it was there."""

    name: str
    url: str
    when: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


def move_in(config: HaConfig) -> None:
    """Note that the folder is that of this master, whose engine has replica.db open."""
    # Where the disk is full, the engine has worse to tell.
    with contextlib.suppress(OSError):
        _write(config, TENANT_FILE)
        (config.state_dir / TURNED_AWAY_FILE).unlink(missing_ok=True)


def conflict(config: HaConfig) -> str:
    """
    Why this master must not use its state folder: the engine of another one does; else empty.
    """
    tenant = _tenant(config)
    if tenant is None or tenant.name == config.name:
        return ""
    return (
        f"{config.state_dir}: another ha engine uses it, that of {tenant}, and this master is "
        f"{config.name} ({config.url}). The state folder says who a master is, and is for one "
        f"only: {WHAT_TO_DO}"
    )


def restart_due(config: HaConfig) -> str:
    """
    Why this master is to be restarted first: its engine runs with another address; else empty.
    """
    tenant = _tenant(config)
    if tenant is None or tenant.name != config.name:
        return ""
    return (
        f"the ha engine of {config.name} runs with an older configuration, as {tenant.url}: this "
        f"one says {config.url}. Restart salt-master, so that the engine has it, too; if another "
        f"master that is called {config.name} uses {config.state_dir}, give this one another "
        "ha: name"
    )


def _tenant(config: HaConfig) -> OwningMaster | None:
    """Whose engine uses the folder, where it is not one of just this configuration."""
    tenant = _read(config.state_dir / TENANT_FILE)
    if tenant is None or (tenant.name, tenant.url) == (config.name, config.url):
        return None
    # Else it has another name or address now.
    return tenant if in_use(config.state_dir / REPLICA_FILE) else None


def check(config: HaConfig, test: bool = False) -> None:
    """
    Turn this master away where the engine of another one uses its state folder. That one's status
    and lint then say so.

    :param test: leave no word.
    :raises TrustError: it does; says whose, and what to do. Or its own runs with an older
        configuration: then no word is left.
    """
    if why := restart_due(config):
        raise TrustError(why)
    why = conflict(config)
    if not why:
        return
    if not test:
        with contextlib.suppress(OSError):
            _write(config, TURNED_AWAY_FILE)
    raise TrustError(why)


def turned_away(config: HaConfig) -> str:
    """
    That another master tried to use this one's state folder within the hour; else empty.
    """
    other = _read(config.state_dir / TURNED_AWAY_FILE)
    if other is None or time.time() - other.when > REMEMBERED:
        return ""
    if (other.name, other.url) == (config.name, config.url):
        return ""
    return (
        f"{other} has the same state folder, {config.state_dir}, and was turned away: on it, "
        f"{WHAT_TO_DO}. This note goes when this master is restarted, or after an hour"
    )


def _write(config: HaConfig, file: str) -> None:
    said = {"name": config.name, "url": config.url, "when": time.time()}
    write_whole(config.state_dir / file, json.dumps(said).encode())


def _read(path: Path) -> OwningMaster | None:
    try:
        raw: Any = json.loads(read_plain(path))
        return OwningMaster(str(raw["name"])[:100], str(raw["url"])[:300], float(raw["when"]))
    except (OSError, *NO_SENSE):
        return None
