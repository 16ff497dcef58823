"""Rules on how a minion knows its masters, and on its event bus."""

from __future__ import annotations

from saltext_ha.lint.cited import FINGER, IPC_PORTS, SIGNED_UNVERIFIED, CitedLine
from saltext_ha.lint.model import MINION, Hit, Hits, HostFacts, RuleBook

BOOK = RuleBook(MINION)

# Length of a fingerprint in hexadecimal digits.
DIGITS = {"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128}
CACHED_KEY = "minion_master.pub"
PORTS = ("tcp_pub_port", "tcp_pull_port")


def sign_key(facts: HostFacts) -> str:
    """The file name of the key that vouches for the masters' keys."""
    return f"{facts.get('master_sign_key_name', 'master_sign')}.pub"


@BOOK.error(
    "HA301",
    "verify_master_pubkey_sign without the masters' master_sign.pub",
    CitedLine(
        "salt/crypt.py:1696 AsyncAuth.verify_pubkey_sig",
        '"Verification public key %s does not exist. You need to "',
    ),
    "tests/integration/test_lint_traps.py",
    why="The minion has nothing to check the signature with, and takes no master at all.",
    fix="copy master_sign.pub from a master's pki_dir into the minion's pki_dir",
)
def no_sign_key(facts: HostFacts) -> Hits:
    name = sign_key(facts)
    if facts.get("verify_master_pubkey_sign") and facts.files.get(name) is False:
        yield Hit("verify_master_pubkey_sign", f"{facts.get('pki_dir')}/{name} is not there")


@BOOK.error(
    "HA302",
    "always_verify_signature without verify_master_pubkey_sign",
    CitedLine(
        "salt/crypt.py:1863 AsyncAuth.verify_master", 'if self.opts["always_verify_signature"]:'
    ),
    SIGNED_UNVERIFIED,
    why="With masters that do not sign, the minion fails on the signature that is not there as "
    "soon as it knows a master's key; masters that sign it refuses.",
    fix="where masters sign, set verify_master_pubkey_sign: True, too; else take "
    "always_verify_signature out",
)
def always_verify(facts: HostFacts) -> Hits:
    if facts.get("always_verify_signature") and not facts.get("verify_master_pubkey_sign"):
        yield Hit("always_verify_signature", "True")


@BOOK.error(
    "HA303",
    "master_finger of another hash_type",
    FINGER,
    why="The minion compares it with the master key's fingerprint by its own hash_type, and ends "
    "when they differ.",
    fix="take hash_type out (ha.multi_master writes a fingerprint of SHA-256); or write it by the "
    "minion's hash_type: on a minion that is connected, salt-call --local key.finger_master",
)
def finger_of_other_type(facts: HostFacts) -> Hits:
    if _wrong_length(facts):
        kind = facts.get("hash_type")
        yield Hit("master_finger", f"it has {_digits(facts)} digits, {kind} has {DIGITS[kind]}")


def _digits(facts: HostFacts) -> int:
    return len(str(facts.get("master_finger", "")).replace(":", ""))


def _wrong_length(facts: HostFacts) -> bool:
    wanted = DIGITS.get(str(facts.get("hash_type")))
    return bool(facts.get("master_finger")) and wanted is not None and _digits(facts) != wanted


@BOOK.error(
    "HA304",
    "master_finger is not that of the master's key",
    FINGER,
    "tests/integration/test_lint_traps.py",
    why="The minion has the key of its master cached, and it has another fingerprint: at the next "
    "authentication it ends. It pins one key, so all masters must have the same. (salt-key -f of "
    "3008 prints another fingerprint of the same key.)",
    fix="write what  salt-call --local key.finger_master  prints on a minion that is connected",
)
def other_finger(facts: HostFacts) -> Hits:
    finger = facts.get("master_finger")
    if finger and facts.fingerprint and not _wrong_length(facts) and finger != facts.fingerprint:
        yield Hit("master_finger", f"{CACHED_KEY} has {facts.fingerprint}")


@BOOK.warning(
    "HA305",
    "master_finger beside verify_master_pubkey_sign",
    FINGER,
    why="The signature is for masters with keys of their own; master_finger lets only those with "
    "that one key be.",
    fix="take master_finger out: the signature says more",
)
def finger_and_signature(facts: HostFacts) -> Hits:
    if (
        facts.get("master_finger")
        and facts.get("verify_master_pubkey_sign")
        and len(facts.masters) > 1
    ):
        yield Hit("master_finger", "with verify_master_pubkey_sign")


@BOOK.info(
    "HA306",
    "verify_master_pubkey_sign with several masters at once",
    CitedLine(
        "salt/crypt.py:1726 AsyncAuth.verify_signing_master",
        'm_pub_fn = os.path.join(self.opts["pki_dir"], self.mpub)',
    ),
    "saltstack/salt issue 62318",
    why="All masters share the minion's one cached master key, and each that is verified "
    "overwrites it: with different keys the minion rejects what the others sign.",
    fix="see that all masters have the same master.pem (salt-run ha.check_consistency), or use "
    "master_type: failover",
)
def signature_hot(facts: HostFacts) -> Hits:
    if facts.hot and facts.get("verify_master_pubkey_sign"):
        yield Hit("verify_master_pubkey_sign", "True")


@BOOK.error(
    "HA307",
    "open_mode on a minion",
    CitedLine("salt/crypt.py:1836 AsyncAuth.verify_master", 'not self.opts["open_mode"]'),
    why="The minion takes whatever master key it is shown, at any time: any host that answers at a "
    "master's address commands it.",
    fix="take open_mode out; after a change of the master key remove minion_master.pub instead",
)
def open_minion(facts: HostFacts) -> Hits:
    if facts.get("open_mode") is True:
        yield Hit("open_mode", "True")


@BOOK.warning(
    "HA308",
    "the masters' master_sign.pub, and no verify_master_pubkey_sign",
    SIGNED_UNVERIFIED,
    "tests/integration/test_lint_traps.py",
    why="A minion that does not verify refuses a master that signs. Turning it on takes masters "
    "and minions together.",
    fix="where masters sign, set verify_master_pubkey_sign: True; else remove the file",
)
def half_way(facts: HostFacts) -> Hits:
    name = sign_key(facts)
    if facts.files.get(name) and not facts.get("verify_master_pubkey_sign"):
        detail = f"{facts.get('pki_dir')}/{name} is there"
        yield Hit("verify_master_pubkey_sign", detail, beside="master")


@BOOK.error(
    "HA401",
    "lists of tcp_pub_port or tcp_pull_port",
    *IPC_PORTS,
    "tests/integration/test_lint.py",
    why="Salt's tutorial on several masters recommends them; Salt itself takes one number, and the "
    "minion fails with a TypeError. All its masters share one event bus.",
    fix="write one number, or leave the option out",
)
def port_lists(facts: HostFacts) -> Hits:
    if facts.get("ipc_mode") == "tcp":
        for option in PORTS:
            if isinstance(facts.get(option), list):
                yield Hit(option, str(facts.get(option)))


@BOOK.error(
    "HA402",
    "tcp_pub_port and tcp_pull_port are the same",
    *IPC_PORTS,
    why="With ipc_mode: tcp the minion listens on both; the second cannot be had.",
    fix="give them different numbers",
)
def port_overlap(facts: HostFacts) -> Hits:
    one, other = (facts.get(option) for option in PORTS)
    if facts.get("ipc_mode") == "tcp" and one == other and not isinstance(one, list):
        yield Hit("tcp_pull_port", str(other))
