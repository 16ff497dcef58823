"""
``salt-ha``: the functions of the ``ha`` runner, without a salt-master that has been started.

``salt-run`` needs the folders that the first start of salt-master makes. This makes them first,
as salt-master does (for the user of ``user:`` when root runs it), becomes that user, and calls the
function as ``salt-run ha.FUNCTION`` would: same arguments, same output, same exit codes.

It is also the way for secrets, which must not go through Salt: whatever a runner returns is an
event that others may follow. ``salt-ha invite`` prints the token, alone on standard output, and
``salt-ha join`` takes it from a file, from standard input or from a prompt, never as an argument.

Four functions are of this program alone: ``watch``, ``report``, ``completion`` and ``lock``.

.. code-block:: bash

    salt-ha invite
    salt-ha join --token-file -
    salt-ha join wait=300
    salt-ha -c /srv/salt-config --out=json peers
    salt-ha watch
    salt-ha report report.md
    salt-ha completion bash

``salt-ha lock`` runs a command while no other master of the group runs one under that name.
It becomes nobody: the command runs as the user that calls it.

.. code-block:: bash

    salt-ha lock --wait 60 nightly-backup -- /usr/local/bin/backup --full
"""

from __future__ import annotations

import argparse
import getpass
import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

UNUSABLE = 2
INTERRUPTED = 130
STANDARD_INPUT = "-"
COMMAND = "--"
LONGEST = 8192  # characters; a token has about 300
# As salt-master has them at its start; the first is the one whose mode is looked after.
_PKI = ("", "minions", "minions_pre", "minions_denied", "minions_autosign", "minions_rejected")


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The program ``salt-ha``.

    :return: the exit code of the function; 2 when it could not be called.
    """
    # Before anything is read that must not lie on a disk.
    from saltext_ha.config import secret

    secret.keep_from_core_dumps()
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index(COMMAND) if COMMAND in given else len(given)
    options = parser.parse_intermixed_args(given[:end])
    if options.function in ("lock", "ha.lock"):
        return _guarded(lambda: _lock(parser, options, given[end + 1 :]))
    if options.wait is not None or end < len(given):
        parser.error("--wait and -- are for lock")
    name = options.function if options.function.startswith("ha.") else f"ha.{options.function}"
    if name == "ha.join":
        for argument in [one for one in options.arguments if one.startswith("token_file=")]:
            options.arguments.remove(argument)
            options.token_file = argument.partition("=")[2]
    elif options.token_file is not None:
        parser.error("--token-file is for join")
    if name == "ha.completion":
        return _guarded(lambda: _completion(parser, options.arguments))
    return _guarded(lambda: _run(options, name))


def _guarded(work: Callable[[], int]) -> int:
    """What *work* returns; 2 and its reason when it fails as it may."""
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
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
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="join: the file with the token; -: asks for it, or reads it from standard input. "
        "Needed for a token only where ha: masters is set: otherwise - is the default",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        help="lock: for how long it may wait; without, for as long as it takes",
    )
    parser.add_argument("function", help="for instance join; 'ha.' before it may be left out")
    parser.add_argument("arguments", nargs="*", help="as for salt-run: values, and name=value")
    return parser


def _run(options: argparse.Namespace, name: str) -> int:
    import salt.config
    import salt.loader
    import salt.minion
    import salt.output
    import salt.syspaths
    import salt.utils.args
    import salt.utils.verify
    from salt.exceptions import SaltInvocationError

    if name == "ha.join":
        _refuse_token(options.arguments)
    own = _OWN.get(name)
    if own is not None and len(options.arguments) > 1:
        raise SaltInvocationError(f"{name[3:]}: takes one argument at most: {options.arguments}")
    file = Path(options.config_dir or salt.syspaths.CONFIG_DIR) / "master"
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{file.parent}: there is no such folder; give the right one by -c")
    opts = salt.config.master_config(str(file))
    # As the calling user: the user of salt-master may not be allowed to read that file.
    token = _token(opts, options.token_file) if name == "ha.join" else ""
    make_folders(opts)
    if not salt.utils.verify.check_user(opts["user"]):
        raise PermissionError(f"run this as root or as {opts['user']} (user: in {file})")
    if own is not None:
        return own(opts, *options.arguments)
    context: dict[str, Any] = {}
    functions = salt.loader.runner(opts, context=context)
    if name not in functions:
        raise FileNotFoundError(f"there is no function {name}; salt-run -d ha  lists them")
    args, kwargs = salt.minion.load_args_and_kwargs(
        functions[name], salt.utils.args.parse_input(options.arguments, no_parse=[])
    )
    try:
        inspect.signature(functions[name]).bind(*args, **kwargs)
    except TypeError as exc:
        raise SaltInvocationError(
            f"{name}: {exc}; salt-run -d {name}  shows all it takes"
        ) from None
    if name == "ha.invite":
        return _invite(opts, options.out, args, kwargs)
    answer = _join(opts, token, kwargs) if name == "ha.join" else functions[name](*args, **kwargs)
    outputter = answer.pop("outputter", None)
    salt.output.display_output(answer, options.out or outputter, opts)
    return int(answer.get("retcode", 0))


def _lock(
    parser: argparse.ArgumentParser, options: argparse.Namespace, command: Sequence[str]
) -> int:
    """``salt-ha lock NAME -- command``."""
    import salt.config
    import salt.syspaths

    from saltext_ha.commands import engine_client, locked
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping
    from saltext_ha.once import runs
    from saltext_ha.transport import control_client

    wait = options.wait
    if len(options.arguments) != 1 or not command or (wait is not None and not wait >= 0):
        parser.error("lock takes a name and a command: salt-ha lock [--wait SECONDS] NAME -- …")
    (name,) = options.arguments
    file = Path(options.config_dir or salt.syspaths.CONFIG_DIR) / "master"
    settings = mapping.parse(salt.config.master_config(str(file)))
    runs.check(name)
    if settings.leader is None:
        raise HaError("ha: leader: False: this master takes no part in locks")

    def ask(method: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return control_client.request(settings.control_socket, method, payload, timeout)

    def say(line: str) -> None:
        print(f"salt-ha: {line}", file=sys.stderr, flush=True)

    by = f"{engine_client.caller(None)}, process {os.getpid()}"
    return locked.run(locked.Lock(ask, name, by, say), name, command, wait, say)


def _refuse_token(arguments: Sequence[str]) -> None:
    """:raises HaError: one of *arguments* of ``join`` is, or may be, a token."""
    from saltext_ha.commands import joining

    for argument in arguments:
        name, _, value = argument.rpartition("=")
        if name in ("", "token"):
            raise joining.refused(value)


def _token(opts: Mapping[str, Any], file: str | None) -> str:
    """
    The token to join by; empty: by the group's secret.

    :param file: as the option has it.
    :raises HaError: it cannot be read.
    """
    from saltext_ha.commands import joining
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping

    if file is not None and file != STANDARD_INPUT:
        return joining.token_in(file)
    if file is None:
        try:
            settings = mapping.parse(opts)
        except HaError:
            return ""  # the function says what is wrong
        # What starts masters unattended is to wait for no token.
        if settings.masters:
            return ""
    token = _asked()
    if not token and file is not None:
        raise HaError("no token on standard input; it takes one of  salt-ha invite")
    return token


def _asked() -> str:
    """What stands on standard input, or what a person types, unseen."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Token of salt-ha invite (it is not shown): ").strip()
        except EOFError:
            return ""
    return sys.stdin.buffer.read(LONGEST).decode(errors="replace").strip()


