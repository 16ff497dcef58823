"""The table of options: complete, without contradiction, and as documented."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections import Counter
from pathlib import Path

import pytest
import salt.config
import salt.loader
from salt.utils.parsers import MasterOptionParser

from saltext_ha.config import mapping
from saltext_ha.consistency import access, document, master_key, options, roots
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.options import TABLE, Level
from saltext_ha.consistency.section import Mine

pytestmark = pytest.mark.core

PAGE = Path(__file__).parents[3] / "docs" / "consistency.md"


def test_every_option_of_a_master_is_judged_once() -> None:
    named = [option for topic in TABLE for option in topic.options]
    judged = Counter([*named, *access.RULES, *(rule.option for rule in master_key.CONFIG)])
    assert {option for option, times in judged.items() if times > 1} == set()
    assert set(salt.config.DEFAULT_MASTER_OPTS) - judged.keys() == set()


def test_all_folders_from_which_a_master_loads_modules_are_listed() -> None:
    """Salt's loader takes ``pillar_dirs`` and the like, which are in none of its tables."""
    asked: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(salt.loader))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_module_dirs":
            # opts, ext_type, tag
            words = [ast.unparse(argument).strip("'") for argument in node.args[1:3]]
            given = {word.arg: ast.unparse(word.value).strip("'") for word in node.keywords}
            asked.add(given.get("ext_type_dirs", f"{words[-1]}_dirs"))
    others = {
        "tag_dirs",  # of salt.loader.static_loader, which takes any
        "beacons_dirs", "executor_dirs", "metaproxy_dirs", "proxy_dirs", "resources_dirs",
        "pkgdb_dirs", "pkgfiles_dirs",  # of spm
    }  # fmt: skip
    assert asked - others == set(roots.LOADED) - {"extension_modules"}


def test_what_an_older_release_took_for_the_sites_own_is_none() -> None:
    """It tells ``pillar_dirs`` among the options."""
    told = {"pillar_dirs": {"secret": "x"}, "my.own": {"secret": "y"}}
    parts = {"m1": Facts(told), "m2": Facts()}
    assert [found["path"] for found in options.compare(parts)] == ["my.own"]


def test_what_salt_reads_and_does_not_list_is_not_the_sites_own() -> None:
    """A master's ``master_id`` tells minions which one asks: it must not be the same."""
    own = {"master_id": "m1", "append_domain": "a.example", "gitfs_provider": "pygit2"}
    assert {rule.option for rule in options.compared(own)} == set(options.RULES)


def test_advice_on_what_a_master_does_by_itself_names_the_way_to_do_it_once() -> None:
    parts = {name: Facts({"reactor": [name]}, {}, ("reactor",)) for name in ("m1", "m2")}
    (difference,) = options.compare(parts)
    assert difference["fix"].endswith("there; what is to run on one of them only: docs/once.md")


def test_what_the_command_line_adds_is_no_option() -> None:
    """Salt puts the options of ``salt-master -d`` among those of the files."""
    parser = MasterOptionParser()
    lists = [parser.option_list, *(group.option_list for group in parser.option_groups)]
    added = {option.dest for each in lists for option in each if option.dest}
    assert "daemon" in added
    assert {rule.option for rule in options.compared(dict.fromkeys(added))} == set(options.RULES)


def test_secret_options_are_among_the_options() -> None:
    for topic in TABLE:
        assert set(topic.secret) <= set(topic.options), topic.name
    secret = {option for topic in TABLE for option in topic.secret}
    words = ("password", "passphrase", "secret", "passwd")
    compared = {o for topic in TABLE if topic.level is not Level.MAY for o in topic.options}
    assert {o for o in compared if o.endswith(words)} <= secret


def test_rules_name_options_that_salt_knows() -> None:
    # Read by Salt, though in none of its tables.
    unlisted = {
        "auth.enable_expanded_auth_matching", "autoreject_file", "autosign_file", "api_acl",
        "autosign_grains_dir", "netapi_enable_clients", "peer_run", "permissive_acl",
        "rest_cherrypy", "rest_tornado", "netapi_allow_raw_shell", "eauth_tokens.cache_driver",
        "ext_pillar_first", "fileserver_list_cache_time", "beacons", "presence_events",
        "fileserver_events", "roster", "roster_defaults", "roster_file", "rosters",
        "ssh_minion_opts", "ha",
    }  # fmt: skip
    newer = set(options._UNSET) | {
        "cluster_id", "cluster_secret", "cluster_pub_fingerprint", "pillar.cache_driver",
    }  # fmt: skip
    known = {*salt.config.VALID_OPTS, *salt.config.DEFAULT_MASTER_OPTS}
    assert {*access.RULES, *options.RULES} - known <= unlisted | newer


