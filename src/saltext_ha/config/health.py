"""``ha: health:`` — how this master's own engine finds out whether the master serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saltext_ha.common.hysteresis import Rules
from saltext_ha.common.validators import checks, path, seconds, setting, switch, whole, word
from saltext_ha.config import secret


@dataclass(frozen=True)
class HealthSettings:
    """
    :ivar interval: seconds between two rounds of questions.
    :ivar timeout: seconds that each of them may take.
    :ivar fall: rounds in a row that must fail until the master counts as down.
    :ivar rise: rounds in a row that must succeed until it is up again.
    :ivar deep_interval: seconds between two runs of what costs more: a runner, a login. 0: never.
    :ivar user: a user of ``external_auth`` that salt-api is to let in; without: nobody logs in.
    :ivar eauth: by which of Salt's ways it logs in.
    :ivar password: a file, of mode 0600, with that user's password.
    """

    interval: float = setting(seconds(1, 300), 5.0)
    timeout: float = setting(seconds(0.5, 60), 3.0)
    fall: int = setting(whole(1, 20), 2)
    rise: int = setting(whole(1, 20), 2)
    deep_interval: float = setting(seconds(10, 86400, or_zero="never"), 60.0)
    user: str = setting(word, "")
    eauth: str = setting(word, "pam")
    password: str = setting(path, "", file=True)

    @property
    def rules(self) -> Rules:
        """The hysteresis; rounds are far enough apart that each of them counts."""
        return Rules(self.fall, self.rise, 0.0)


def parse(value: Any) -> HealthSettings | None:
    """Read the value of ``ha: health:``; None when it is ``false``: nothing is asked then."""
    found = switch(value, checks(HealthSettings))
    if found is None:
        return None
    if "password_file" in found:
        found["password"] = secret.password(found.pop("password_file"))
    if ("user" in found) != ("password" in found):
        raise ValueError(": user: and password_file: belong together; set both or none")
    return HealthSettings(**found)
