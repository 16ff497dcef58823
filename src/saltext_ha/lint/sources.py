"""
Which file and which line set an option, read in Salt's order.

Salt (``salt/config/__init__.py``: ``load_config``, ``include_config``, ``minion_config``,
``master_config``; the same on 3006, 3007 and 3008) reads the main file, then what matches
``default_include``, then ``include:``. What an included file sets replaces a whole option of the
main file; among files that match one pattern, mappings and lists are merged.
"""

from __future__ import annotations

import glob
import os.path
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from saltext_ha.lint.model import Place, Problem, Setting

MAIN = "main"
INCLUDED = "included"
QUOTED = re.compile(r"\[.*\]|'.{2,}'", re.DOTALL)  # a single character may be shown
MAX_DEPTH = 10  # of files that include files


@dataclass
class Sources:
    """All settings in Salt's order, and the files that it cannot read."""

    settings: list[Setting] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def places(self) -> dict[str, Place]:
        """Option → the place that counts: the last one."""
        return {setting.option: setting.place for setting in self.settings}

    def values(self) -> dict[str, Any]:
        """Option → its value in the last file, neither merged nor with defaults."""
        return {setting.option: setting.value for setting in self.settings}


def read(conf_file: str, default_include: str) -> Sources:
    """
    Read a configuration file and all that it includes.

    :param default_include: used if the file does not set it, such as ``minion.d/*.conf``.
    """
    sources = Sources()
    _read_file(conf_file, MAIN, sources)
    main = sources.values()
    for patterns in (main.get("default_include", default_include), main.get("include")):
        for path in _matches(patterns, conf_file):
            _read_included(path, sources, MAX_DEPTH)
    return sources


def _read_included(path: str, sources: Sources, depth: int) -> None:
    nested = _read_file(path, INCLUDED, sources).get("include")
    if depth:
        for inner in _matches(nested, path):
            _read_included(inner, sources, depth - 1)


def _matches(patterns: Any, origin: str) -> Iterator[str]:
    for pattern in [patterns] if isinstance(patterns, str) else patterns or []:
        path = os.path.expanduser(str(pattern))  # noqa: PTH111
        if not os.path.isabs(path):  # noqa: PTH117
            path = os.path.join(os.path.dirname(origin), path)  # noqa: PTH118, PTH120
        yield from sorted(glob.glob(path))  # noqa: PTH207


def _read_file(path: str, layer: str, sources: Sources) -> Mapping[str, Any]:
    """Note the settings of *path*, and return its values."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = _loaded(text)
    except OSError as exc:
        sources.problems.append(Problem(path, 0, exc.strerror or type(exc).__name__))
        return {}
    except UnicodeDecodeError:
        sources.problems.append(Problem(path, 0, "it is no UTF-8 text"))
        return {}
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        sources.problems.append(Problem(path, mark.line + 1 if mark else 0, _reason(exc)))
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        sources.problems.append(Problem(path, 1, "it is no mapping of options"))
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


def _loaded(text: str) -> Any:
    """The values by Salt's own loader, which refuses duplicate keys in a mapping."""
    import salt.utils.yaml

    return salt.utils.yaml.safe_load(text)
