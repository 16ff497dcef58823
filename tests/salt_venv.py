"""A Python environment with Salt in it, and nothing of ours: as on a minion before installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OURS = ("saltext_ha", "__editable__")
PROGRAMS = ("salt-minion", "salt-master", "salt-call")


def make(folder: Path, python: Path | None = None) -> Path:
    """
    Make an environment with links to what another one has: Salt, and pip.

    :param python: the Python that has this Salt; default: the one that runs this.
    :return: the Python of the new environment.
    """
    origin = (python or Path(sys.executable)).absolute()
    subprocess.run([origin, "-m", "venv", "--without-pip", folder], check=True, timeout=500)
    (target,) = folder.glob("lib/python3*/site-packages")
    (source,) = origin.parents[1].glob(f"lib/{target.parent.name}/site-packages")
    if not (source / "pip").exists():  # to make one takes seconds of a processor
        subprocess.run([folder / "bin" / "python", "-m", "ensurepip"], check=True, timeout=500)
    for each in source.iterdir():
        if not each.name.startswith(OURS) and not (target / each.name).exists():
            (target / each.name).symlink_to(each)
    new = folder / "bin" / "python"
    for name in PROGRAMS:
        text = (origin.parent / name).read_text("utf-8").partition("\n")[2]
        program = folder / "bin" / name
        program.write_text(f"#!{new}\n{text}", "utf-8")
        program.chmod(0o755)
    return new
