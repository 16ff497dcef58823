"""The mapping ``ha: trees:``: folders that all masters serve the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.common import validators
from saltext_ha.common.validators import checks, flag, seconds, setting

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
TAKES = "takes a mapping of NAME: {source: /folder, live: /folder}"


def _globs(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError("takes a list of globs")
    return tuple(value)


def _folder(value: Any) -> Path:
    found = validators.path(value)
    if ".." in found.parts or found.parent == found:
        raise ValueError("takes an absolute path of a folder, without ..")
    return found


def _command(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("takes a command as one text, without a shell")
    if not any(validators.words(value)[:1]):
        raise ValueError("names no command; leave it out if nothing is to be checked")
    return value


@dataclass(frozen=True)
class Tree:
    """
    One folder that all masters serve the same.

    :ivar live: the folder that is served. It must not be in another tree, in ``pki_dir`` or in
    ``state_dir``.
    :ivar source: the folder that ``ha.deploy`` takes on this master; without: nothing is deployed
        from here.
    :ivar secret: ``true`` for pillar: other users read nothing of it, and no content is shown.
    :ivar ignore: globs of files and folders that are left out, wherever they are, as
        ``["*.swp", "notes/"]``; ``/README.md`` only at the top. ``.git`` and ``__pycache__`` are
        always left out.
    :ivar check: it is run on every staged version, in its folder; ``{tree}`` is its path. For a
        shell write ``sh -c '…'``. When it fails on one master, none switches. It must not change
        anything in that folder.
    :ivar check_timeout: seconds that it may take; then it is killed, and has failed.
    """

    name: str
    live: Path = setting(_folder)
    source: Path | None = setting(_folder, None)
    secret: bool = setting(flag, False)
    ignore: tuple[str, ...] = setting(_globs, ())
    check: str = setting(_command, "")
    check_timeout: float = setting(seconds(1, 3600), 60.0)

    @property
    def folder(self) -> Path:
        """The folder of its versions, on the file system of the live folder."""
        return self.live.parent / f".{self.live.name}.ha"

    def shown(self, version: bytes) -> str:
        """
        A version as shown to people and in events; empty if the tree is secret: the version is a
        hash of the files, and short secrets can be found by trying.
        """
        return "" if self.secret else version.hex()


def parse(value: Any) -> tuple[Tree, ...]:
    """The trees of a configuration, in its order."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise ValueError(f": {TAKES}")
    trees: list[Tree] = []
    for name, given in value.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                f": {name!r}: a name takes at most 32 letters, digits, '_' and '-', beginning "
                "with a letter or digit"
            )
        if not isinstance(given, Mapping):
            raise ValueError(f": {name}: {TAKES}")
        try:
            values = validators.read(given, checks(Tree))
        except ValueError as exc:
            raise ValueError(f": {name}{exc}") from None
        if "live" not in values:
            raise ValueError(f": {name}: live is missing: the folder that is served")
        trees.append(Tree(name, **values))
    _apart(trees)
    return tuple(trees)


def _apart(trees: Iterable[Tree]) -> None:
    """:raises ValueError: one of their folders lies in another."""
    places: list[tuple[str, Path]] = []
    for tree in trees:
        for key, path in (("live", tree.live), ("source", tree.source)):
            if path is None:
                continue
            where = f"{tree.name}: {key}"
            for other, there in places:
                # Two trees may have one source; no other folder may be in two.
                sources = key == "source" and other.endswith(": source")
                if not sources and within(path, there):
                    raise ValueError(f": {where}: {path} and {other}: {there} lie in each other")
            places.append((where, path))


def check_places(trees: Iterable[Tree], taken: Mapping[str, Path]) -> None:
    """
    No tree may hold the master's own keys and state.

    :param taken: option → its folder.
    :raises ValueError: as :func:`parse`.
    """
    for tree in trees:
        for key, path in (("live", tree.live), ("source", tree.source)):
            for option, there in taken.items():
                if path is not None and within(path, there):
                    raise ValueError(
                        f": {tree.name}: {key}: {path} and {option}: {there} lie in each other; "
                        "keys and state of a master are in no tree"
                    )


def within(one: Path, other: Path) -> bool:
    """Whether one of the two is the other, or lies in it."""
    return one.is_relative_to(other) or other.is_relative_to(one)
