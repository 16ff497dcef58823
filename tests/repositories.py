"""Git repositories to serve states and pillar from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.tools import program

WHO = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(*words: str, cwd: Path) -> str:
    """The output of ``git``, run as nobody in particular."""
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull}
    command = [program("git"), *words]
    done = subprocess.run(
        command, cwd=cwd, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(path: Path) -> Path:
    """A new repository, with one commit in ``main``."""
    path.mkdir(parents=True)
    git("init", "-q", "-b", "main", ".", cwd=path)
    commit(path, "one")
    return path


def commit(repository: Path, text: str) -> str:
    """Commit *text* in ``top.sls``; returns the new commit."""
    (repository / "top.sls").write_text(text)
    git("add", ".", cwd=repository)
    git("commit", "-q", "-m", text, cwd=repository)
    return head(repository)


def head(repository: Path) -> str:
    return git("rev-parse", "HEAD", cwd=repository)


def put_under_git(folder: Path) -> None:
    """Commit all that is in *folder*, with the user's own configuration of git."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q", "-b", "production"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