def test_what_counts_where_nothing_is_set_is_salts_default_if_it_has_one() -> None:
    unset = {path: value for rule in options.RULES.values() for path, value in rule.unset.items()}
    assert unset.keys() == options._UNSET.keys()
    for option, value in unset.items():
        here = salt.config.DEFAULT_MASTER_OPTS.get(option, value)
        assert (list(here) if isinstance(value, list) else here) == value, option


@pytest.mark.parametrize("option", ["git_pillar_ref_types", "gitfs_depth", "gitfs_proxy"])
def test_an_option_that_an_older_salt_does_not_know_is_no_difference(option: str) -> None:
    older = {**salt.config.DEFAULT_MASTER_OPTS}
    del older[option]
    parts = {
        name: options.take(Mine(opts, mapping.parse({**opts, "id": name}), b"n" * 32))
        for name, opts in {"m1": older, "m2": salt.config.DEFAULT_MASTER_OPTS}.items()
    }
    assert option not in parts["m1"].leaves
    assert options.compare(parts) == []


@pytest.mark.parametrize(
    ("option", "differs"), [("file_ignore_glob", False), ("gitfs_saltenv_whitelist", False),
                            ("env_order", True)],
)  # fmt: skip
def test_the_order_counts_where_salt_reads_it(option: str, differs: bool) -> None:
    opts = {**salt.config.DEFAULT_MASTER_OPTS, option: ["b", "a"]}
    mine = options.take(Mine(opts, mapping.parse({**opts, "id": "m"}), b"n" * 32))
    for told in (mine.leaves[option], ["a", "b"], ["b", "a"]):
        other = dataclasses.replace(mine, leaves={**mine.leaves, option: told})
        found = options.compare({"m1": mine, "m2": other})
        assert bool(found) is (differs and told == ["a", "b"])
    other = dataclasses.replace(mine, leaves={**mine.leaves, option: ["a"]})
    assert options.compare({"m1": mine, "m2": other})


@pytest.mark.parametrize(
    ("option", "alike"),
    [("event_return", True), ("event_return_whitelist", True), ("gitfs_saltenv_blacklist", True),
     ("fileserver_backend", False), ("renderer_whitelist", False)],
)  # fmt: skip
def test_a_text_is_a_list_of_one_where_salt_takes_it_so(option: str, alike: bool) -> None:
    """Another release of this extension tells both as they are in the files, too."""
    one, other = ({**salt.config.DEFAULT_MASTER_OPTS, option: each} for each in ("a", ["a"]))
    parts = {
        "m1": options.take(Mine(one, mapping.parse({**one, "id": "m1"}), b"n" * 32)),
        "m2": options.take(Mine(other, mapping.parse({**other, "id": "m2"}), b"n" * 32)),
    }
    assert (parts["m1"].leaves[option], parts["m2"].leaves[option]) == ("a", ["a"])
    assert bool(options.compare(parts)) is not alike
    split = dataclasses.replace(parts["m1"], leaves={**parts["m1"].leaves, option: "a,b"})
    assert options.compare({"m1": split, "m2": parts["m2"]})


@pytest.mark.parametrize("option", ["event_return", "event_return_whitelist"])
def test_an_empty_list_is_an_empty_text_where_salt_takes_both(option: str) -> None:
    texts, lists = (taken(option, each) for each in ("", []))
    assert options.compare({"m1": texts, "m2": lists}) == []
    assert options.compare({"m1": texts, "m2": taken(option, ["a"])})


def test_the_name_of_the_signature_file_is_each_masters_own() -> None:
    """By default 3008 calls it by the master's id, and 3007 by one name; minions never see it."""
    names = (taken("master_pubkey_signature", each) for each in (None, "master_pubkey_signature"))
    assert options.compare(dict(zip(("m1", "m2"), names, strict=True))) == []


def taken(option: str, value: object) -> Facts:
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "id": "m", option: value}
    return options.take(Mine(opts, mapping.parse(opts), b"n" * 32))


def test_the_documentation_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert document.updated(page) == page, (
        f"python -m saltext_ha.consistency.document {PAGE.relative_to(PAGE.parents[1])}"
    )
    assert "`hash_type`" in page
