"""All rules, by code."""

from saltext_ha.lint.model import Rule
from saltext_ha.lint.rules import (
    entries,
    failover,
    files,
    group,
    master,
    native_cluster,
    pruning,
    salt_api,
    storage,
    trees,
    trust,
)

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (
        files,
        entries,
        failover,
        trust,
        master,
        pruning,
        storage,
        salt_api,
        native_cluster,
        group,
        trees,
    )
    for rule in module.BOOK.rules
)
CODES = frozenset(rule.code for rule in RULES)
