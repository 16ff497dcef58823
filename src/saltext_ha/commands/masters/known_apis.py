"""Remembers where salt-api is on each master, for when one does not answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltext_ha.common.file_looks import Looks
from saltext_ha.common.files import read_plain, write_whole

KNOWN_FILE = "apis.json"
LONGEST = 2048  # characters of a URL; a longer one is not kept


class KnownApis:
    """
    The last known URL of each master, kept in *state_dir* across restarts of the engine. If the
    file cannot be read or written, the URLs are kept only until the next restart.

    :param looks: looks at the folder; if it hangs, nothing is written.
    """

    def __init__(self, state_dir: Path, looks: Looks) -> None:
        self._path, self._looks = state_dir / KNOWN_FILE, looks
        self._urls = _read(self._path)

    def recall(self, rows: Iterable[dict[str, Any]]) -> None:
        """
        Fill in ``health.url`` in the *rows* of ``ha.status`` whose master does not answer, and
        remember the URLs in the others. Masters without a row are forgotten.
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
                self._looks(lambda: None)
                write_whole(self._path, json.dumps(urls).encode())


def _read(path: Path) -> dict[str, str]:
    try:
        urls = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(urls, dict):
        return {}
    return {name: url for name, url in urls.items() if isinstance(url, str)}
