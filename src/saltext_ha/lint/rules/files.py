"""Rules on how Salt reads the files themselves, of masters and minions alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from saltext_ha.consistency.options import RULES
from saltext_ha.consistency.values import is_secret_key, is_secret_value
from saltext_ha.lint.cited import MASTER_INCLUDES, CitedLine
from saltext_ha.lint.model import (
    FILES,
    MINION,
    Hit,
    Hits,
    HostFacts,
    Place,
    RuleBook,
    Setting,
)
from saltext_ha.lint.sources import INCLUDED

BOOK = RuleBook(FILES)

# So similar that it is hardly another word; options of extensions and of a site's own are ignored.
NEAR = 0.88
SHORTEST = 6
# Valid names that resemble those that Salt lists: other releases know them, or Salt reads them
# without listing them.
RIGHT = frozenset({"auth_retries", "auth_token", "log_datefmt_console", "master_id", "master_ip"})


@BOOK.error(
    "HA001",
    "a configuration file that Salt cannot read, or fails on",
    CitedLine(
        "salt/config/__init__.py:2540 load_config", "sys.exit(salt.defaults.exitcodes.EX_GENERIC)"
    ),
    CitedLine("salt/config/__init__.py:2585 include_config", "opts = _read_conf_file(fn_)"),
    why="Salt does not start with a broken main file or a value that it fails on, nor a minion "
    "with a broken included file; a master leaves that out with a line in its log, and none of its "
    "options holds.",
    fix="mend the file, or the option in the line of Salt; if permission is denied, make it "
    "readable for the user that salt-master or the minion runs as",
)
def unreadable(facts: HostFacts) -> Hits:
    for problem in facts.problems:
        yield Hit("", problem.reason, place=Place(problem.file, problem.line))


@BOOK.warning(
    "HA002",
    "an included file replaces a list or mapping of another file",
    CitedLine("salt/config/__init__.py:2727 minion_config", "overrides.update("),
    MASTER_INCLUDES,
    why="What minion.d or master.d sets takes the place of the whole option in the main file: "
    "lists and mappings of the two are not merged, at any depth. What include: names takes the "
    "place of both in the same way. Entries of the replaced file are gone, such as other engines, "
    "rights in external_auth, or half of ha:. A single master in a later file, as salt-bootstrap "
    "writes it (99-master-address.conf), takes the place of a list of masters, too.",
    fix="keep each list and mapping in one place: the main file, or the included ones",
)
def replaced(facts: HostFacts) -> Hits:
    last = {s.option: s for s in facts.settings if s.layer == INCLUDED}
    for setting in facts.settings:
        option, over = setting.option, last.get(setting.option)
        if over is None or over is setting or option in ("include", "default_include"):
            continue
        holds = facts.merged.get(option)
        if _alike(setting.value, holds) or _one_of_several(setting, holds):
            # In a list, such as engines, texts are names.
            named = isinstance(setting.value, list) or option not in RULES
            arguments = not named and RULES[option].secret
            lost = ", ".join(_lost(setting.value, holds, is_secret_key(option), arguments))
            if lost:
                where = f"{over.place.file}:{over.place.line}"
                yield Hit(option, f"{where} replaces it; lost: {lost}", place=setting.place)


def _alike(value: object, holds: object) -> bool:
    """Whether both are lists, or both mappings."""
    return any(isinstance(value, kind) and isinstance(holds, kind) for kind in (list, dict))


def _one_of_several(setting: Setting, holds: object) -> bool:
    """Whether *setting* lists several masters of a minion, and a single one holds."""
    several = isinstance(setting.value, list) and len(setting.value) > 1
    return setting.option == "master" and several and isinstance(holds, str)


def _lost(value: object, holds: object, secret: bool, arguments: bool) -> Iterator[str]:
    """
    The entries of a list or mapping, at any depth, that no longer count: ``pam: alice``. A single
    value under a name that has another one now is no entry: it was meant to be replaced.

    :param secret: entries of lists are counted, and no names shown. :param arguments: texts in
        lists are counted, too: in those of ``schedule`` and ``beacons`` anything may stand.
    """
    if isinstance(value, list):
        still = holds if isinstance(holds, list) else [holds]
        new = [item for item in still if item not in value]
        gone = [item for item in value if item not in still and not _has_another(item, new)]
        shown = [each for each in gone if not secret and (isinstance(each, dict) or not arguments)]
        yield from map(_name, shown)
        if hidden := len(gone) - len(shown):
            yield "1 entry" if hidden == 1 else f"{hidden} entries"
    elif isinstance(value, dict):
        for key, item in value.items():
            name = "…" if secret else _shown(key)
            hidden = secret or is_secret_key(str(key))
            if not isinstance(holds, dict) or key not in holds:
                yield name
            else:
                below = _lost(item, holds[key], hidden, arguments)
                yield from (f"{name}: {each}" for each in below)


def _has_another(item: object, new: list[object]) -> bool:
    """Whether *item*, such as ``{/: 80%}``, has another single value in *new*: ``{/: 90%}``."""
    if not isinstance(item, dict) or len(item) != 1:
        return False
    ((key, value),) = item.items()
    values = [value, *(other[key] for other in new if isinstance(other, dict) and key in other)]
    return len(values) > 1 and not any(isinstance(each, (list, dict)) for each in values)


def _name(item: object) -> str:
    """An entry without its values, which may be secret."""
    return " and ".join(map(_shown, item)) if isinstance(item, dict) else _shown(item)


def _shown(item: object) -> str:
    return "…" if is_secret_value(str(item)) else str(item)


@BOOK.warning(
    "HA003",
    "an option that Salt does not know, and that is spelt nearly like one that it knows",
    CitedLine("salt/config/__init__.py:2268 _validate_opts", "if key in VALID_OPTS:"),
    why="Salt ignores options that it does not know, without a word: the default holds.",
    fix="write the name that is meant",
)
def misspelt(facts: HostFacts) -> Hits:
    for option in facts.places:
        if option in facts.known or option in RIGHT or len(option) < SHORTEST or "." in option:
            continue
        near = difflib.get_close_matches(option, facts.known, n=1, cutoff=NEAR)
        if near:
            yield Hit(option, f"did you mean {near[0]}?")


@BOOK.warning(
    "HA004",
    "the masters of a minion in several included files",
    CitedLine(
        "salt/config/__init__.py:2600 include_config",
        "salt.utils.dictupdate.update(configuration, opts, True, True)",
    ),
    why="Lists in files of one folder are put together, in the order of the file names: the minion "
    "has all masters of all files, not those of the last one.",
    fix="write master: in one file only",
)
def merged_masters(facts: HostFacts) -> Hits:
    set_in = [s for s in facts.settings if s.option == "master" and s.layer == INCLUDED]
    # A file that include: names, too, is read twice. Where a file has them all, nothing is new.
    found = list({s.place.file: s for s in set_in if isinstance(s.value, list)}.values())
    if len(found) > 1 and all(len(s.value) < len(facts.masters) for s in found):
        others = ", ".join(f"{s.place.file}:{s.place.line}" for s in found[:-1])
        yield Hit("master", f"and in {others}: {', '.join(facts.masters)}")


@BOOK.error(
    "HA005",
    "settings with which the engine of this package does not start",
    "saltext_ha/engines/ha.py",
    "saltext_ha/engines/ha_watchdog.py",
    why="A wrong key or value is never left out. After the next restart no keys are replicated, or "
    "the watchdog watches no master.",
    fix="mend it before the restart (docs/configuration.md)",
)
def refused(facts: HostFacts) -> Hits:
    if facts.refused:
        yield Hit(*facts.refused)


@BOOK.warning(
    "HA006",
    "a YAML file that Salt does not read",
    CitedLine("salt/config/__init__.py:1845", '"default_include": "master.d/*.conf"'),
    CitedLine("salt/config/__init__.py:1394", '"default_include": "minion.d/*.conf"'),
    why="Of master.d and minion.d Salt reads the files whose names match default_include: *.conf. "
    "None of the options in this file holds.",
    fix="give it a name that ends in .conf, name it in include:, or move it elsewhere",
)
def left_out(facts: HostFacts) -> Hits:
    for path in facts.left_out:
        yield Hit("", "", place=Place(path, 0))


@BOOK.error(
    "HA007",
    "engines: that Salt does not start as they are written",
    CitedLine(
        "salt/engines/__init__.py:42 start_engines",
        "engine, engine_opts = next(iter(engine.items()))",
    ),
    why="Of an entry with several names Salt starts the first engine, and says nothing of the "
    "others, nor of settings that are not below their engine. An engine that is named twice with "
    "the same settings is started twice, and does everything twice.",
    fix="begin each engine with a dash, name it once, and write its settings further to the right "
    "than its name",
)
def not_started(facts: HostFacts) -> Hits:
    listed = facts.get("engines")
    started: list[tuple[str, object]] = []
    for entry in listed if isinstance(listed, list) else ():
        named = entry if isinstance(entry, dict) and entry else {str(entry): None}
        name, *others = map(str, named)
        if others:
            yield Hit("engines", f"{name} is started, and not {' and '.join(others)}")
        settings = next(iter(named.values())) or None
        if (name, settings) in started:  # with other ones it is meant, as for a second queue
            yield Hit("engines", f"{name} is started twice")
        started.append((name, settings))


@BOOK.error(
    "HA008",
    "fileserver_backend is a text",
    CitedLine("salt/fileserver/__init__.py:352 Fileserver.backends", "back = list(back)"),
    why="Salt takes its letters for the backends, of which there is none: no states and no files "
    "are served, and a line of the log says only that the type is wrong.",
    fix="write a list: [roots]",
)
def serves_nothing(facts: HostFacts) -> Hits:
    served = facts.role == MINION and facts.get("file_client") != "local"  # by its masters
    if not served and isinstance(facts.get("fileserver_backend"), str):
        yield Hit("fileserver_backend", "")
