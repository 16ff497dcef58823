"""The program ``salt-ha``: calls a function, as the right user, and shows its result."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from saltext_ha.cli import folders, own_functions, tokens
from saltext_ha.common import version

UNUSABLE = 2
INTERRUPTED = 130
COMMAND = "--"


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The program ``salt-ha``.

    :return: the exit code of the function; 2 if it could not be called.
    """
    if sys.stderr is None:  # it is closed; print and argparse would write into the answer
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        code = _called(arguments)
        problem = _written(sys.stdout)
        if problem and not isinstance(problem, BrokenPipeError):  # nobody reads on, as behind head
            _say(f"standard output: {problem}")
            return UNUSABLE
        return code
    finally:
        _written(sys.stderr)


def _written(stream: TextIO | None) -> OSError | None:
    """
    Write what *stream* still has; returns why that failed. Python would try again when it ends, and
    the exit code would be 120.
    """
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return exc
    return None


def _say(text: str) -> None:
    """Say on standard error what is wrong; where that takes nothing, the exit code has to do."""
    with contextlib.suppress(OSError):
        print(f"salt-ha: {text}", file=sys.stderr)


def _called(arguments: Sequence[str] | None) -> int:
    # First: later code reads secrets, which must not lie on a disk.
    from saltext_ha.config import secret

    secret.keep_from_core_dumps()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A "…" that the terminal does not know is no reason to show nothing.
        sys.stdout.reconfigure(errors="replace")
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index(COMMAND) if COMMAND in given else len(given)
    options, unknown = parser.parse_known_intermixed_args(given[:end])
    if unknown:
        # Such as Salt's own -L and --test: here they are arguments of the function.
        parser.error(
            f"unrecognized arguments: {' '.join(unknown)}; a function takes name=value, as "
            f"test=True: salt-ha {options.function or 'NAME'} --help"
        )
    if options.version:
        said = f"{parser.prog} {version.ours()} (Salt {version.salt()})"
        return _guarded(lambda: _print(said))
    if options.function is None:
        if not options.help:
            parser.error("which function? salt-ha --help  lists them")
        return _guarded(lambda: _print(parser.format_help(), end=""))
    if options.out == "json" and isinstance(sys.stdout, io.TextIOWrapper):
        # As JSON is, whatever the terminal uses.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    name = options.function if options.function.startswith("ha.") else f"ha.{options.function}"
    if options.help:
        return _guarded(lambda: _print(own_functions.help_of(name)))
    if options.token_file is not None and name != "ha.join":
        parser.error("--token-file is for join")
    if name == "ha.lock":
        return _guarded(lambda: own_functions.lock(parser, options, given[end + 1 :]))
    if options.wait is not None or end < len(given):
        parser.error("--wait and -- are for lock; join takes wait=SECONDS")
    if name == "ha.join":
        for argument in [one for one in options.arguments if one.startswith("token_file=")]:
            options.arguments.remove(argument)
            options.token_file = argument.partition("=")[2]
    if name == "ha.completion":
        return _guarded(lambda: _print(own_functions.completion(parser, options.arguments), end=""))
    return _guarded(lambda: _run(options, name))


def _print(text: str, end: str = "\n") -> int:
    with contextlib.suppress(BrokenPipeError):  # as at the end of main
        print(text, end=end)
    return 0


def _guarded(work: Callable[[], int]) -> int:
    """The exit code of *work*; if it fails in an expected way, print why and return 2."""
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as exc:
        # Salt raised it, and has said why: a file that it cannot read, a user that does not exist.
        if isinstance(exc.code, str):
            _say(exc.code)
        return UNUSABLE if exc.code else 0
    except Exception as exc:
        import salt.exceptions

        if not isinstance(exc, (salt.exceptions.SaltException, OSError)):
            raise
        from saltext_ha.output import _explained

        _say("\n".join([str(exc), *_explained.links(str(exc))]))
        return UNUSABLE


class _Parser(argparse.ArgumentParser):
    """Its help ends with a line for each function."""

    def format_help(self) -> str:
        width = max(40, shutil.get_terminal_size().columns - 2)
        lines = [super().format_help(), "functions (salt-ha NAME --help  says all of one):"]
        for word in own_functions.words():
            begin = f"  {word.name:18} "
            lines += textwrap.wrap(
                word.help, width, initial_indent=begin, subsequent_indent=" " * len(begin)
            )
        return "\n".join([*lines, ""])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="salt-ha",
        description="Call a function of the ha runner, also before the first start of salt-master.",
        add_help=False,
    )
    parser.add_argument(
        "-h", "--help", action="store_true", help="show this, or all of a function, and end"
    )
    parser.add_argument(
        "--version", action="store_true", help="say which saltext-ha this is, and end"
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
        help="the file with the token for join; - asks for it, or reads it from standard input, "
        "and is the default unless ha: masters is set",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        help="how long lock waits; without this option, as long as it takes",
    )
    parser.add_argument(
        "function", nargs="?", help="for instance join; 'ha.' before it may be left out"
    )
    parser.add_argument("arguments", nargs="*", help="as for salt-run: values, and name=value")
    return parser


def _run(options: argparse.Namespace, name: str) -> int:
    import salt.loader
    import salt.minion
    import salt.output
    import salt.utils.args
    import salt.utils.verify
    from salt.exceptions import SaltInvocationError

    if name == "ha.join":
        tokens.refuse(options.arguments)
    mine = own_functions.FUNCTIONS.get(name)
    if mine is not None and len(options.arguments) > 1:
        raise SaltInvocationError(f"{name[3:]}: takes one argument at most: {options.arguments}")
    file = folders.configuration(options.config_dir)
    opts = folders.options(file)
    # As the calling user: the user of salt-master may not be allowed to read that file.
    token = tokens.given(opts, options.token_file) if name == "ha.join" else ""
    folders.make(opts)
    # This program's own functions only ask; a file that they write, as a report in /root, is the
    # caller's.
    as_root = mine is not None and os.geteuid() == 0
    if not as_root and not salt.utils.verify.check_user(opts["user"]):
        raise PermissionError(f"run this as root or as {opts['user']} (user: in {file})")
    if mine is not None:
        return mine(opts, *options.arguments)
    context: dict[str, Any] = {}
    functions = salt.loader.runner(opts, context=context)
    if name not in functions:
        raise FileNotFoundError(own_functions.no_function(name))
    try:
        args, kwargs = salt.minion.load_args_and_kwargs(
            functions[name], salt.utils.args.parse_input(options.arguments, no_parse=[])
        )
        inspect.signature(functions[name]).bind(*args, **kwargs)
    except (SaltInvocationError, TypeError) as exc:
        raise SaltInvocationError(
            f"{name}: {exc}; salt-ha {name[3:]} --help  shows all it takes"
        ) from None
    if name == "ha.invite":
        return tokens.invite(opts, options.out, args, kwargs)
    answer = (
        tokens.join(opts, token, kwargs) if name == "ha.join" else functions[name](*args, **kwargs)
    )
    outputter = answer.pop("outputter", None)
    salt.output.display_output(answer, options.out or outputter, opts)
    return int(answer.get("retcode", 0))
