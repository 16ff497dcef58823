"""The versions that masters tell each other."""

from __future__ import annotations

import functools
import re
from importlib import metadata
from pathlib import Path

import saltext_ha

NAME = "saltext-ha"


def distribution(name: str = NAME) -> metadata.Distribution:
    """
    The installed package *name*. Of several in one folder, the last: an upgrade by ``salt-pip``
    leaves the metadata of older versions there.

    :raises importlib.metadata.PackageNotFoundError: it is not installed.
    """
    first = metadata.distribution(name)
    beside = metadata.distributions(name=name, path=[str(first.locate_file(""))])
    return max(beside, key=_written, default=first)


def _written(found: metadata.Distribution) -> float:
    name = re.sub("[-_.]+", "_", found.metadata["Name"])
    info = f"{name}-{found.version}.dist-info"
    try:
        return Path(str(found.locate_file(info))).joinpath("METADATA").stat().st_mtime
    except OSError:  # another format
        return 0.0


@functools.cache
def ours() -> str:
    """The installed version of saltext-ha."""
    return distribution().version


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
