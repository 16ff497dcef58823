"""
``salt-ha``: the functions of the ``ha`` runner, without a salt-master that has been started.

``salt-run`` needs the folders that the first start of salt-master makes. This makes them first,
as salt-master does (for the user of ``user:`` when root runs it), becomes that user, and calls the
function as ``salt-run ha.FUNCTION`` would: same arguments, same output, same exit codes.

.. code-block:: bash

    salt-ha join wait=300
    salt-ha -c /srv/salt-config --out=json peers
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

UNUSABLE = 2
# As salt-master has them at its start; the first is the one whose mode is looked after.
_PKI = ("", "minions", "minions_pre", "minions_denied", "minions_autosign", "minions_rejected")


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The program ``salt-ha``.

    :return: the exit code of the function; 2 when it could not be called.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options.config_dir, options.function, options.arguments, options.out)
    except Exception as exc:
        import salt.exceptions

        if not isinstance(exc, (salt.exceptions.SaltException, OSError)):
            raise
        print(f"salt-ha: {exc}", file=sys.stderr)
        return UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="salt-ha",
        description="Call a function of the ha runner, also before the first start of salt-master.",
        epilog="salt-run -d ha  shows all functions.",
    )
    parser.add_argument(
        "-c",
        "--config-dir",
        default=os.environ.get("SALT_CONFIG_DIR"),
        help="the folder with the file 'master' in it (default: Salt's own)",
    )
    parser.add_argument("--out", help="json, yaml, …; tables by default")
    parser.add_argument("function", help="for instance join; 'ha.' before it may be left out")
    parser.add_argument("arguments", nargs="*", help="as for salt-run: values, and name=value")
    return parser


def _run(config_dir: str | None, function: str, arguments: list[str], out: str | None) -> int:
    import salt.config
    import salt.loader
    import salt.minion
    import salt.output
    import salt.syspaths
    import salt.utils.args
    import salt.utils.verify

    file = Path(config_dir or salt.syspaths.CONFIG_DIR) / "master"
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{file.parent}: there is no such folder; give the right one by -c")
    opts = salt.config.master_config(str(file))
    make_folders(opts)
    if not salt.utils.verify.check_user(opts["user"]):
        raise PermissionError(f"run this as root or as {opts['user']} (user: in {file})")
    context: dict[str, Any] = {}
    functions = salt.loader.runner(opts, context=context)
    name = function if function.startswith("ha.") else f"ha.{function}"
    if name not in functions:
        raise FileNotFoundError(f"there is no function {name}; salt-run -d ha  lists them")
    args, kwargs = salt.minion.load_args_and_kwargs(
        functions[name], salt.utils.args.parse_input(arguments, no_parse=[])
    )
    answer = functions[name](*args, **kwargs)
    outputter = answer.pop("outputter", None)
    salt.output.display_output(answer, out or outputter, opts)
    return int(answer.get("retcode", 0))


def make_folders(opts: Mapping[str, Any]) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
