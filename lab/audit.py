"""
``python -m lab.audit`` looks for installed packages that are known to be vulnerable.

It asks pip-audit, which asks PyPI. A registry that is only a mirror knows packages but no
advisories; then pip-audit finds nothing and calls that a success. This program says: not audited.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

TIMEOUT = 300.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NotAudited(Exception):
    """The advisories cannot be asked; the text says why."""


def main(command: list[str]) -> int:
    """Run *command* (a pip-audit); 1 if a package is vulnerable that this project can change."""
    try:
        found = vulnerable(ask(command))
    except NotAudited as exc:
        print(f"audit: NOT AUDITED: {exc}")
        return 0
    waiting = pinned(metadata.requires("salt") or ())
    for name, advisories in sorted(found.items()):
        note = " (pinned by Salt: waits for a release of it)" if name in waiting else ""
        print(f"audit: {name}: {', '.join(advisories)}{note}")
    print(f"audit: {len(found)} vulnerable packages")
    return 1 if found.keys() - waiting else 0


def ask(command: list[str]) -> dict[str, Any]:
    """
    The report of pip-audit about the packages of this environment.

    :raises NotAudited: pip-audit is not installed, or gives no answer.
    """
    paths = [path for path in sys.path if path.endswith("site-packages")]
    options = [option for path in paths for option in ("--path", path)]
    call = [*command, "--format", "json", "--progress-spinner", "off", *options]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # nosec B603
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotAudited(f"pip-audit: {type(exc).__name__}") from None
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise NotAudited(f"the advisory database cannot be reached: {last[:200]}") from None


def vulnerable(report: dict[str, Any]) -> dict[str, list[str]]:
    """
    Package → its advisories.

    :raises NotAudited: the database knows no package at all.
    """
    packages = report.get("dependencies") or []
    asked = [package for package in packages if "skip_reason" not in package]
    if not asked:
        raise NotAudited(
            f"of {len(packages)} packages the registry here has advisories for none; "
            "run it where pypi.org can be reached"
        )
    return {
        package["name"].lower(): [advisory["id"] for advisory in package["vulns"]]
        for package in asked
        if package.get("vulns")
    }


def pinned(requirements: Iterable[str]) -> set[str]:
    """The names of packages that Salt requires in exactly one version."""
    exact = (found for found in requirements if "==" in found.partition(";")[0])
    return {match[0].lower() for match in map(NAME.match, exact) if match}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["pip-audit"]))
