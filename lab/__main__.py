"""``python -m lab up`` leaves masters and minions running; ``python -m lab down`` ends them."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import Lab, wait_for
from lab.detached import detach, load
from lab.node import START_TIMEOUT

ROOT = Path(".lab")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in *argv*; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="the lab's folder (default: %(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start a lab and leave it running")
    start.add_argument("--masters", type=int, default=2, metavar="N")
    start.add_argument("--minions", type=int, default=3, metavar="N")
    commands.add_parser("down", help="end it and remove its folder")
    options = parser.parse_args(argv)
    root = options.root.absolute()
    if options.command == "down":
        return down(root)
    if options.masters < 1 or options.minions < 0:
        parser.error("--masters takes 1 or more, --minions 0 or more")
    return up(root, options.masters, options.minions)


def up(root: Path, masters: int, minions: int) -> int:
    """Start a lab in *root*, unless one runs there already, and say how to talk to it."""
    if found := load(root):
        if found.running:
            print(f"A lab is running in {root} already.\n\n{found.help}")
            return 0
        found.end()
    elif root.exists():
        # It has no lab.json, so it may not be ours to remove.
        print(f"{root} is in the way and was not left by a lab: remove it", file=sys.stderr)
        return 1
    try:
        with Lab(root) as lab:
            joined = _build(lab, masters, minions)
            print(detach(lab, _help(lab, joined)).help)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return 0


def down(root: Path) -> int:
    """End the lab in *root*, if there is one."""
    found = load(root)
    if found is None:
        print(f"No lab in {root}.")
        return 0
    ended = found.end()
    print(f"Ended {', '.join(ended) or 'nothing, all was dead already'}; removed {root}.")
    return 0


def _build(lab: Lab, masters: int, minions: int) -> bool:
    """Start everything; return whether the masters form a group."""
    engine = _has("engines.ha") and _has("runners.ha")
    group = [lab.add_master(f"m{number}", engine=engine) for number in range(1, masters + 1)]
    group[0].share_master_key(*group[1:])
    print(f"Starting {masters} masters and {minions} minions …", flush=True)
    lab.start_all(group)
    if engine:
        lab.form_group(group)
    for number in range(1, minions + 1):
        # The last minion is connected to one master at a time, the others to all.
        kind = "failover" if number == minions and number > 1 else "hot"
        lab.add_minion(f"web{number}", masters=group, type=kind).start()
    first = group[0]
    wait_for(
        lambda: lab.minions.keys() <= first.keys()["minions_pre"].keys(), START_TIMEOUT, "all knock"
    )
    return engine


def _help(lab: Lab, joined: bool) -> str:
    first, *others = lab.masters.values()
    last = others[-1] if others else first
    lines = [f"{node.name:8} {node.address:15} {node.log_file}" for node in lab.masters.values()]
    lines += [f"{node.name:8} {node.type:15} {node.log_file}" for node in lab.minions.values()]
    lines += ["", "The minions knock and wait to be accepted:", ""]
    lines += [f"  {first.shell('salt-key', '-L')}", f"  {first.shell('salt-key', '-A', '-y')}"]
    if joined:
        lines += [f"  {last.shell('salt-key', '-L')}", f"  {first.shell('salt-run', 'ha.status')}"]
        lines += [f"  {last.shell('salt-run', 'ha.check_consistency')}"]
    lines += [f"  {last.shell('salt', '*', 'test.ping')}"]
    elsewhere = [node.name for node in lab.minions.values() if node.type == "failover"]
    if joined and others and elsewhere:
        text = f"{elsewhere[0]} hears one master at a time, {first.name} at first. Of any master:"
        lines += ["", text, "", f"  {last.shell('salt-run', 'ha.cmd', '*', 'test.ping')}"]
    lines += ["", f"End it: {sys.executable} -m lab --root {lab.folder} down"]
    return "\n".join(lines)


def _has(module: str) -> bool:
    return importlib.util.find_spec(f"saltext_ha.{module}") is not None


if __name__ == "__main__":
    sys.exit(main())
