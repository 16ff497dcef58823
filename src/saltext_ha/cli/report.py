"""
``salt-ha report``: what a bug report needs, and no secret.

It shows only those parts of the configuration that ``ha.check_consistency`` may show to other
masters. Then it also removes this master's known secrets from the whole text.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.common import version
from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.config import mapping
from saltext_ha.config.secret import LONGEST, VARIABLE
from saltext_ha.consistency import options
from saltext_ha.consistency.rules import EqualityRule
from saltext_ha.consistency.values import is_secret_key, leaves_of
from saltext_ha.lint import sources

LINES = 200  # of the log
READ = 4 * 1024 * 1024  # bytes at its end
SHORTEST = 6  # characters; a shorter text is no secret, and occurs everywhere
HIDDEN = "(not shown)"
SECRET_FILES = ("secret_file", "password_file", "token_file")
# They may hold passwords, and are mostly words that occur everywhere.
MIXED = ("schedule", "engines", "beacons")
# "master1", "ha.check_consistency", "salt-master"; not "s3cret", as letters after digits are rare
# in words, and not in tokens.
_WORD = re.compile(r"[A-Za-z]+\d*(?:[._-][A-Za-z]*\d*)*")
# An IPv4 address, a date or a time, too.
_NUMBER = re.compile(r"[\d.:\s+-]+")
# Loggers of this package, as Salt's default format and most others have them.
_OURS = re.compile(r"\[(saltext_ha|salt\.loaded\.ext\.\w+\.ha)\b|\bsaltext_ha\.")
# The log may hold a peer's words: no control characters for the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RECORD = re.compile(r"^\d{4}-\d\d-\d\d |^\[[A-Z]+ *\]")
# A join token; a private key; a URL with a password, or with a user that may be a token. There may
# be an @ in a password: only the last one ends it.
_SECRETS = re.compile(
    r"\bha1\.[\w.-]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/@\s:]*:[^/\s]+(?=@)"
    r"|(?:(?<=http://)|(?<=https://))[^/\s]+(?=@)",
    re.DOTALL,
)


def text(opts: Mapping[str, Any], status: Callable[[], str], versions: Iterable[str]) -> str:
    """
    The whole report.

    :param status: the table of ``ha.status``, without colours.
    """
    files = sources.read(str(opts.get("conf_file") or ""), str(opts.get("default_include") or ""))
    named = {option: opts.get(option, files.merged.get(option)) for option in files.places()}
    parts = {
        "Versions": [f"saltext-ha: {version.ours()}", *versions],
        "Configuration": list(_configuration(opts, named)),
        "Status": status().splitlines(),
        f"Log: the last {LINES} lines of saltext-ha": list(_log(opts)),
    }
    at = time.strftime("%Y-%m-%d %H:%M:%S %z")
    lines = [
        f"# salt-ha report, {at}",
        "",
        "It has names and addresses of masters, perhaps ids of minions, and no secrets.",
    ]
    for title, body in parts.items():
        lines += [
            "",
            f"## {title}",
            "",
            "```",
            *[_CONTROL.sub("?", line.rstrip()) for line in body],
            "```",
        ]
    return without(("\n".join(lines)) + "\n", _known(named))


def without(text: str, known: Iterable[str]) -> str:
    """*text* without the secrets *known*, and without anything that has the form of a secret."""
    for secret in sorted({*known}, key=len, reverse=True):
        text = re.sub(_pattern(secret), HIDDEN, text)
    return _SECRETS.sub(HIDDEN, text)


def _pattern(secret: str) -> str:
    """Where *secret* is one: wherever it stands, but a number not within a longer number."""
    found = re.escape(secret)
    return rf"(?<!\d)(?<!\d\.){found}(?!\.?\d)" if _NUMBER.fullmatch(secret) else found


def _configuration(opts: Mapping[str, Any], named: Mapping[str, Any]) -> Iterator[str]:
    """The options that files set, and what is wrong with them."""
    yield f"# {opts.get('conf_file')}"
    try:
        mapping.parse(opts)
    except HaError as exc:
        yield f"# the engine refuses it: {exc}"
    nonce = secrets.token_bytes(32)
    leaves: dict[str, Any] = {}
    for rule in (*options.compared(named), EqualityRule("ha")):
        if rule.option == "engines" and rule.option in named:
            leaves[rule.option] = _engines(named[rule.option])
        elif rule.option in named:
            leaves.update(leaves_of(rule, named, nonce))
    for path, value in sorted(leaves.items()):
        yield f"{path}: {_shown(value)}"
    shown = {path.partition(":")[0] for path in leaves}
    if others := sorted(named.keys() - shown):
        yield f"# also set, and not shown: {', '.join(others)}"


def _engines(value: Any) -> list[str]:
    """The names of the engines, without their settings."""
    if isinstance(value, Mapping):
        return [str(name) for name in value]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _engines(item)]
    return [] if value is None else [str(value)]


def _shown(value: Any) -> str:
    """A leaf without its digests."""
    if isinstance(value, Mapping):
        return HIDDEN if "secret" in value else str({k: _shown(v) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)


def _known(named: Mapping[str, Any]) -> Iterator[str]:
    """
    The secrets of this master that could be in the text by mistake; found even if the engine
    refuses its configuration.
    """
    rules = {rule.option: rule for rule in options.compared(named)}
    # Names and addresses of masters stay.
    leaves = leaves_of(EqualityRule("ha"), named, b"").values()
    ours = " ".join([str(named.get("id", "")), *map(_shown, leaves)])
    found = [
        each
        for each, kind in _values(named, rules)
        if not _is_a_path(each) and (kind is _Kind.SECRET or each not in ours)
    ]
    found.append(os.environ.get(VARIABLE, ""))
    for path in _paths(named.get("ha")):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found.append(file.read(LONGEST).decode(errors="replace").strip())
    yield from (each for each in found if len(each) >= SHORTEST)


def _paths(value: Any) -> Iterator[str]:
    """The files with secrets that ``ha:`` names."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, str) and str(key).endswith(SECRET_FILES):
                yield item
            else:
                yield from _paths(item)


