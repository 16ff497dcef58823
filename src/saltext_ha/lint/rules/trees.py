"""Rules on what a master serves, and on its trees (``ha: trees:``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from saltext_ha.consistency.tree import ANY, ignoring
from saltext_ha.lint.cited import CitedLine
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MASTER)
SERVED = "tests/integration/test_trees.py"
# Their paths begin at the folder of the main configuration file.
INCLUDING = ("default_include", "include")
#: In a folder of ``file_roots`` that is a checkout: where its remotes are, often with a password.
CHECKOUT = ".git/config"


@BOOK.warning(
    "HA801",
    "a tree that Salt does not read",
    SERVED,
    why="It is deployed, and no minion sees anything of it: neither file_roots nor pillar_roots, "
    "nor anything else in the configuration names its live folder.",
    fix="name the live folder:  file_roots: {base: [/srv/salt]}, or of configuration  include: "
    "[shared/*.conf]; restart salt-master",
)
def unread(facts: HostFacts) -> Hits:
    others = {option: value for option, value in facts.options.items() if option != "ha"}
    named = [path for path in map(PurePath, _texts(others)) if path.is_absolute()]
    folder = PurePath(str(facts.get("conf_file", ""))).parent
    named += [folder / text for key in INCLUDING for text in _texts(facts.get(key, []))]
    for name, tree in _trees(facts):
        live = PurePath(str(tree["live"]))
        above = (path for kind in ("file_roots", "pillar_roots") for path in _folders(facts, kind))
        if not any(_is_in(path, live) for path in named) and not any(
            _is_in(live, path) for path in above
        ):
            yield Hit("ha", f"tree {name}: {live}")


@BOOK.info(
    "HA802",
    "git beside a tree of the same kind",
    CitedLine("salt/fileserver/__init__.py:595 Fileserver.find_file", "for fsb in back:"),
    "docs/trees.md",
    why="Of files that both have, one hides the other; and what comes from git is fetched by each "
    "master when it comes to it, so the masters do not switch at once.",
    fix="take git out (fileserver_backend, ext_pillar), and deploy from a checkout of it; or leave "
    "it, where it holds other files than the tree",
)
def beside_git(facts: HostFacts) -> Hits:
    pillars, backends = facts.get("ext_pillar"), facts.get("fileserver_backend")
    git = {
        "file_roots": bool(facts.get("gitfs_remotes"))
        and bool({"git", "gitfs"} & set(map(str, backends if isinstance(backends, list) else []))),
        "pillar_roots": any(
            isinstance(each, dict) and "git" in each
            for each in (pillars if isinstance(pillars, list) else [])
        ),
    }
    where = {"file_roots": "fileserver_backend", "pillar_roots": "ext_pillar"}
    for name, tree in _trees(facts):
        for kind, is_there in git.items():
            if is_there and _is_served(facts, kind, tree):
                yield Hit(where[kind], f"git, and tree {name}: {tree['live']}")


@BOOK.error(
    "HA803",
    "pillar in a tree that is not secret",
    "saltext_ha/config/trees.py",
    "tests/functional/trees/test_deploy.py",
    why="Every user of the masters may read its files, and ha.deploy shows what changes in them, "
    "also to who follows Salt's events.",
    fix="secret: true in  ha: trees:  on all masters; restart salt-master",
)
def open_pillar(facts: HostFacts) -> Hits:
    for name, tree in _trees(facts):
        if not tree.get("secret") and _is_served(facts, "pillar_roots", tree):
            yield Hit("ha", f"tree {name}: {tree['live']} is in pillar_roots")


@BOOK.warning(
    "HA804",
    "versions of a tree that Salt reads, too",
    "saltext_ha/config/trees.py",
    "saltext_ha/consistency/tree.py",
    why="The live folder lies in a folder of file_roots or pillar_roots, and so do its versions "
    "beside it (.NAME.ha): minions list and may read the deployments that are kept, each list "
    "takes several times as long, and ha.check_consistency finds files of them that differ.",
    fix="name the live folder itself in  file_roots  or  pillar_roots; for file_roots also  "
    "file_ignore_regex: ['\\.[^/]+\\.ha/']; restart salt-master",
)
def read_versions(facts: HostFacts) -> Hits:
    ignored = ignoring(facts.options)
    for name, tree in _trees(facts):
        live = PurePath(str(tree["live"]))
        beside = f".{live.name}.ha/versions"
        for kind in ("file_roots", "pillar_roots"):
            left_out = kind == "file_roots" and ignored(beside)
            for folder in _folders(facts, kind):
                if _is_in(live.parent, folder) and not left_out:
                    yield Hit(kind, f"{folder}, and tree {name}: {live}")


@BOOK.error(
    "HA805",
    "the source of a secret tree in that of another tree",
    "saltext_ha/trees/source.py",
    why="What is secret is deployed with the other tree, too: where that is in file_roots, every "
    "minion may read all of it, and ha.deploy shows it.",
    fix="leave the folder out of the other tree:  ignore: [/pillar/]  in  ha: trees:  ; or let "
    "source: of that name a folder beside it; restart salt-master",
)
def secret_inside(facts: HostFacts) -> Hits:
    trees = [(name, tree) for name, tree in _trees(facts) if tree.get("source")]
    sources = [(name, tree, PurePath(str(tree["source"]))) for name, tree in trees]
    for name, tree, source in sources:
        for other, secret, inner in sources:
            inside = inner != source and inner.is_relative_to(source)
            if inside and secret.get("secret") and not tree.get("secret"):
                below = inner.relative_to(source)
                if not _is_ignored(below, _texts(tree.get("ignore"))):
                    yield Hit("ha", f"tree {other}: {inner} lies in tree {name}: {source}")


@BOOK.warning(
    "HA806",
    "a git checkout in file_roots, with its .git",
    CitedLine("salt/fileserver/__init__.py:279 is_file_ignored", 'if opts["file_ignore_regex"]:'),
    "docs/trees.md",
    why="Minions may read .git as they read states (salt://.git/config): the whole history, what "
    "was taken out since, and the address of the remote, often with a password. Each minion also "
    "gets it by a file.recurse of that folder.",
    fix="file_ignore_regex: ['(^|/)\\.git(/|$)']  on all masters; or deploy from the checkout by a "
    "tree, which leaves .git out; restart salt-master",
)
def served_checkout(facts: HostFacts) -> Hits:
    ignored = ignoring(facts.options)
    for folder in facts.checkouts if "roots" in _texts(facts.get("fileserver_backend")) else ():
        if not ignored(str(PurePath(folder, CHECKOUT))):
            yield Hit("file_roots", folder)


def _is_ignored(below: PurePath, globs: Iterable[str]) -> bool:
    """Whether *globs* of ``ignore:`` leave out the folder *below*, or one that it lies in."""
    folders = [folder for folder in (below, *below.parents) if folder.name]
    return any(
        fnmatchcase(str(folder), glob.strip("/"))
        or (not glob.startswith("/") and fnmatchcase(folder.name, glob.strip("/")))
        for glob in globs
        for folder in folders
    )


def trees_of(options: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The trees in a master's configuration, by name; invalid ones are left out."""
    ours = options.get("ha")
    trees = ours.get("trees") if isinstance(ours, Mapping) else None
    if not isinstance(trees, Mapping):
        return {}
    return {str(n): t for n, t in trees.items() if isinstance(t, Mapping) and t.get("live")}


def _trees(facts: HostFacts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from trees_of(facts.options).items()


def _is_served(facts: HostFacts, kind: str, tree: Mapping[str, Any]) -> bool:
    live = PurePath(str(tree["live"]))
    return any(_is_in(path, live) or _is_in(live, path) for path in _folders(facts, kind))


def _is_in(path: PurePath, folder: PurePath) -> bool:
    """
    Whether *path* is *folder*, or lies in it. Either may have ``__env__`` in it: any environment.
    """
    if len(path.parts) < len(folder.parts):
        return False
    return all(
        _matches(one, other) or _matches(other, one)
        for one, other in zip(path.parts, folder.parts, strict=False)
    )


def _matches(name: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(ANY, ".+"), name) is not None


def _folders(facts: HostFacts, kind: str) -> list[PurePath]:
    return [PurePath(text) for text in _texts(facts.get(kind, {}))]


def _texts(value: Any) -> Iterator[str]:
    """All texts in *value*, at any depth; in YAML, a list may contain itself."""
    left, seen = [value], set()
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, (Mapping, list, tuple)) and id(each) not in seen:
            seen.add(id(each))
            left += each.values() if isinstance(each, Mapping) else each
