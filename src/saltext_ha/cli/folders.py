"""The folders of a master that has not been started yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# As salt-master has them at its start; the first is the one whose mode is looked after.
_PKI = ("", "minions", "minions_pre", "minions_denied", "minions_autosign", "minions_rejected")


def make(opts: Mapping[str, Any]) -> None:
    """
    Make the folders of the master *opts* that are missing, as the start of salt-master does:
    when root does it, they belong to ``user:``.
    """
    import salt.utils.verify

    pki, cache = Path(opts["pki_dir"]), Path(opts["cachedir"])
    folders = [*(pki / name for name in _PKI), cache, cache / "jobs", cache / "proc"]
    folders += [Path(opts[key]) for key in ("sock_dir", "token_dir") if opts.get(key)]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    # Only those: it would change the owner of all that is in the others.
    if missing and opts.get("verify_env", True):
        salt.utils.verify.verify_env(
            missing,
            opts["user"],
            permissive=opts.get("permissive_pki_access", False),
            pki_dir=opts["pki_dir"],
            root_dir=opts["root_dir"],
            skip_extra=True,
        )
