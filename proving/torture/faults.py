"""
Faults of a master's disk, made by the kernel where it lets us, else imitated.

As root (in a mount namespace of our own, which ends with the run) every master lives on a small
tmpfs that can really be full, and its key folder can really be read-only. Otherwise the engine may
not write a byte more (RLIMIT_FSIZE), and the folders lose their write permission.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
from pathlib import Path

from proving.torture.keys import ACCEPTED, FOLDERS, PENDING, REJECTED

CLONE_NEWNS = 0x00020000
SIZE = "24m"
BALLOON = "balloon"
SLOT_STATES = (ACCEPTED, PENDING, REJECTED)


def own_mounts() -> bool:
    """
    Give this process mounts of its own, which end with it and its children.

    :return: whether it may mount.
    """
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return False
    return _run("mount", "--make-rprivate", "/")


class Disk:
    """
    The disk of one master: *home*, with its key folder *pki_dir* in it.

    :param mounting: whether :func:`own_mounts` succeeded.
    """

    def __init__(self, home: Path, pki_dir: Path, mounting: bool) -> None:
        self.home, self.pki_dir = home, pki_dir
        self.full = self.read_only = self.away = self.wiped = False
        self._mounted = mounting and _run(
            "mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "none", str(_made(home))
        )
        self._away = home / "pki.away"
        self._aside = home / "minions.aside"

    @property
    def healthy(self) -> bool:
        """Whether an engine can work here."""
        return not (self.full or self.read_only or self.emptied)

    @property
    def emptied(self) -> bool:
        """Whether its accepted keys are missing."""
        return self.away or self.wiped

    def limit(self, pid: int) -> None:
        """Without a real disk, make a full one full for the engine *pid*, too."""
        if not self._mounted:
            soft = 0 if self.full else resource.RLIM_INFINITY
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def fill(self, pid: int | None) -> None:
        """Fill the disk: not a byte is left."""
        self.full = True
        if pid:
            self.limit(pid)
        if self._mounted:
            size = 1 << 20
            with open(self.home / BALLOON, "ab", buffering=0) as balloon:
                while size:
                    try:
                        balloon.write(bytes(size))
                    except OSError:
                        size //= 2

    def free(self, pid: int | None) -> None:
        """Make room again."""
        self.full = False
        if pid:
            self.limit(pid)
        with contextlib.suppress(FileNotFoundError):
            (self.home / BALLOON).unlink()

    def protect(self) -> None:
        self.read_only = True
        path = str(self.pki_dir)
        if self._mounted and _run("mount", "--bind", path, path):
            _run("mount", "-o", "remount,bind,ro", path)
            return
        self._permit(0o500)

    def unprotect(self) -> None:
        if self.read_only and self._mounted:
            _run("umount", "-l", str(self.pki_dir))
        elif self.read_only:
            self._permit(0o700)
        self.read_only = False

    def unmount(self) -> None:
        """Empty the key folder, as when its file system is not mounted."""
        self.away = True
        self.pki_dir.rename(self._away)
        self.pki_dir.mkdir(mode=0o700)

    def mount(self) -> None:
        """Bring the key folder back; what was put there meanwhile is hidden."""
        if self.away:
            self.pki_dir.rename(self.home / f"pki.hidden-{os.urandom(3).hex()}")
            self._away.rename(self.pki_dir)
        self.away = False

    def wipe(self) -> None:
        """``rm minions/*``: the folder stays, and the signature in it."""
        self.wiped = True
        self._aside.mkdir()
        for path in self._accepted().iterdir():
            if not path.name.startswith("."):
                path.rename(self._aside / path.name)

    def put_back(self) -> None:
        """Put back what :meth:`wipe` removed, except for ids that have a key by now."""
        if self.wiped:
            for path in self._aside.iterdir():
                slots = (self.pki_dir / FOLDERS[state] / path.name for state in SLOT_STATES)
                if not any(slot.exists() for slot in slots):
                    path.rename(self._accepted() / path.name)
            self.fill_up()

    def fill_up(self) -> None:
        """Note that the folder was filled again by other means."""
        shutil.rmtree(self._aside, ignore_errors=True)
        self.wiped = False

    def close(self) -> None:
        self.unprotect()
        if self._mounted:
            _run("umount", "-l", str(self.home))

    def _accepted(self) -> Path:
        return self.pki_dir / FOLDERS[ACCEPTED]

    def _permit(self, mode: int) -> None:
        for name in FOLDERS.values():
            with contextlib.suppress(FileNotFoundError):
                (self.pki_dir / name).chmod(mode)


def disks(mounting: bool) -> str:
    """How disks are broken, for people."""
    if mounting:
        return "with mounts, as root: disks are really full and read-only"
    return "without mounts: full and read-only disks are imitated"


def can_protect(mounting: bool) -> bool:
    """Whether a key folder can be made read-only: without mounts root can write everything."""
    return mounting or os.geteuid() != 0


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