class _Kind(enum.IntEnum):
    """What a value is by the names above it."""

    SHOWN = 0
    MIXED = 1  # an ordinary word, or a secret
    HIDDEN = 2  # of an option that may hold a secret
    SECRET = 3  # under a name such as password


def _kind(key: str, rules: Mapping[str, EqualityRule]) -> _Kind:
    if is_secret_key(key):
        return _Kind.SECRET
    if key not in rules or not rules[key].secret:
        return _Kind.SHOWN
    return _Kind.MIXED if key in MIXED else _Kind.HIDDEN


def _values(
    value: Any, rules: Mapping[str, EqualityRule], kind: _Kind = _Kind.SHOWN
) -> Iterator[tuple[str, _Kind]]:
    """The texts and numbers that are secret by *rules* or by the names above them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, rules, max(kind, _kind(str(key), rules)))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _values(item, rules, kind)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        found = str(value).strip()
        ordinary = _WORD.fullmatch(found) or _NUMBER.fullmatch(found)
        if kind > _Kind.MIXED or (kind is _Kind.MIXED and not ordinary):
            yield found, kind


def _is_a_path(value: str) -> bool:
    """Whether *value* names a file, such as a key's; a secret in base64 may begin with / too."""
    folder = os.path.dirname(value) if value.startswith("/") else ""  # noqa: PTH120
    return value.startswith("salt://") or (folder not in ("", "/") and os.path.isdir(folder))  # noqa: PTH112


def _log(opts: Mapping[str, Any]) -> list[str]:
    """The last log records of this package, each with the lines after it (a traceback)."""
    path = Path(str(opts.get("log_file") or ""))
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - READ))
            lines = file.read(READ).decode(errors="replace").splitlines()
    except OSError as exc:
        return [f"{path}: cannot be read ({reason_of(exc)})"]
    kept: list[str] = []
    ours = False
    for line in lines:
        if _RECORD.match(line):
            ours = bool(_OURS.search(line))
        if ours:
            kept.append(line)
    return kept[-LINES:] or [f"{path}: none"]
