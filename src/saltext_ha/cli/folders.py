"""The folders of a master: of its configuration, and those that its first start makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# As salt-master has them at its start; verify_env looks after the mode of the first.
_PKI = ("", "minions", "minions_pre", "minions_denied", "minions_autosign", "minions_rejected")


def configuration(config_dir: str | None) -> Path:
    """
    The file with the configuration of the master; it may be missing if there is ``master.d``.

    :param config_dir: its folder, as the option has it.
    :raises FileNotFoundError: no master is configured there: with Salt's defaults it would be
        another master.
    """
    import salt.syspaths

    file = Path(config_dir or salt.syspaths.CONFIG_DIR) / "master"
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{file.parent}: there is no such folder; give the right one by -c")
    if not file.exists() and not file.with_name("master.d").is_dir():
        raise FileNotFoundError(
            f"{file.parent}: there is neither master nor master.d; give the right one by -c"
        )
    return file


def options(file: Path) -> dict[str, Any]:
    """
    The options in the *file* of :func:`configuration`, and in those that it includes.

    :raises ConfigError: Salt fails on a value; names its place, and the line of Salt.
    """
    import salt.config
    from salt.exceptions import SaltException

    try:
        opts: dict[str, Any] = salt.config.master_config(str(file))
    except (SaltException, OSError):
        raise  # it says why
    except Exception as exc:
        from saltext_ha.common.errors import ConfigError
        from saltext_ha.lint import collect

        for found in collect.problems(str(file)):
            where = f"{found.file}:{found.line}" if found.line else found.file
            raise ConfigError(f"{where}: {found.reason}") from exc
        raise
    return opts


def make(opts: Mapping[str, Any]) -> None:
    """
    Make the missing folders of the master *opts*, as the start of salt-master does: if root makes
    them, they belong to ``user:``.
    """
    import salt.utils.verify

    pki, cache = Path(opts["pki_dir"]), Path(opts["cachedir"])
    folders = [*(pki / name for name in _PKI), cache, cache / "jobs", cache / "proc"]
    folders += [Path(opts[key]) for key in ("sock_dir", "token_dir") if opts.get(key)]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    # Only missing ones: verify_env would change the owner of everything in the others.
    if missing and opts.get("verify_env", True):
        salt.utils.verify.verify_env(
            missing,
            opts["user"],
            permissive=opts.get("permissive_pki_access", False),
            pki_dir=opts["pki_dir"],
            root_dir=opts["root_dir"],
            skip_extra=True,
        )
