"""The versions that masters tell each other."""

from __future__ import annotations

import functools
from importlib import metadata
from pathlib import Path

import saltext_ha


@functools.cache
def ours() -> str:
    """The installed version of saltext-ha."""
    return metadata.version("saltext-ha")


def installed_at() -> float:
    """When that version was installed, as Unix time: pip writes each file anew."""
    return Path(saltext_ha.__file__).stat().st_mtime


def salt_release() -> tuple[int, ...]:
    """The release of Salt that runs this code: ``(3007, 13)``."""
    from salt.version import __saltstack_version__

    return tuple(int(part) for part in __saltstack_version__.info[:2])


@functools.cache
def salt() -> str:
    """The version of Salt that runs this code."""
    from salt.version import __version__

    return str(__version__)
