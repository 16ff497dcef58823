"""Where was salt-api on a master that does not answer? Remembered across restarts of the engine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltext_ha.common.files import read_plain, write_whole

KNOWN_FILE = "apis.json"
# Of a member that sends anything else, nothing is kept.
LONGEST = 2048


class KnownApis:
    """
    The last known URL of each master, in *state_dir*. A file that is damaged or cannot be written
    costs only what it would tell after a restart.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / KNOWN_FILE
        self._urls = _read(self._path)

    def recall(self, rows: Iterable[dict[str, Any]]) -> None:
        """
        Fill in ``health.url`` in those *rows* of ``ha.status`` whose master does not answer, and
        remember it of the others. Masters without a row are forgotten.
        """
        urls = {}
        for row in rows:
            name, url = row["name"], row["health"].get("url")
            if row["state"] != "running" and name in self._urls:
                row["health"]["url"] = url = self._urls[name]
            if isinstance(url, str) and len(url) <= LONGEST:
                urls[name] = url
        if urls != self._urls:
            self._urls = urls
            with contextlib.suppress(OSError):
                write_whole(self._path, json.dumps(urls).encode())


def _read(path: Path) -> dict[str, str]:
    try:
        urls = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(urls, dict):
        return {}
    return {name: url for name, url in urls.items() if isinstance(url, str)}
