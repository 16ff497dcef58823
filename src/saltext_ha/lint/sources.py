"""
Which file and which line set an option, read in Salt's order.

Salt (``salt/config/__init__.py``: ``load_config``, ``include_config``, ``minion_config``,
``master_config``; the same on 3006, 3007 and 3008) reads the main file, then what matches
``default_include``, then ``include:``. What an included file sets replaces a whole option of the
main file; among files that match one pattern, mappings and lists are merged.

Salt parses with libyaml where PyYAML has it (``salt/utils/yaml.py``), and so do we: PyYAML's own
parser refuses tabs that libyaml takes.
"""

from __future__ import annotations

import copy
import glob
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from saltext_ha.common import validators
from saltext_ha.lint.model import Place, Problem, Setting

MAIN = "main"
INCLUDED = "included"
QUOTED = re.compile(r"\[.*\]|'.{2,}'", re.DOTALL)  # a single character may be shown
ENDINGS = ("yaml", "yml")  # of files that somebody meant to be read
MAX_DEPTH = 10  # of files that include files
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Sources:
    """
    All settings in Salt's order, beginning with the file ``main``, and those it cannot read.

    ``merged`` is what the files say together, as Salt merges them: without its defaults, and before
    it expands paths. ``left_out`` are YAML files beside the included ones that it does not read.
    """

    main: str
    settings: list[Setting] = field(default_factory=list)
    merged: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    read: set[Path] = field(default_factory=set)

    def places(self) -> dict[str, Place]:
        """Option → the place that counts: the last one."""
        return {setting.option: setting.place for setting in self.settings}

    def unreadable(self, path: str, line: int, reason: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(path, line, reason))


def read(conf_file: str, default_include: str, own: str = "") -> Sources:
    """
    Read a configuration file and all that it includes.

    :param conf_file: Salt starts without it, too.
    :param default_include: used if the file does not set it, such as ``minion.d/*.conf``.
    :param own: what a proxy minion includes besides, such as ``proxy.d/ID/*.conf``.
    """
    sources = Sources(conf_file)
    main = _read_file(conf_file, MAIN, sources)
    sources.merged.update(main)
    default = main.get("default_include", default_include)
    for patterns in (default, own, main.get("include")):
        sources.merged.update(_included(patterns, conf_file, sources, MAX_DEPTH))
    listed = [*_listed(default), *_listed(own)]
    for folder in {Path(_path(str(each), conf_file)).parent for each in listed}:
        beside = [path for ending in ENDINGS for path in folder.glob(f"*.{ending}")]
        sources.left_out += sorted(str(path) for path in beside if path not in sources.read)
    return sources


def _included(patterns: Any, origin: str, sources: Sources, depth: int) -> dict[Any, Any]:
    """What the files that match *patterns* say together, merged as ``include_config`` does it."""
    import salt.utils.dictupdate

    found: dict[Any, Any] = {}
    for path in _matches(patterns, origin, sources):
        # Copied: what a file says must stay so when another one is merged into it.
        values = copy.deepcopy(_read_file(path, INCLUDED, sources))
        if depth:
            values.update(_included(values.get("include"), path, sources, depth - 1))
        try:
            salt.utils.dictupdate.update(found, values, merge_lists=True)
        except RecursionError:
            sources.unreadable(path, 0, "a mapping in it contains itself")
    return found


def _matches(patterns: Any, origin: str, sources: Sources) -> Iterator[str]:
    if patterns and not isinstance(patterns, (str, list)):
        kind = validators.kind(patterns)
        sources.unreadable(origin, 0, f"an include: in it takes a path or a list, not {kind}")
        return
    for pattern in _listed(patterns):
        path = _path(str(pattern), origin)
        found = sorted(glob.glob(path))  # noqa: PTH207
        if not found:
            _note_closed(Path(path).parent, sources)
        yield from found


def _listed(patterns: Any) -> list[Any]:
    if isinstance(patterns, str):
        return [patterns] if patterns else []
    return patterns if isinstance(patterns, list) else []


def _path(pattern: str, origin: str) -> str:
    """*pattern* as Salt looks for it; *origin* is the file that names it."""
    path = os.path.expanduser(pattern)  # noqa: PTH111
    if os.path.isabs(path):  # noqa: PTH117
        return path
    return os.path.join(os.path.dirname(origin), path)  # noqa: PTH118, PTH120


def _note_closed(folder: Path, sources: Sources) -> None:
    """To Salt, a folder that it may not list is empty."""
    try:
        list(folder.iterdir())
    except PermissionError as exc:
        sources.unreadable(str(folder), 0, str(exc.strerror))
    except OSError:
        pass  # it is not there, which is no problem


def _read_file(path: str, layer: str, sources: Sources) -> dict[Any, Any]:
    """Note the settings of *path*, and return its values: none of a file with a problem."""
    import salt.utils.yaml

    sources.read.add(Path(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_LOADER)
        values = salt.utils.yaml.safe_load(text)  # it refuses duplicate keys in a mapping
    except OSError as exc:
        if layer != MAIN or not isinstance(exc, FileNotFoundError):
            sources.unreadable(path, 0, exc.strerror or type(exc).__name__)
        return {}
    except UnicodeDecodeError:
        sources.unreadable(path, 0, "it is no UTF-8 text")
        return {}
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        sources.unreadable(path, mark.line + 1 if mark else 0, _reason(exc))
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        sources.unreadable(path, 1, "it is no mapping of options")
        return {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in values:
            lines = (
                tuple(item.start_mark.line + 1 for item in value.value)
                if isinstance(value, yaml.SequenceNode)
                else ()
            )
            place = Place(path, key.start_mark.line + 1, lines)
            sources.settings.append(Setting(key.value, values[key.value], place, layer))
    return values


def _reason(exc: yaml.YAMLError) -> str:
    reason = str(getattr(exc, "problem", None) or getattr(exc, "context", None) or "no YAML")
    if "conflicting ID" in reason:
        return reason  # the name of an option
    # ``password: *hunter2`` is an unknown alias: a quoted text may be a secret.
    return QUOTED.sub("…", reason)
