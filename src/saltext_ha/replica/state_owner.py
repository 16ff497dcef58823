"""
Guards the state folder: each master needs its own.

Masters that share ``pki_dir`` share ``<pki_dir>/ha`` by default. The second would take itself for
the first: it would have its certificate, find itself in all of ``ha: masters``, and found the group
again. So an engine writes its master's name into the folder. While that engine runs, another master
is refused, and leaves a note there for the first one's operator.
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
REMEMBERED = 3600.0  # seconds for which the note of another master counts
WHAT_TO_DO = (
    "give each master a pki_dir of its own (keys are replicated; salt-ha invite "
    "share_master_key=True, or ha: share_master_key, hands master.pem over); or, where they are to "
    "share it, each a folder of its own as  ha: state_dir  , outside of it. Then start salt-master"
)


@dataclass(frozen=True)
class OwningMaster:
    """
    A master, named as in its configuration, and *when* (Unix seconds) it used the folder.
    """

    name: str
    url: str
    when: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


def move_in(config: HaConfig) -> None:
    """Write down that this master, whose engine has replica.db open, uses the folder."""
    # If the disk is full, the engine reports that.
    with contextlib.suppress(OSError):
        _write(config, TENANT_FILE)
        (config.state_dir / TURNED_AWAY_FILE).unlink(missing_ok=True)


def conflict(config: HaConfig) -> str:
    """
    Why this master must not use its state folder: another master's engine does; empty if none does.
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
    Why this master must be restarted first: its engine runs with another address; empty if not.
    """
    tenant = _tenant(config)
    if tenant is None or tenant.name != config.name:
        return ""
    return (
        f"the ha engine of {config.name} runs with an older configuration, as {tenant.url}; "
        f"the configuration says {config.url} now. Restart salt-master, so that the engine uses "
        f"that; or, if another master that is called {config.name} uses {config.state_dir}, give "
        "this one another ha: name"
    )


def former(config: HaConfig) -> OwningMaster | None:
    """
    The master that used the folder last: another one, or this one under another name or address.
    None if it had those of this master.
    """
    tenant = _read(config.state_dir / TENANT_FILE)
    same = tenant and (tenant.name, tenant.url) == (config.name, config.url)
    return None if same else tenant


def _tenant(config: HaConfig) -> OwningMaster | None:
    """The master whose engine uses the folder; None if its name and address are those here."""
    tenant = former(config)
    return tenant if tenant and in_use(config.state_dir / REPLICA_FILE) else None


def check(config: HaConfig, test: bool = False) -> None:
    """
    Refuse this master if another master's engine uses its state folder, and leave a note for that
    master's status and lint.

    :param test: leave no note.
    :raises TrustError: another one does; says which, and what to do. Or this master's own engine
        runs with an older configuration; then no note is left.
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
    A note that another master tried to use this state folder within the last hour; empty if none
    did.
    """
    other = _read(config.state_dir / TURNED_AWAY_FILE)
    if other is None or time.time() - other.when > REMEMBERED:
        return ""
    if (other.name, other.url) == (config.name, config.url):
        return ""
    return (
        f"{other} has the same state folder, {config.state_dir}, and was refused. On that "
        f"master: {WHAT_TO_DO}. This note goes away when this master is restarted, or after an hour"
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
