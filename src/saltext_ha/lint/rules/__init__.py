"""All rules, by code."""

from saltext_ha.lint.model import Rule
from saltext_ha.lint.rules import (
    entries,
    failover,
    files,
    group,
    master,
    native_cluster,
    trees,
    trust,
)

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (files, entries, failover, trust, master, native_cluster, group, trees)
    for rule in module.BOOK.rules
)
CODES = frozenset(rule.code for rule in RULES)
