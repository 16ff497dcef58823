"""Masters whose engines compare each other: makes them, and reads their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.engines import Place
from tests.engines import met, run

QUICK = {"sync_interval": 0.2, "peer_timeout": 20, "consistency": {"interval": 0}}
SECRET = "hunter2-do-not-print"
SAID = ("root_dir", "pki_dir", "sock_dir", "cachedir", "id", "user", "interface", "ha")
Answer = dict[str, Any]


def place(root: Path, name: str, ha: Mapping[str, Any] | None = None, **options: Any) -> Place:
    """A master whose configuration file has the options that it runs with."""
    folder = root / name
    options = {
        "file_roots": {"base": [str(folder / "srv")]},
        "pillar_roots": {"base": [str(folder / "pillar")]},
        **options,
    }
    made = Place(root, name, {**QUICK, **(ha or {})}, options)
    for path in ("srv/top.sls", "srv/web/init.sls", "pillar/top.sls"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{path}: {SECRET}")
    said = {**{option: made.opts[option] for option in SAID}, **options}
    Path(made.opts["conf_file"]).write_text(json.dumps(said))
    return made


def found(answer: Answer) -> dict[str, dict[str, Any]]:
    """``section:path`` → values, of all differences in *answer*."""
    return {
        f"{name}:{difference['path']}": difference["values"]
        for name, part in answer["sections"].items()
        for difference in part["differences"]
    }


def checked(*places: Place, only: str = "") -> Answer:
    """The answer of ``ha.check_consistency`` on the first of *places*, while all run."""

    async def act() -> Answer:
        async with met(*places):
            return await run(places[0], "check_consistency", only=only)

    answer = asyncio.run(act())
    assert SECRET not in json.dumps(answer)
    return answer
