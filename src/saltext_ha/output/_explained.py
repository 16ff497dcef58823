"""
Links messages to their explanations: troubleshooting has a heading for each of these messages.

A text for people ends with the links, whichever part of the program wrote the message.
"""

from __future__ import annotations

import functools
import re
from importlib import metadata

MOST = 3
"""Links below one answer."""
PAGE = "troubleshooting"
# As they stand in docs/troubleshooting.md, which a test compares. Numbers and names of masters are
# examples, and … is anything.
HEADINGS = (
    "`the ha engine of this master is not running`",
    "`the ha engine of this master does not respond`",
    "`does not serve`",
    "`runs with an older configuration`",
    "`another ha engine uses it`, `has the same state folder`",
    "`is a copy of the state folder of`, `is the identity of`",
    "`replica.db is gone, or an old copy`",
    "`replica.db was damaged`",
    "`cannot be written`, `belongs to another user`",
    "`the file system does not respond`, `nothing has moved for`",
    "`under the running engine`",
    "`not yet written to its key store`",
    "`busy with its keys for`",
    "`is not ready for callers`",
    "`systemd takes a rule for its user`",
    "`not rebuilt yet`",
    "`mode observe`, `paused`",
    "`new minions are known here only, and wait`",
    "`minions answered more than`",
    "`its signature is gone`",
    "`an older copy of the key store is being put in its place`",
    "`its key store is that of m2, too`",
    "`refused here`",
    "`masters differ` in `ha.status`",
    "unknown `whether masters are the same`",
    "`runs with an older master key`",
    "`different master keys`",
    "`its configuration says  ha: group`",
    "`of ha: masters is not in the group`",
    "`cannot reach you at`",
    "`is the name of a master that runs at`",
    "`pinned already with another certificate`",
    "`ha.join takes no token as an argument`",
    "`this group has 64 masters already`, `introduced 16 masters within an hour`",
    "`is ready: without it the group serves nobody`",
    "`left its group`",
    "`does not reach m2`",
    "`not reached for long`",
    "`restore it from a backup, or remove it and join again`",
    "`hung up; has it pinned this master's certificate?`",
    "`shows another certificate than the expected one`",
    "`refused from peers`",
    "`protocol … is not spoken here`",
    "`members that m2 tells of are not taken`",
    "`not taken from`, `not taken by`, `refuses some of what it is sent`",
    "`its certificate ends on`",
    "`its certificate ended on`",
)
_EXAMPLE = re.compile(r"…|\bm2\b|\b\d+\b")


def links(text: str) -> list[str]:
    """
    A line for each message in *text* that troubleshooting explains.

    :param text: as people see it, over several lines.
    """
    plain = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    found = [anchor for anchor, message in _messages() if message.search(plain)]
    return [f"→ {page()}#{anchor}" for anchor in dict.fromkeys(found)][:MOST]


def anchor(heading: str) -> str:
    """The anchor that a link to *heading* has."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@functools.cache
def page() -> str:
    """The address of the page: on the project's site, or in a checkout."""
    for each in metadata.metadata("saltext-ha").get_all("Project-URL") or ():
        name, _, url = each.partition(", ")
        if name.lower() == "documentation":
            return f"{url.rstrip('/')}/{PAGE}.html"
    return f"docs/{PAGE}.md"


@functools.cache
def _messages() -> list[tuple[str, re.Pattern[str]]]:
    found = []
    for heading in HEADINGS:
        for words in re.findall(r"`([^`]+)`", heading):
            if " " in words:
                parts = map(re.escape, _EXAMPLE.split(" ".join(words.split())))
                found.append((anchor(heading), re.compile(r"\S*".join(parts))))
    return found
