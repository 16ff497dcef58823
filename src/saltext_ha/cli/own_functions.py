"""The functions of ``salt-ha`` that the runner does not have."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saltext_ha.cli.completion import Word


def lock(
    parser: argparse.ArgumentParser, options: argparse.Namespace, command: Sequence[str]
) -> int:
    """
    Run a command on one master at a time: ``lock NAME -- COMMAND``.

    name
        Of the lock. While a command runs under it, no other master runs one under it.
    wait
        Seconds to wait for the lock (``--wait``); without it, as long as it takes.

    The command is ended when the lock is lost. Exit code: the command's own; docs/once.md lists the
    other ones, and says what a lock protects against.

    CLI Example:

    .. code-block:: bash

        salt-ha lock --wait 60 backup -- /usr/local/bin/backup --full
    """
    from saltext_ha.cli import folders, lock_program
    from saltext_ha.commands import engine_client
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping
    from saltext_ha.once import runs
    from saltext_ha.transport import control_client

    wait = options.wait
    if len(options.arguments) != 1 or not command or (wait is not None and not wait >= 0):
        parser.error("lock takes a name and a command: salt-ha lock [--wait SECONDS] NAME -- …")
    (name,) = options.arguments
    file = folders.configuration(options.config_dir)
    settings = mapping.parse(folders.options(file))
    runs.check(name)
    if settings.leader is None:
        raise HaError("ha: leader: False: this master takes no part in locks")

    def ask(method: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return control_client.request(settings.control_socket, method, payload, timeout)

    def say(line: str) -> None:
        engine_client.say(f"salt-ha: {line}")  # what cannot be said must not keep it from its work

    by = f"{engine_client.caller(None)}, process {os.getpid()}"
    return lock_program.run(lock_program.Lock(ask, name, by, say), name, command, wait, say)


def watch(opts: Mapping[str, Any], interval: str = "") -> int:
    """
    How the group is, redrawn until Ctrl-C.

    interval
        Seconds between two looks, from 0.5 to 3600; by default 2.

    It shows what ``ha.status`` says; the first line says from when that is, and begins with ``OLD``
    while the engine does not answer. Exit code: that of the last table.

    CLI Example:

    .. code-block:: bash

        salt-ha watch
        salt-ha watch 10
    """
    from saltext_ha.cli import watch as command
    from saltext_ha.output._text import display_width

    seconds = command.interval_of(interval) if interval else command.USUAL
    if not sys.stdout.isatty():
        raise OSError("watch: standard output is no terminal; salt-ha status  prints it once")
    work = command.Watch(
        lambda: _status(opts),
        lambda answer: _rendered(opts, answer),
        sys.stdout,
        seconds,
        display_width,
    )
    # An exception of a handler could come while Salt loads modules for the table, and be swallowed.
    # Instead, end the loop: that always gives the terminal back.
    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, lambda number, frame: work.stop())
    return work.run()


def report(opts: Mapping[str, Any], file: str = "") -> int:
    """
    What a bug report needs, without secrets; shown before it is written.

    file
        Where it is written, readable for you alone; one that exists is not replaced. Without, you
        are asked.

    Names, addresses and minion ids may be in it: read it before you send it.

    CLI Example:

    .. code-block:: bash

        salt-ha report
        salt-ha report ha-report.md
    """
    import salt.version

    from saltext_ha.cli import report as command
    from saltext_ha.commands import engine_client
    from saltext_ha.common.errors import reason_of

    plain = {**opts, "color": False}
    text = command.text(
        opts, lambda: _rendered(plain, _status(opts)), salt.version.versions_report()
    )
    with contextlib.suppress(OSError):  # the end of the program says so; the file can be written
        print(text, flush=True)
    asks = not file and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    path = Path(file or f"salt-ha-report-{time.strftime('%Y%m%d-%H%M%S')}.md")
    if asks and not _agreed(f"Write this to {path}? [y/N] "):
        return 0
    if asks or file:
        # Neither overwrite nor follow a file of another user.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as to:
                to.write(text)
        except FileExistsError:
            then = "nothing was written; give another name, or remove it"
            raise FileExistsError(f"report: {path} exists already: {then}") from None
        except OSError as exc:
            raise OSError(f"report: {path} was not written: {reason_of(exc)}") from None
        engine_client.say(f"salt-ha: written to {path}")
    return 0


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _status(opts: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of ``ha.status``; that the engine does not run is an answer, too."""
    from saltext_ha.commands import engine_client
    from saltext_ha.config import mapping

    return engine_client.shaped(lambda: engine_client.engine(mapping.parse(opts), "status", {}), {})


