"""
What must be the same on all masters of a group, as data.

One :class:`Rule` an option: where its value comes from, how two values are compared, how much a
difference weighs, and the one line that says what mends it. Adding a check is adding a line here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Source(Enum):
    """Where :mod:`~saltext_ha.consistency.snapshot` finds the value of a rule."""

    CONFIG = "config"  # the option itself; also compared between the files and the running master
    LINES = "lines"  # the lines of the file that the option names
    GRAINS = "grains"  # the files of the folder that the option names: one file a grain
    COMPUTED = "computed"  # no option: the snapshot works it out (fingerprints, versions)


class How(Enum):
    """How two leaves of an option are compared."""

    EXACT = "exact"
    SET = "set"  # Salt asks "does any entry match?": order and repetition mean nothing


DRIFT = "drift"  # counts: status "differ", exit code 1
NOTE = "note"  # shown, changes neither status nor exit code

EDIT = "make {option} the same in the master configuration of {masters}, restart salt-master there"
FILE = "make the file of {option} the same on {masters} (no restart needed)"
KEY = (
    "salt-run ha.invite share_master_key=True on the master whose key the minions know, "
    "ha.join with that token on {masters}"
)
PAIR = "on {masters}: put master.pem and master.pub of one pair in place, restart salt-master"
SIGN = (
    "salt-run ha.invite share_signing_key=True on the master whose pair the minions know, ha.join "
    "with that token and force=True on {masters}, restart salt-master there"
)
INSTALL = "install the same version on {masters}"


@dataclass(frozen=True)
class Rule:
    """
    One thing that must be the same everywhere.

    ``fix`` may use ``{option}`` and ``{masters}`` (those in the minority). ``default`` stands in
    where a configuration does not name the option. ``expect`` is set where equality is not
    enough: every master must have that very value. ``secret`` hides all of the option's values.
    """

    section: str
    option: str
    source: Source = Source.CONFIG
    how: How = How.EXACT
    fix: str = EDIT
    severity: str = DRIFT
    default: Any = None
    expect: Any = None
    secret: bool = False


RULES: tuple[Rule, ...] = (
    Rule("master_key", "fingerprint", Source.COMPUTED, fix=KEY),
    Rule("master_key", "pair", Source.COMPUTED, fix=PAIR, expect="fits"),
    Rule("master_key", "sign_fingerprint", Source.COMPUTED, fix=SIGN),
    Rule("master_key", "master_sign_pubkey", default=False),
    # Who may do what.
    Rule("access", "external_auth", how=How.SET),
    Rule("access", "publisher_acl", how=How.SET),
    Rule("access", "publisher_acl_blacklist", how=How.SET),
    Rule("access", "peer", how=How.SET),
    Rule("access", "peer_run", how=How.SET),
    Rule("access", "netapi_enable_clients", how=How.SET),
    Rule("access", "nodegroups"),
    Rule("access", "sudo_acl", default=False),
    Rule("access", "client_acl_verify", default=True),
    Rule("access", "permissive_acl", default=False),
    Rule("access", "keep_acl_in_token", default=False),
    Rule("access", "eauth_acl_module", default=""),
    Rule("access", "auth.enable_expanded_auth_matching", default=False),
    Rule("access", "token_expire"),
    Rule("access", "token_expire_user_override", how=How.SET, default=False),
    # Who gets in without being asked, and what revoking does.
    Rule("access", "auto_accept", default=False),
    Rule("access", "open_mode", default=False),
    Rule("access", "rotate_aes_key", default=True),
    Rule("access", "autosign_file", Source.LINES, fix=FILE),
    Rule("access", "autoreject_file", Source.LINES, fix=FILE),
    # A grain that signs a key is as good as a password: only whether it differs.
    Rule("access", "autosign_grains_dir", Source.GRAINS, How.SET, fix=FILE, secret=True),
    Rule("versions", "salt", Source.COMPUTED, fix=INSTALL),
    Rule("versions", "saltext-ha", Source.COMPUTED, fix=INSTALL),
    Rule("versions", "python", Source.COMPUTED, fix=INSTALL, severity=NOTE),
    Rule("ports", "ret_port"),
    Rule("ports", "publish_port"),
    Rule("ports", "transport"),
    Rule("roots", "fileserver_backend"),
    Rule("roots", "file_roots"),
    Rule("roots", "pillar_roots"),
    # Remotes and external pillars carry credentials in many shapes: only whether they differ.
    Rule("roots", "gitfs_remotes", secret=True),
    Rule("roots", "ext_pillar", secret=True),
)

#: Options whose *path* a running master may have read before the file was edited.
PATH_OPTIONS = ("autosign_file", "autoreject_file", "autosign_grains_dir")

#: Seconds that the clocks may be apart. More than a whole check takes, since the snapshots of one
#: check are not taken at one instant; far less than what breaks a token or a certificate.
CLOCK_TOLERANCE = 30.0

# "mysecret", "secret_id", "tokenValue", "bindpw", "ssh_private_key"; not a user called "secretary".
_SECRET_KEY = re.compile(
    r"(?i:passw|passphrase)"
    r"|(?i:secret|token|credential)s?(?![a-z])"
    r"|(?i:(?<![a-z])(?:api|priv|private|secret|shared|signing|ssh)?_?keys?$)"
    r"|(?i:pwd?$|(?<![a-z])pass$)"
)
_SECRET_VALUE = re.compile(r"://[^/@\s]*:[^/@\s]+@|-----BEGIN [A-Z ]*PRIVATE KEY")


def is_secret_key(name: str) -> bool:
    """Whether a mapping key called *name* holds something that must not be shown."""
    return _SECRET_KEY.search(name) is not None


def is_secret_value(value: str) -> bool:
    """Whether *value* is recognizably a secret: a URL with a password in it, a private key."""
    return _SECRET_VALUE.search(value) is not None
