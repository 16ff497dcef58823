"""Compares the states and pillar that the masters would serve, and the modules they load."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from saltext_ha.common.errors import StillReading
from saltext_ha.common.files import as_text
from saltext_ha.consistency import git, gpg, tree
from saltext_ha.consistency.comparison import Difference, by_rules, names, option_of
from saltext_ha.consistency.digests import Digests
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import EqualityRule
from saltext_ha.consistency.section import READABLE, Mine, of_rules
from saltext_ha.consistency.values import ABSENT

HOW = "salt-run ha.deploy where it is of a tree (docs/trees.md); else rsync or git pull"
SYNC = "salt-run saltutil.sync_all where it comes from file_roots; else rsync"


class FileFixes(NamedTuple):
    """What to do about a file that differs, is missing on few, or is there on few."""

    other: str
    missing: str
    extra: str


def _fixes(how: str, then: str) -> FileFixes:
    return FileFixes(
        f"put the same file in place on {{masters}} ({how}); {then}",
        f"put the file in place on {{without}} ({how}); {then}",
        f"remove the file on {{having}}, or put it in place on {{without}}, too; {then}",
    )


DECRYPTING = (
    "{without} cannot render pillar encrypted for it: as the user of salt-master, gpg --homedir "
    "FOLDER --export-secret-keys on {having}, --import on {without} (FOLDER is /etc/salt/gpgkeys, "
    "or what gpg_keydir: says); -K --with-keygrip names it; no restart needed"
)
ENVIRONMENT = (
    "add {what} to {option} on {without}, or take it out on {having}; restart salt-master there"
)
ARRANGED = "make gitfs_remotes the same on {masters}, in the same order; restart salt-master there"

SERVED = ("file_roots", "pillar_roots")
#: Where a master finds modules of its own: each loader of ``salt/loader/__init__.py`` takes an
#: option. Those of minions and of spm are left out.
LOADED = (
    "extension_modules", "module_dirs", "runner_dirs", "utils_dirs", "outputter_dirs", "queue_dirs",
    "returner_dirs", "states_dirs", "grains_dirs", "render_dirs", "auth_dirs", "cache_dirs",
    "cloud_dirs", "engines_dirs", "fileserver_dirs", "log_handlers_dirs", "matchers_dirs",
    "netapi_dirs", "pillar_dirs", "roster_dirs", "sdb_dirs", "serializers_dirs", "thorium_dirs",
    "tokens_dirs", "top_dirs", "wheel_dirs", "wrapper_dirs",
)  # fmt: skip
FILES: Mapping[str, FileFixes] = {
    **dict.fromkeys(SERVED, _fixes(HOW, "no restart needed")),
    **dict.fromkeys(LOADED, _fixes(SYNC, "restart salt-master there")),
}
FIXES = {**FILES, gpg.OPTION: FileFixes("", DECRYPTING, DECRYPTING)}
RULES: Mapping[str, EqualityRule] = {
    rule.option: rule
    for rule in (
        *(EqualityRule(option, fix=fixes.other) for option, fixes in FIXES.items()),
        EqualityRule(git.REMOTES, fix=ARRANGED),
        EqualityRule("gitfs", fix="salt-run fileserver.update backend=git on {masters}"),
        EqualityRule("git_pillar", fix="salt-run git_pillar.update on {masters}"),
    )
}
#: The leaf that stands for a whole environment or remote.
PRESENT = "present"
PILLAR = "pillar_roots:"
FEW = 10


def take(mine: Mine) -> Facts:
    """
    ``file_roots:ENV:PATH`` → digest of what the fileserver would serve, the same for pillar, and
    the commits of git remotes; ``runner_dirs:PATH`` → digest of what Salt would load;
    ``gpg_keydir:KEYGRIP`` for each key that decrypts pillar. Digests of pillar are keyed by the
    nonce: such files are small, and a plain digest would let readers guess the content.
    """
    opts = mine.opts
    leaves: dict[str, Any] = {}
    files: dict[str, tree.Seen] = {}
    if any(name.split("|")[0] == "roots" for name in git.backends(opts)):
        _gather("file_roots", opts, tree.for_states(opts), leaves, files)
    _gather("pillar_roots", opts, tree.for_pillar(), leaves, files)
    for option in LOADED:
        for path, seen in tree.files(_folders(option, opts), tree.for_modules()).items():
            files[f"{option}:{as_text(path)}"] = seen
    unknown: dict[str, str] = {}
    try:
        digests, missed = Digests(mine.config.state_dir).of(files)
    except StillReading as exc:
        unknown = dict.fromkeys(FILES, str(exc))
    else:
        key = mine.nonce[:64]
        for path, digest in digests.items():
            if path.startswith(PILLAR):
                digest = hashlib.blake2b(digest, key=key, digest_size=16).digest()
            leaves[path] = digest
        unknown = _unknown(missed)
    try:
        leaves.update(gpg.keys(opts))
    except OSError as exc:
        unknown[gpg.OPTION] = f"{exc.filename}: {(exc.strerror or str(exc)).lower()}; {READABLE}"
    leaves.update(git.states(opts, mine.nonce))
    leaves.update(git.pillars(opts))
    return Facts(leaves, unknown, tuple(RULES))


def compare(parts: Mapping[str, Facts]) -> list[Difference]:
    """Leaf by leaf; an environment or remote that a master does not have is one difference."""
    found = by_rules(RULES, parts)
    whole = {d["path"]: d["values"] for d in found if _is_whole(d["path"], parts)}
    lacking = [path for path, values in whole.items() if ABSENT in values.values()]
    shown = []
    for difference in found:
        path: str = difference["path"]
        values: Mapping[str, Any] = difference["values"]
        above = next((whole[one] for one in whole if path.startswith(f"{one}:")), None)
        if above is not None and not _differs_where_it_is(values, above):
            continue
        # If the remotes differ, so does their list: one difference is enough.
        if path == git.REMOTES and any(one.startswith("gitfs:") for one in lacking):
            continue
        if path in whole:
            difference["fix"] = _fix_of_whole(path, values)
        elif fixes := FIXES.get(option_of(path)):
            difference["fix"] = _fix_of_file(values, fixes) or difference["fix"]
        shown.append(difference)
    return shown


def _differs_where_it_is(values: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """Whether *values* differ among the masters that have what is *above* them."""
    having = [name for name, mark in above.items() if mark in (PRESENT, git.FETCHED)]
    there = [values[name] for name in having if not _is_unknown(values[name])]
    return any(value != there[0] for value in there)


def _fix_of_whole(path: str, values: Mapping[str, Any]) -> str:
    option, _, what = path.partition(":")
    having, without = _holders(values)
    behind = [name for name in having if values[name] == git.NOT_FETCHED]
    if behind and not without:
        return RULES[option].fix.format(masters=names(behind))
    where = {"gitfs": "gitfs_remotes", "git_pillar": "ext_pillar"}.get(option, option)
    return ENVIRONMENT.format(what=what, option=where, having=names(having), without=names(without))


def _fix_of_file(values: Mapping[str, Any], fixes: FileFixes) -> str:
    """
    The fix for a file that some masters have, with one content, and others lack; otherwise empty.
    """
    having, without = _holders(values)
    if not without or any(values[name] != values[having[0]] for name in having):
        return ""
    fix = fixes.missing if len(having) > len(without) else fixes.extra
    return fix.format(having=names(having), without=names(without))


def _holders(values: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The masters that have it, and those that lack it."""
    known = [name for name, value in values.items() if not _is_unknown(value)]
    without = [name for name in known if values[name] == ABSENT]
    return [name for name in known if name not in without], without


