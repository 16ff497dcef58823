"""``salt-ha completion``: scripts for shells, made from the parser and the functions."""

from __future__ import annotations

import argparse
import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from saltext_ha.common.errors import HaError

FORMATS = "json yaml nested raw"
# Not completed: all users can see an argument, so salt-ha reads the join token elsewhere.
NEVER = ("token",)
FOLDER, FILE, FORMAT, SECONDS = "folder", "file", "format", "seconds"
# The kind of value that each option of the parser takes.
VALUES = {
    **{"--config-dir": FOLDER, "-c": FOLDER, "--token-file": FILE},
    **{"--out": FORMAT, "--wait": SECONDS},
}


@dataclass(frozen=True)
class Word:
    """A function: what it is for, and what its arguments begin with."""

    name: str
    help: str
    arguments: tuple[str, ...] = ()


# Of the functions that the runner does not have.
OWN_ARGUMENTS = {"completion": ("bash", "zsh"), "watch": ("interval=",)}


def words(
    functions: Mapping[str, Callable[..., object]], own: Mapping[str, Callable[..., object]]
) -> list[Word]:
    """
    All that salt-ha can call, by name: *functions* of the runner, and its *own*. Reads their
    signatures and docstrings.
    """
    found = [
        *(Word(name, _first(of), _arguments(of)) for name, of in functions.items()),
        *(Word(name, _first(of), OWN_ARGUMENTS.get(name, ())) for name, of in own.items()),
    ]
    return sorted(found, key=lambda word: word.name)


def _first(function: Callable[..., object]) -> str:
    """The first sentence of its docstring, as one line."""
    text = inspect.getdoc(function) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split()).replace("`", "")
    return paragraph.partition(". ")[0].rstrip(".:")


def parameters(function: Callable[..., object]) -> Iterator[inspect.Parameter]:
    """What people give to *function*, in its order."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in NEVER:
            yield parameter


def _arguments(function: Callable[..., object]) -> tuple[str, ...]:
    """``test=True`` where the other value is the default, else ``name=``."""
    return tuple(
        f"{each.name}={not each.default if isinstance(each.default, bool) else ''}"
        for each in parameters(function)
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )


def script(shell: str, parser: argparse.ArgumentParser, words: list[Word]) -> str:
    """
    The script for *shell*.

    :raises HaError: another shell than bash and zsh.
    """
    if shell == "bash":
        return _bash(parser, words)
    if shell == "zsh":
        return _zsh(parser, words)
    raise HaError(f'completion: takes bash or zsh, not "{shell}"')


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _bash(parser: argparse.ArgumentParser, words: list[Word]) -> str:
    options = [name for action in _options(parser) for name in action.option_strings]
    taking = [name for name in options if name in VALUES]
    return f"""\
# bash completion of salt-ha:  salt-ha completion bash > /etc/bash_completion.d/salt-ha
_salt_ha() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    local function='' words='' each skip=''
    COMPREPLY=()
    case $before in
        -c|--config-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
        --token-file) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
        --wait) return ;;
        --out) mapfile -t COMPREPLY < <(compgen -W '{FORMATS}' -- "$word"); return ;;
    esac
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        if [ -n "$skip" ]; then skip=''; continue; fi
        case $each in
            {"|".join(taking)}) skip=yes ;;
            -*) ;;
            *) function=$each; break ;;
        esac
    done
    case $function in
        '') words={shlex.quote(" ".join(word.name for word in words))} ;;
{_cases(words, "words={}")}
    esac
    case $word in
        -*) words={shlex.quote(" ".join(options))} ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    # A value is still to be typed.
    case ${{COMPREPLY[0]-}} in
        *=) compopt -o nospace 2>/dev/null ;;
    esac
}}
complete -F _salt_ha salt-ha
"""


def _zsh(parser: argparse.ArgumentParser, words: list[Word]) -> str:
    described = (shlex.quote(f"{word.name}:{_plain(word.help)}") for word in words)
    names = "\n".join(f"        {each}" for each in described)
    options = " \\\n".join(f"        {each}" for each in _zsh_options(parser))
    return f"""\
#compdef salt-ha
# zsh completion of salt-ha:  salt-ha completion zsh > "${{fpath[1]}}/_salt-ha"
_salt_ha() {{
    local state line
    local -a names arguments
    names=(
{names}
    )
    _arguments -C \\
{options} \\
        '1:function:->function' \\
        '*:argument:->argument'
    case $state in
        function) _describe function names ;;
        argument)
            case $line[1] in
{_cases(words, "arguments=({})", quote_each=True)}
            esac
            # A value may still have to be typed.
            compadd -S '' -- $arguments ;;
    esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _salt_ha "$@"
else
    compdef _salt_ha salt-ha
fi
"""


def _zsh_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each option in the syntax of zsh's ``_arguments``."""
    complete = {FOLDER: "_files -/", FILE: "_files", FORMAT: f"({FORMATS})", SECONDS: " "}
    for action in _options(parser):
        names = list(action.option_strings)
        kind = next((VALUES[name] for name in names if name in VALUES), "")
        value = f":{kind}:{complete[kind]}" if kind else ""
        others = f"({' '.join(names)})" if len(names) > 1 else ""
        for name in names:
            yield shlex.quote(f"{others}{name}[{_plain(action.help)}]{value}")


def _cases(words: list[Word], form: str, quote_each: bool = False) -> str:
    """The branches of a ``case``: the arguments of each function, put into *form*."""
    lines = []
    for word in words:
        if word.arguments:
            quoted = [shlex.quote(each) for each in word.arguments]
            taken = " ".join(quoted) if quote_each else shlex.quote(" ".join(word.arguments))
            lines.append(f"        {word.name}|ha.{word.name}) {form.format(taken)} ;;")
    return "\n".join(lines)


def _plain(text: str | None) -> str:
    """Help text without the characters that have a meaning in ``_arguments``."""
    return " ".join((text or "").split()).translate(str.maketrans("[]:", "() "))
