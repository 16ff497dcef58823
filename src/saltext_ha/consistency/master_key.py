"""Do minions know all masters by one key, or by one signature?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.common import cluster, master_key
from saltext_ha.consistency.comparison import Difference, by_rules
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import NOTE, EqualityRule
from saltext_ha.consistency.section import Mine, of_rules
from saltext_ha.consistency.values import ABSENT, leaves_of

KEY = (
    "salt-ha invite share_master_key=True on the master whose key the minions know, salt-ha "
    "join --token-file - force=True with that token on {masters}, restart salt-master there"
)
PAIR = "on {masters}: put master.pem and master.pub of one pair in place, restart salt-master"
SIGN_PAIR = "on {masters}: put master_sign.pem and .pub of one pair in place, restart salt-master"
SIGN = (
    "salt-ha invite share_signing_key=True on the master whose pair the minions know, salt-ha join "
    "--token-file - force=True with that token on {masters}, restart salt-master there"
)
# The meaning of different master keys, by whether they are signed.
SIGNED = (
    "fine while all minions verify the signing key (failover, verify_master_pubkey_sign); "
    "hot-hot minions need one pair everywhere"
)
SIGNED_BY_SOME = (
    "failover minions with verify_master_pubkey_sign refuse the masters that do not sign: "
    "master_sign_pubkey: True on {masters}, restart salt-master there; hot-hot minions need one "
    "pair everywhere"
)

CONFIG = (
    EqualityRule("master_sign_pubkey"),
    EqualityRule("master_sign_key_name"),
    EqualityRule("master_use_pubkey_signature"),
)
RULES: Mapping[str, EqualityRule] = {
    rule.option: rule
    for rule in (
        EqualityRule("fingerprint", fix=KEY),
        EqualityRule("pair", fix=PAIR, expect=master_key.FITS),
        EqualityRule("sign_fingerprint", fix=SIGN),
        # Present only if the halves do not fit: not every master has such a pair.
        EqualityRule("sign_pair", fix=SIGN_PAIR, expect=ABSENT),
        *CONFIG,
    )
}
IN_CLUSTER = "in_cluster"  # not compared: it decides the fix of the others
OF_CLUSTER: Mapping[str, EqualityRule] = {
    **RULES,
    "fingerprint": EqualityRule("fingerprint", fix=cluster.ONE_KEY),
    "pair": EqualityRule("pair", fix=cluster.ONE_KEY, expect=master_key.FITS),
}


def take(mine: Mine) -> Facts:
    """Fingerprints, whether the halves fit, and the options around signing."""
    leaves: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for option, value in master_key.describe(mine.opts).items():
        if isinstance(value, dict):
            unknown[option] = str(value["unknown"])
        elif value and (option, value) != ("sign_pair", master_key.FITS):
            leaves[option] = value
    for rule in CONFIG:
        leaves.update(leaves_of(rule, mine.opts, mine.nonce))
    if cluster.of(mine.opts):
        leaves[IN_CLUSTER] = True
    return Facts(leaves, unknown, tuple(RULES))


def compare(parts: Mapping[str, Facts]) -> list[Difference]:
    """Leaf by leaf; the meaning of different master keys depends on which masters sign."""
    clustered = any(facts.leaves.get(IN_CLUSTER) for facts in parts.values())
    found = by_rules(OF_CLUSTER if clustered else RULES, parts)
    signers = {name: facts.leaves.get("sign_fingerprint") for name, facts in parts.items()}
    signing = {name for name, key in signers.items() if key}
    for difference in found:
        if difference["path"] != "fingerprint":
            continue
        if len(set(signers.values())) == 1 and len(signing) == len(parts):
            difference.update(severity=NOTE, fix=SIGNED)
        elif signing and len(signing) < len(parts):
            silent = ", ".join(sorted(parts.keys() - signing))
            difference["fix"] += f"; {SIGNED_BY_SOME.format(masters=silent)}"
    return found


SECTION = of_rules(
    "master_key",
    "Do minions know all masters by one key, or by one signature?",
    take,
    RULES,
    compare,
)