def _rendered(opts: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    import salt.output

    shown = {key: value for key, value in answer.items() if key != "outputter"}
    return str(salt.output.out_format(shown, answer["outputter"], opts))


def completion(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> str:
    """
    What a shell completes of salt-ha: the script for it.

    shell
        ``bash`` or ``zsh``.

    CLI Example:

    .. code-block:: bash

        salt-ha completion bash > /etc/bash_completion.d/salt-ha
    """
    from saltext_ha.cli import completion

    return completion.script(" ".join(arguments), parser, words())


def words() -> list[Word]:
    """All that ``salt-ha`` can call."""
    from saltext_ha.cli import completion
    from saltext_ha.runners import ha as runner

    return completion.words(_functions(runner), OWN)


def help_of(name: str) -> str:
    """
    What a function takes, and all that is said of it, as ``salt-run -d`` has it.

    :param name: such as ``ha.drain``.
    :raises FileNotFoundError: there is no such function.
    """
    import salt.utils.doc

    from saltext_ha.runners import ha as runner

    short = name[3:]
    function = {**_functions(runner), **OWN}.get(short)
    if function is None:
        raise FileNotFoundError(no_function(name))
    text: str = salt.utils.doc.strip_rst({name: inspect.getdoc(function)})[name]
    taken = [OWN_USAGE[short]] if short in OWN else _taken(function)
    usage = textwrap.wrap(
        " ".join(["usage: salt-ha", short, *taken]),
        max(40, shutil.get_terminal_size().columns - 2),
        subsequent_indent=" " * len("usage: "),
        break_on_hyphens=False,
    )
    return "\n".join([*usage, "", text])


def _taken(function: Callable[..., object]) -> Iterator[str]:
    """What it must be given, as ``MASTER``, and what may be left out, with its default."""
    from saltext_ha.cli import completion

    for each in completion.parameters(function):
        name, default = each.name, each.default
        if each.kind is each.VAR_KEYWORD:
            yield "[name=value ...]"
        elif each.kind is each.VAR_POSITIONAL:
            yield f"[{name.upper()} ...]"
        elif default is each.empty:
            yield name.upper()
        else:
            yield f"[{name}={name.upper() if default in ('', None) else default}]"


def _functions(module: ModuleType) -> dict[str, Callable[..., object]]:
    return {
        name.rstrip("_"): value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def no_function(name: str) -> str:
    """That there is no function *name*, such as ``ha.stat``, and which one may be meant."""
    from saltext_ha.modules import ha as module

    short, listed = name[3:], "salt-ha --help  lists them"
    if short in _functions(module):
        return f"{name} is a function of minions: salt '*' {name}"
    near = difflib.get_close_matches(short, [word.name for word in words()], 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"there is no function {name}{meant}; {listed}"


FUNCTIONS: Mapping[str, Callable[..., int]] = {"ha.watch": watch, "ha.report": report}
"""Those that are called with the configuration of the master."""
OWN: Mapping[str, Callable[..., object]] = {
    "completion": completion,
    "lock": lock,
    "report": report,
    "watch": watch,
}
"""All that the runner does not have."""
OWN_USAGE = {
    "completion": "bash|zsh",
    "lock": "[--wait SECONDS] NAME -- COMMAND [ARGUMENT ...]",
    "report": "[FILE]",
    "watch": "[SECONDS]",
}
"""What these take."""