def _is_unknown(value: Any) -> bool:
    return isinstance(value, Mapping) and "unknown" in value


def size(parts: Mapping[str, Facts]) -> int:
    """How many files, environments, remotes, branches and tags were compared."""
    # Masters that are the same share their leaves.
    several = {id(facts.leaves): facts.leaves for facts in parts.values()}
    return len(set().union(*several.values()))


def _gather(
    option: str,
    opts: Mapping[str, Any],
    walk: tree.Walk,
    leaves: dict[str, Any],
    files: dict[str, tree.Seen],
) -> None:
    for env, folders in tree.environments(opts.get(option) or {}).items():
        leaves[f"{option}:{env}"] = PRESENT
        for path, seen in tree.files(folders, walk).items():
            files[f"{option}:{env}:{as_text(path)}"] = seen


def _folders(option: str, opts: Mapping[str, Any]) -> list[str]:
    """The folders of an option of :data:`LOADED`, without what lies in ``extension_modules``."""
    value = opts.get(option) or []
    folders = [str(folder) for folder in (value if isinstance(value, list) else [value])]
    modules = opts.get("extension_modules")
    if option == "extension_modules" or not modules:
        return folders
    # By default utils_dirs is the folder utils of it.
    return [folder for folder in folders if not Path(folder).is_relative_to(str(modules))]


def _is_whole(path: str, parts: Mapping[str, Facts]) -> bool:
    marks = (PRESENT, git.FETCHED, git.NOT_FETCHED)
    return any(facts.leaves.get(path) in marks for facts in parts.values())


def _unknown(missed: Mapping[str, str]) -> dict[str, str]:
    """
    Files that could not be read; one summary for an option with many of them, or of which a whole
    folder of roots could not be read: what is in it is not absent.
    """
    by_option: dict[str, list[str]] = {}
    for path in missed:
        by_option.setdefault(option_of(path), []).append(path)
    unknown: dict[str, str] = {}
    for option, paths in by_option.items():
        if whole := [path for path in paths if path.endswith(":.")]:
            unknown[option] = missed[whole[0]]
        elif len(paths) <= FEW:
            unknown.update((path, missed[path]) for path in paths)
        else:
            why = f"{len(paths)} files cannot be read; {paths[0]}: {missed[paths[0]]}"
            unknown[option] = why
    return unknown


SECTION = of_rules(
    "roots",
    "Would they serve the same states and the same pillar, and load the same modules?",
    take,
    RULES,
    compare,
    size,
)
