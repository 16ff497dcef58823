"""What a master asks a minion, by Salt's own functions, before it installs saltext-ha there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from saltext_ha.minion import windows

RENDER = "file.apply_template_on_contents"
# One job, without a shell, and without anything of ours on the minion.
TEMPLATE = """{{ {
    "python": grains.get("pythonexecutable"),
    "release": grains.get("pythonversion"),
    "kernel": grains.get("kernel"),
    "cache": opts.get("cachedir"),
    "conf": opts.get("conf_file"),
    "delay": opts.get("random_startup_delay"),
    "watchdog": "ha_watchdog" in opts.get("engines") | string,
    "has": salt["ha.version"]() if "ha.version" in salt
        else {"version": "?"} if "ha.current_master" in salt else none,
} | json }}"""
ASK = [TEMPLATE, "jinja", None, None, "base"]


@dataclass(frozen=True)
class Facts:
    """
    What a minion says of itself: ``python`` is the path of Salt's Python and ``release`` its
    version; ``version`` is saltext-ha's, None without one, ``?`` if it is too old to say;
    ``outdated``: the watchdog there began before that version was installed. ``delay``: seconds
    after its start within which it looks for a master.
    """

    python: str
    release: str
    kernel: str
    cache: str
    conf: str
    watchdog: bool
    version: str | None
    outdated: bool
    delay: float

    def obstacle(self, wanted: str) -> str:
        """
        Why saltext-ha cannot be installed there; empty if it can.

        :param wanted: the Pythons that it runs on, such as ``>=3.10``.
        """
        if self.kernel == "Windows":
            return windows.WHY
        if self.kernel == "proxy":
            # It shares the Python and files of its host: another minion there would be restarted.
            return "a proxy minion: name the minion of the host that it runs on"
        try:
            fits = SpecifierSet(wanted).contains(self.release, prereleases=True)
        except InvalidSpecifier:
            fits = True
        return "" if fits else f"Salt's Python there is {self.release}; it takes {wanted}"

    def is_newer(self, version: str) -> bool:
        """Whether its saltext-ha is surely newer than *version*."""
        try:
            return self.version is not None and Version(self.version) > Version(version)
        except InvalidVersion:
            return False


def read(returned: Any) -> Facts | str:
    """What :data:`RENDER` returned, or what is wrong with it."""
    try:
        told = json.loads(returned)
        release = ".".join(str(part) for part in told["release"][:3])
        paths = [told[name] for name in ("python", "cache", "conf", "kernel")]
        if not all(isinstance(each, str) and each for each in paths):
            raise ValueError
        python, cache, conf, kernel = paths
        has = told["has"] or {}
        version = str(has["version"]) if has else None
        outdated = has.get("outdated") is True
        watchdog = told["watchdog"] is True
        delay = float(told["delay"] or 0)
        return Facts(
            python, release, kernel, cache, conf, watchdog, version or None, outdated, delay
        )
    except (TypeError, ValueError, KeyError):
        return f"says nothing of its Python: {str(returned)[:200]}"
