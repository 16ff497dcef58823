"""``ha: health:`` — how this master's own engine finds out whether the master serves."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltext_ha import secret
from saltext_ha.hysteresis import Rules

_NUMBERS = {"interval": (1, 300), "timeout": (0.5, 60), "deep_interval": (10, 86400)}
_COUNTS = ("fall", "rise")
_TEXTS = ("user", "eauth")
_KEYS = (*_NUMBERS, *_COUNTS, *_TEXTS, "password_file")


@dataclass(frozen=True)
class Settings:
    """
    :param interval: seconds between two rounds of questions.
    :param timeout: seconds that each of them may take.
    :param fall: rounds in a row that must fail until the master counts as down.
    :param rise: rounds in a row that must succeed until it is up again.
    :param deep_interval: seconds between two runs of what costs more: a runner, a login. 0: never.
    :param user: whom salt-api is to let in, with ``eauth`` and ``password``; empty: nobody.
    """

    interval: float = 5.0
    timeout: float = 3.0
    fall: int = 2
    rise: int = 2
    deep_interval: float = 60.0
    user: str = ""
    eauth: str = "pam"
    password: str = field(default="", repr=False, compare=False)

    @property
    def rules(self) -> Rules:
        """The hysteresis; rounds are far enough apart that each of them counts."""
        return Rules(self.fall, self.rise, 0.0)


def parse(value: Any) -> Settings | None:
    """
    Read the value of ``ha: health:``; None when it is ``false``: nothing is asked then.

    :raises ValueError: begins with the key that is wrong; says what it takes.
    """
    if value is False:
        return None
    if value is None:
        return Settings()
    if not isinstance(value, Mapping):
        raise ValueError(f": takes false, or a mapping with some of the keys {', '.join(_KEYS)}")
    found: dict[str, Any] = {}
    for key, given in value.items():
        if key in _NUMBERS:
            found[key] = _number(key, given)
        elif key in _COUNTS:
            if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 20:
                raise ValueError(f": {key}: {given!r} takes a whole number from 1 to 20")
            found[key] = given
        elif key in _TEXTS:
            if not isinstance(given, str) or not given:
                raise ValueError(f": {key}: {given!r} takes a name")
            found[key] = given
        elif key == "password_file":
            found["password"] = _password(given)
        else:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KEYS)}"
            raise ValueError(f": unknown key {key!r}; {hint}")
    if ("user" in found) != ("password" in found):
        raise ValueError(": user: and password_file: belong together; set both or none")
    return Settings(**found)


def _number(key: str, given: Any) -> float:
    low, high = _NUMBERS[key]
    never = key == "deep_interval" and given == 0
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not (never or low <= given <= high):
        more = ", or 0 for never" if key == "deep_interval" else ""
        raise ValueError(f": {key}: {given!r} takes seconds from {low:g} to {high:g}{more}")
    return float(given)


def _password(given: Any) -> str:
    if not isinstance(given, str) or not Path(given).is_absolute():
        raise ValueError(f": password_file: {given!r} takes an absolute path")
    try:
        password = secret.content(Path(given)).decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f": password_file: {given} is no text") from None
    except ValueError as exc:
        raise ValueError(f": password_file: {given}: {exc}") from None
    if not password:
        raise ValueError(f": password_file: {given} is empty")
    return password
