"""``invite`` and ``join`` with tokens, which pass neither through Salt nor a command line."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any

STANDARD_INPUT = "-"
LONGEST = 8192  # characters; a token has about 300


def refuse(arguments: Sequence[str]) -> None:
    """:raises HaError: one of *arguments* of ``join`` is, or may be, a token."""
    from saltext_ha.commands.membership import join as command

    for argument in arguments:
        name, _, value = argument.rpartition("=")
        if name in ("", "token"):
            raise command.refused(value)


def given(opts: Mapping[str, Any], file: str | None) -> str:
    """
    The token to join with; empty: join by the group's secret.

    :param file: as the option has it.
    :raises HaError: it cannot be read.
    """
    from saltext_ha.commands.membership import join as command
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping

    if file is not None and file != STANDARD_INPUT:
        return command.token_in(file)
    if file is None:
        try:
            settings = mapping.parse(opts)
        except HaError:
            return ""  # the function says what is wrong
        # A program that starts masters unattended must not wait for a token.
        if settings.masters:
            return ""
    token = _asked()
    if not token and file is not None:
        raise HaError("no token on standard input; it takes one of  salt-ha invite")
    return token


def _asked() -> str:
    """The text on standard input; from a terminal, what a person types unseen."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Token of salt-ha invite (it is not shown): ").strip()
        except EOFError:
            return ""
    return sys.stdin.buffer.read(LONGEST).decode(errors="replace").strip()


def invite(opts: Mapping[str, Any], out: str | None, args: list[Any], kwargs: Any) -> int:
    """``salt-ha invite``: prints the token alone on standard output, the rest on standard error."""
    import salt.output

    from saltext_ha.commands import engine_client
    from saltext_ha.commands.membership import invite as command
    from saltext_ha.config import mapping

    answer = engine_client.shaped(
        lambda: command.printed(command.make(opts, mapping.parse(opts), *args, **kwargs)), {}
    )
    outputter = answer.pop("outputter")
    if out:
        salt.output.display_output(answer, out, opts)
    else:
        if "token" in answer:
            print(answer.pop("token"), flush=True)
        engine_client.say(salt.output.out_format(answer, outputter, opts))
    return int(answer["retcode"])


def join(opts: Mapping[str, Any], token: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    from saltext_ha.commands import engine_client
    from saltext_ha.commands.membership import join as command
    from saltext_ha.config import mapping

    return engine_client.shaped(
        lambda: command.join(opts, mapping.parse(opts), token, tell=command.aloud, **kwargs), {}
    )
