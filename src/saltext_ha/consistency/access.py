"""Who may do what, and which minion gets in without being asked?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import FILE, EqualityRule, How
from saltext_ha.consistency.section import Mine, of_rules
from saltext_ha.consistency.values import as_set, digest, leaves_of

# Options that each salt-api may have of its own: where it listens, its load, where it logs.
OWN_API = (
    "host", "address", "port", "ssl_crt", "ssl_key", "ssl_chain", "app", "static", "favicon",
    "thread_pool", "queue_size", "socket_queue_size", "num_processes", "backlog", "log_access_file",
    "log_error_file", "collect_stats", "max_request_body_size",
)  # fmt: skip

# What salt-api takes for an option that is not set: Salt merges no defaults into these mappings.
_CHERRYPY: Mapping[str, Any] = {
    "debug": False,
    "disable_ssl": False,
    "webhook_disable_auth": False,
    "stats_disable_auth": False,
    "enable_sessions": True,
    "expire_responses": True,
    "webhook_url": "/hook",
    "app_path": "/app",
    "static_path": "/static",
    "root_prefix": "/",
}
_TORNADO: Mapping[str, Any] = {
    "debug": False,
    "disable_ssl": False,
    "websockets": False,
    "webhook_disable_auth": False,
}


def _salt_api(option: str, defaults: Mapping[str, Any]) -> EqualityRule:
    unset = {f"{option}:{key}": value for key, value in defaults.items()}
    return EqualityRule(option, without=OWN_API, unset=unset)


EXPANDED = "auth.enable_expanded_auth_matching"
CONFIG: tuple[EqualityRule, ...] = (
    EqualityRule("external_auth", How.SET),
    EqualityRule("publisher_acl", How.SET),
    EqualityRule("publisher_acl_blacklist", How.SET),
    EqualityRule("peer", How.SET),
    EqualityRule("peer_run", How.SET),
    EqualityRule("nodegroups"),
    EqualityRule("sudo_acl"),
    EqualityRule("client_acl_verify"),
    EqualityRule("permissive_acl"),
    EqualityRule("eauth_acl_module"),
    EqualityRule(EXPANDED, unset={EXPANDED: False}),
    # Tokens: their lifetime, their content, their storage.
    EqualityRule("token_expire"),
    EqualityRule("token_expire_user_override", How.SET),
    EqualityRule("keep_acl_in_token"),
    EqualityRule("eauth_tokens"),
    EqualityRule("eauth_tokens.cache_driver"),
    # salt-api.
    EqualityRule("netapi_enable_clients", How.SET),
    EqualityRule("netapi_allow_raw_shell"),
    EqualityRule("api_acl", How.SET),
    _salt_api("rest_cherrypy", _CHERRYPY),
    _salt_api("rest_tornado", _TORNADO),
    # Minions: which are accepted, and what revoking does.
    EqualityRule("auto_accept"),
    EqualityRule("open_mode"),
    EqualityRule("autosign_timeout"),
    EqualityRule("max_minions"),
    EqualityRule("allow_minion_key_revoke"),
    EqualityRule("rotate_aes_key"),
)
FILES: tuple[EqualityRule, ...] = (
    EqualityRule("autosign_file", fix=FILE),
    EqualityRule("autoreject_file", fix=FILE),
    # A grain that signs a key is as good as a password: only whether it differs is shown.
    EqualityRule("autosign_grains_dir", How.SET, fix=FILE, secret=True),
)
RULES: Mapping[str, EqualityRule] = {rule.option: rule for rule in (*CONFIG, *FILES)}


def take(mine: Mine) -> Facts:
    """The access options of the running master, and the content of the files that they name."""
    leaves: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for rule in CONFIG:
        leaves.update(leaves_of(rule, mine.opts, mine.nonce))
    for rule in FILES:
        path = mine.opts.get(rule.option)
        try:
            if path:
                leaves.update(_of_files(rule, Path(path), mine))
        except OSError as exc:
            where = f"{exc.filename}: " if exc.filename else ""
            unknown[rule.option] = f"{where}{exc.strerror or type(exc).__name__}"
    return Facts(leaves, unknown, tuple(RULES))


def _of_files(rule: EqualityRule, path: Path, mine: Mine) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, file in _named(rule.option, path):
        lines = _lines(file, mine.opts)
        if lines is None:
            leaves[name] = f"{file} ignored by Salt: others may write it"
        elif rule.secret:
            leaves[name] = digest(as_set(lines), mine.nonce)
        else:
            leaves.update((f"{name}:{line}", "listed") for line in lines)
    return leaves


def _named(option: str, path: Path) -> list[tuple[str, Path]]:
    """The files that *option* leads to, with their names in an answer."""
    if option != "autosign_grains_dir":
        return [(option, path)] if path.exists() else []
    files = sorted(path.iterdir()) if path.is_dir() else []
    return [(f"{option}:{file.name}", file) for file in files if file.is_file()]


def _lines(path: Path, opts: Mapping[str, Any]) -> list[str] | None:
    """The lines as Salt matches them; None if Salt ignores the file because of its permissions."""
    from salt.daemons.masterapi import AutoKey

    if not AutoKey(opts).check_permissions(str(path)):
        return None
    stripped = (line.strip() for line in path.read_text(errors="replace").splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


SECTION = of_rules(
    "access", "Who may do what, and which minion gets in without being asked?", take, RULES
)
