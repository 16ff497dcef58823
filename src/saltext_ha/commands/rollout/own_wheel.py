"""Packs the saltext-ha that is installed here as a wheel for minions."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import saltext_ha
from saltext_ha.common import version
from saltext_ha.common.errors import HaError, reason_of

PACKAGE = "saltext_ha"
# Not in the wheel: files that pip adds; RECORD and WHEEL are made anew.
LEFT_OUT = {"INSTALLER", "RECORD", "REQUESTED", "WHEEL", "direct_url.json", "top_level.txt"}
WHEEL = "Wheel-Version: 1.0\nGenerator: saltext-ha\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
UNFIT = "what is installed here cannot be packed: {}; install it by pip"
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class OwnWheel:
    """``name``: its file name; ``python``: the Pythons that it runs on, such as ``>=3.10``."""

    name: str
    version: str
    python: str
    content: bytes

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def make() -> OwnWheel:
    """
    The installed version as a wheel; the same bytes each time.

    :raises HaError: a part of it is missing or cannot be read.
    """
    try:
        found = version.distribution()
        info = f"{PACKAGE}-{found.version}.dist-info"
        parts = {name: path.read_bytes() for name, path in _files(found, info)}
    except (metadata.PackageNotFoundError, OSError) as exc:
        raise HaError(UNFIT.format(reason_of(exc))) from None
    if f"{info}/METADATA" not in parts:
        raise HaError(UNFIT.format("RECORD does not list its files"))
    parts[f"{info}/WHEEL"] = WHEEL.encode()
    parts[f"{info}/RECORD"] = _record(parts, info).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in parts.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, content)
    file = f"{PACKAGE}-{found.version}-py3-none-any.whl"
    python = found.metadata["Requires-Python"] or ""
    return OwnWheel(file, found.version, python, packed.getvalue())


def _files(found: metadata.Distribution, info: str) -> Iterator[tuple[str, Path]]:
    """The name in the wheel and the path of each file that is not made anew."""
    listed = {str(each): Path(str(each.locate())) for each in found.files or ()}
    mine = {name: path for name, path in listed.items() if name.startswith(f"{PACKAGE}/")}
    if not mine:  # installed editable: the code that runs is in the checkout
        here = Path(saltext_ha.__file__).parent
        mine = {f"{PACKAGE}/{p.relative_to(here)}": p for p in here.rglob("*") if p.is_file()}
    told = {n: p for n, p in listed.items() if n.startswith(f"{info}/") and p.name not in LEFT_OUT}
    for name, path in sorted({**mine, **told}.items()):
        if "__pycache__" not in path.parts:
            yield name, path


def _record(parts: dict[str, bytes], info: str) -> str:
    lines = []
    for name, content in parts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{info}/RECORD,,\n"
