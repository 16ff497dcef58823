"""Labs that outlive the command that started them: remembers what runs, and ends exactly that."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from lab import Lab
from lab.process import kill_session, session_pids

FILE = "lab.json"


@dataclass(frozen=True)
class Member:
    """One daemon left running: its session, and the folder in its processes' command lines."""

    name: str
    session: int
    config_dir: str

    def pids(self) -> list[int]:
        """
        Its living processes. Another process may have got the session number since, so one of them
        must have been started with our configuration.
        """
        pids = session_pids(self.session)
        return pids if any(self.config_dir in _command_line(pid) for pid in pids) else []


@dataclass(frozen=True)
class Detached:
    """A detached lab below *root*; *help* was printed when it came up."""

    root: Path
    members: tuple[Member, ...]
    folders: tuple[str, ...]
    help: str

    @property
    def running(self) -> bool:
        """Whether any of its daemons runs."""
        return any(member.pids() for member in self.members)

    def end(self) -> list[str]:
        """Kill daemons that still run, remove all folders; return the names of these daemons."""
        ended = []
        for member in self.members:
            if member.pids():
                kill_session(member.session)
                ended.append(member.name)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        return ended


def detach(lab: Lab, help_text: str) -> Detached:
    """Write down which daemons *lab* runs, then let go of it."""
    members = tuple(
        Member(node.name, node.daemon.session, str(node.config_dir))
        for node in lab.nodes
        if node.daemon.session is not None
    )
    folders = tuple(str(path) for path in (lab.folder, *lab.temporary))
    found = Detached(lab.folder, members, folders, help_text)
    content = {**asdict(found), "root": str(lab.folder)}
    (lab.folder / FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    lab.detach()
    return found


def load(root: Path) -> Detached | None:
    """The lab that was detached in *root*, running or not; None if there is none."""
    try:
        content = json.loads((root / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    members = tuple(Member(**member) for member in content["members"])
    return Detached(root, members, tuple(content["folders"]), content["help"])


def _command_line(pid: int) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(psutil.Process(pid).cmdline())
    return ""