def _invite(opts: Mapping[str, Any], out: str | None, args: list[Any], kwargs: Any) -> int:
    """``salt-ha invite``: the token alone on standard output, all about it beside."""
    import salt.output

    from saltext_ha.commands import engine_client, inviting
    from saltext_ha.config import mapping

    answer = engine_client.shaped(
        lambda: inviting.printed(inviting.make(opts, mapping.parse(opts), *args, **kwargs)), {}
    )
    outputter = answer.pop("outputter")
    if out or "token" not in answer:
        salt.output.display_output(answer, out or outputter, opts)
    else:
        print(answer.pop("token"), flush=True)
        print(salt.output.out_format(answer, outputter, opts), file=sys.stderr)
    return int(answer["retcode"])


def _join(opts: Mapping[str, Any], token: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    from saltext_ha.commands import engine_client, joining
    from saltext_ha.config import mapping

    return engine_client.shaped(
        lambda: joining.join(opts, mapping.parse(opts), token, tell=joining.aloud, **kwargs), {}
    )


def _watch(opts: Mapping[str, Any], interval: str = "") -> int:
    """``salt-ha watch``: until Ctrl-C."""
    from saltext_ha.commands import watching

    seconds = watching.interval_of(interval) if interval else watching.USUAL
    if not sys.stdout.isatty():
        raise OSError("watch: standard output is no terminal; salt-ha status  prints it once")
    return watching.Watch(
        lambda: _status(opts), lambda answer: _rendered(opts, answer), sys.stdout, seconds
    ).run()


def _report(opts: Mapping[str, Any], file: str = "") -> int:
    """``salt-ha report``: shown, and then written."""
    import salt.version

    from saltext_ha.commands import reporting

    plain = {**opts, "color": False}
    text = reporting.text(
        opts, lambda: _rendered(plain, _status(opts)), salt.version.versions_report()
    )
    print(text, flush=True)
    asks = not file and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    path = Path(file or f"salt-ha-report-{time.strftime('%Y%m%d-%H%M%S')}.md")
    if asks and input(f"Write this to {path}? [y/N] ").strip().lower() not in ("y", "yes"):
        return 0
    if asks or file:
        # Another's file is neither overwritten nor followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as to:
            to.write(text)
        print(f"salt-ha: written to {path}", file=sys.stderr)
    return 0


def _status(opts: Mapping[str, Any]) -> dict[str, Any]:
    """What ``ha.status`` answers; an engine that does not run is an answer, too."""
    from saltext_ha.commands import engine_client
    from saltext_ha.config import mapping

    return engine_client.shaped(lambda: engine_client.engine(mapping.parse(opts), "status", {}), {})


def _rendered(opts: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    import salt.output

    shown = {key: value for key, value in answer.items() if key != "outputter"}
    return str(salt.output.out_format(shown, answer["outputter"], opts))


_OWN: Mapping[str, Callable[..., int]] = {"ha.watch": _watch, "ha.report": _report}


def _completion(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """``salt-ha completion bash``: on standard output; reads no configuration."""
    from saltext_ha.commands import completion
    from saltext_ha.runners import ha as runner

    functions = {
        name.rstrip("_"): value
        for name, value in vars(runner).items()
        if inspect.isfunction(value)
        and value.__module__ == runner.__name__
        and not name.startswith("_")
    }
    print(completion.script(" ".join(arguments), parser, completion.words(functions)), end="")
    return 0


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
