"""The versions that masters tell each other."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def ours() -> str:
    """The installed version of saltext-ha."""
    return metadata.version("saltext-ha")


@functools.cache
def salt() -> str:
    """The version of Salt that runs this code."""
    from salt.version import __version__

    return str(__version__)
