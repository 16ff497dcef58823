"""The functions of ``salt-ha`` that the runner does not have."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saltext_ha.cli.completion import Word


def lock(
    parser: argparse.ArgumentParser, options: argparse.Namespace, command: Sequence[str]
) -> int:
    """``salt-ha lock NAME -- command``."""
    import salt.config

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
    settings = mapping.parse(salt.config.master_config(str(file)))
    runs.check(name)
    if settings.leader is None:
        raise HaError("ha: leader: False: this master takes no part in locks")

    def ask(method: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return control_client.request(settings.control_socket, method, payload, timeout)

    def say(line: str) -> None:
        print(f"salt-ha: {line}", file=sys.stderr, flush=True)

    by = f"{engine_client.caller(None)}, process {os.getpid()}"
    return lock_program.run(lock_program.Lock(ask, name, by, say), name, command, wait, say)


def _watch(opts: Mapping[str, Any], interval: str = "") -> int:
    """``salt-ha watch``: until Ctrl-C."""
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


def _report(opts: Mapping[str, Any], file: str = "") -> int:
    """``salt-ha report``: shows the report, then writes it."""
    import salt.version

    from saltext_ha.cli import report as command
    from saltext_ha.common.errors import reason_of

    plain = {**opts, "color": False}
    text = command.text(
        opts, lambda: _rendered(plain, _status(opts)), salt.version.versions_report()
    )
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
        print(f"salt-ha: written to {path}", file=sys.stderr)
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


def completion(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """``salt-ha completion bash``: prints the script; reads no configuration."""
    from saltext_ha.cli import completion

    print(completion.script(" ".join(arguments), parser, words()), end="")
    return 0


def words() -> list[Word]:
    """All that ``salt-ha`` can call."""
    from saltext_ha.cli import completion
    from saltext_ha.runners import ha as runner

    return completion.words(_functions(runner))


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


FUNCTIONS: Mapping[str, Callable[..., int]] = {"ha.watch": _watch, "ha.report": _report}
