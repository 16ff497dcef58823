"""The parts of a section, and its input."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import ConfigError
from saltext_ha.common.files import is_configured
from saltext_ha.config.mapping import HaConfig
from saltext_ha.consistency.comparison import Difference, by_rules, unknown_of
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import EqualityRule

#: The engine reads the files again when salt-master has long become the user of its option user.
READABLE = "make it readable for the user of salt-master"


@dataclass(frozen=True)
class Mine:
    """
    One master, as its sections see it.

    :param opts: the running master's configuration, as engines have it in ``__opts__``.
    :param nonce: random bytes, the same for all masters of one check, never used twice.
    :param master_key: the fingerprint of the key with which it runs; empty: unknown.
    """

    opts: Mapping[str, Any]
    config: HaConfig
    nonce: bytes
    master_key: str = ""

    @functools.cached_property
    def files(self) -> Mapping[str, Any] | ConfigError:
        """The present content of the configuration files, or why they cannot be read."""
        try:
            return read_files(str(self.opts.get("conf_file") or ""))
        except ConfigError as exc:
            return exc


Parts = Mapping[str, Facts]
"""Master → its facts."""


@dataclass(frozen=True)
class Section:
    """
    One question about the masters of a group.

    :param question: what it answers, for the documentation.
    :param take: the facts of this master; may block, and runs in a thread.
    :param compare: the differences between the facts of several masters. Pure.
    :param unknown: master → what is not known. Pure.
    :param size: how many things are compared, if that is shown.
    """

    name: str
    question: str
    take: Callable[[Mine], Facts]
    compare: Callable[[Parts], list[Difference]]
    unknown: Callable[[Parts], dict[str, str]]
    size: Callable[[Parts], int] | None = None


def of_rules(
    name: str,
    question: str,
    take: Callable[[Mine], Facts],
    rules: Mapping[str, EqualityRule],
    compare: Callable[[Parts], list[Difference]] | None = None,
    size: Callable[[Parts], int] | None = None,
) -> Section:
    """A section of options, each compared by its rule; *compare* where that is not all."""
    compare = compare or functools.partial(by_rules, rules)
    return Section(name, question, take, compare, lambda p: unknown_of(rules.values(), p), size)


def read_files(conf_file: str) -> Mapping[str, Any]:
    """
    The options with which Salt would start now: *conf_file* with its includes and defaults.

    :raises ConfigError: names the file, if nothing is there, or something that cannot be read.
    """
    import salt.config

    try:
        if not is_configured(conf_file, salt.config.DEFAULT_MASTER_OPTS["default_include"]):
            raise ConfigError(f"{conf_file or 'conf_file'}: no such file; nothing to compare with")
        # What Salt may not read, a main file or a folder, is to it as if it were not there.
        with contextlib.suppress(FileNotFoundError):
            Path(conf_file).open("rb").close()
        opts: Mapping[str, Any] = salt.config.master_config(conf_file, exit_on_config_errors=True)
        included = Path(conf_file).parent / str(opts["default_include"])
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            list(included.parent.iterdir())
    except ConfigError:
        raise
    except OSError as exc:
        why = (exc.strerror or type(exc).__name__).lower()
        raise ConfigError(f"{exc.filename or conf_file}: {why}; {READABLE}") from exc
    # Salt's loader raises SystemExit for broken YAML, which must not end the engine.
    except (Exception, SystemExit) as exc:
        raise ConfigError(
            f"{conf_file}: Salt cannot load it, or a file that it includes "
            f"({type(exc).__name__}); salt-run ha.lint names the file and the line"
        ) from exc
    return opts
