"""Do all masters have the same settings, where it matters? The table is data: :data:`TABLE`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from saltext_ha.consistency import git, roots
from saltext_ha.consistency.comparison import Difference, by_rules, option_of
from saltext_ha.consistency.facts import Facts
from saltext_ha.consistency.rules import DRIFT, EDIT, NOTE, EqualityRule, How
from saltext_ha.consistency.section import Mine, of_rules
from saltext_ha.consistency.values import leaves_of


class Level(Enum):
    """How much it matters that an option is the same everywhere."""

    MUST = "must be the same"
    SHOULD = "should be the same"
    MAY = "may differ"


@dataclass(frozen=True)
class Topic:
    """Options that belong together; in *secret* ones only whether they differ is shown."""

    name: str
    level: Level
    why: str
    options: tuple[str, ...]
    secret: tuple[str, ...] = ()
    fix: str = EDIT


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TABLE: tuple[Topic, ...] = (
    Topic(
        "transport",
        Level.MUST,
        "a minion has one setting for all its masters",
        _words("ret_port publish_port transport ssl zmq_filtering cluster_pool_port"),
    ),
    Topic(
        "encryption and signing",
        Level.MUST,
        "a minion that talks to one master must be able to talk to the next",
        _words(
            "sign_pub_messages require_minion_sign_messages drop_messages_signature_fail "
            "publish_signing_algorithm encryption_algorithm signing_algorithm auth_mode "
            "minimum_auth_version fips_mode disable_aes_with_tls keysize publish_session "
            "request_server_ttl request_server_aes_session cluster_encryption_algorithm"
        ),
    ),
    Topic(
        "hashes",
        Level.MUST,
        "the same file has another hash, and is fetched again, on each change of the master",
        _words("hash_type"),
    ),
    Topic(
        "fileserver",
        Level.MUST,
        "another master serves other states",
        _words(
            "fileserver_backend file_ignore_regex file_ignore_glob fileserver_followsymlinks "
            "fileserver_ignoresymlinks env_order default_top state_top state_top_saltenv "
            "top_file_merging_strategy saltenv lock_saltenv gitfs_base gitfs_root "
            "gitfs_mountpoint gitfs_saltenv gitfs_saltenv_blacklist gitfs_saltenv_whitelist "
            "gitfs_ref_types gitfs_disable_saltenv_mapping gitfs_refspecs gitfs_fallback "
            "hgfs_remotes hgfs_base hgfs_root hgfs_mountpoint hgfs_branch_method "
            "hgfs_saltenv_blacklist hgfs_saltenv_whitelist svnfs_remotes svnfs_root "
            "svnfs_mountpoint svnfs_trunk svnfs_branches svnfs_tags svnfs_saltenv_blacklist "
            "svnfs_saltenv_whitelist minionfs_env minionfs_mountpoint minionfs_blacklist "
            "minionfs_whitelist file_recv file_recv_max_size master_tops master_tops_first"
        ),
        secret=_words("hgfs_remotes svnfs_remotes master_tops"),
    ),
    Topic(
        "pillar",
        Level.MUST,
        "another master renders another pillar",
        _words(
            "ext_pillar ext_pillar_first on_demand_ext_pillar pillarenv "
            "pillar_source_merging_strategy pillar_merge_lists pillar_includes_override_sls "
            "pillar_version pillar_opts pillar_safe_render_error decrypt_pillar "
            "decrypt_pillar_default decrypt_pillar_delimiter decrypt_pillar_renderers "
            "gpg_decrypt_must_succeed git_pillar_base git_pillar_branch git_pillar_root "
            "git_pillar_env git_pillar_includes git_pillar_disable_saltenv_mapping "
            "git_pillar_ref_types git_pillar_refspecs git_pillar_fallback pass_to_ext_pillars"
        ),
        secret=_words("ext_pillar"),
    ),
    Topic(
        "rendering",
        Level.MUST,
        "the same states mean something else",
        _words(
            "renderer renderer_whitelist renderer_blacklist jinja_env jinja_sls_env "
            "jinja_lstrip_blocks jinja_trim_blocks state_auto_order failhard state_aggregate "
            "features extmod_whitelist extmod_blacklist"
        ),
    ),
    Topic(
        "jobs and events",
        Level.MUST,
        "what ran before a failover cannot be looked up after it",
        _words(
            "job_cache master_job_cache ext_job_cache event_return event_return_whitelist "
            "event_return_blacklist cache minion_data_cache enforce_mine_cache "
            "pillar.cache_driver"
        ),
    ),
    Topic(
        "minion keys",
        Level.MUST,
        "a decision about a key has to mean the same on each master",
        _words("keys.cache_driver preserve_minion_cache ping_on_rotate"),
    ),
    Topic(
        "Salt's own cluster",
        Level.MUST,
        "members with other settings are in another cluster",
        _words("cluster_id cluster_isolated_filesystem cluster_secret cluster_pub_fingerprint"),
        secret=_words("cluster_secret"),
    ),
    Topic(
        "locks",
        Level.SHOULD,
        "with a shared cachedir, one master without the lock removes the locks of the others",
        _words("gitfs_global_lock git_pillar_global_lock"),
    ),
    Topic(
        "how long things are kept",
        Level.SHOULD,
        "a job can be looked up on one master and not on the next",
        _words(
            "keep_jobs keep_jobs_seconds archive_jobs job_cache_store_endtime pillar_cache "
            "pillar_cache_ttl pillar_cache_backend gpg_cache gpg_cache_ttl gpg_cache_backend"
        ),
    ),
    Topic(
        "timeouts and intervals",
        Level.SHOULD,
        "callers and minions see another pace after a failover",
        _words(
            "timeout gather_job_timeout publish_timeout loop_interval maintenance_interval "
            "fileserver_interval fileserver_list_cache_time gitfs_update_interval "
            "git_pillar_update_interval hgfs_update_interval svnfs_update_interval "
            "s3fs_update_interval minionfs_update_interval roots_update_interval "
            "http_connect_timeout http_request_timeout tcp_keepalive tcp_keepalive_idle "
            "tcp_keepalive_cnt tcp_keepalive_intvl ssh_timeout ssh_scan_timeout"
        ),
    ),
    Topic(
        "what masters do by themselves",
        Level.SHOULD,
        "a reactor, schedule or engine that runs on one master only is gone with it; on several "
        "it runs several times",
        _words(
            "reactor schedule engines beacons thorium_top thorium_roots thoriumenv "
            "thorium_interval presence_events auth_events auth_events_pend_autosign_grains "
            "minion_data_cache_events state_events fileserver_events runner_returns"
        ),
        # Arguments of commands and URLs, in which anything may stand.
        secret=_words("schedule engines beacons"),
        fix=f"{EDIT}; what is to run on one of them only: docs/once.md",
    ),
    Topic(
        "git access",
        Level.SHOULD,
        "a repository that one master may read and the other may not is noticed at the next update",
        _words(
            "gitfs_ssl_verify gitfs_insecure_auth gitfs_user gitfs_password gitfs_passphrase "
            "gitfs_proxy gitfs_depth git_pillar_ssl_verify git_pillar_insecure_auth "
            "git_pillar_user git_pillar_password git_pillar_passphrase git_pillar_proxy "
            "git_pillar_depth winrepo_remotes winrepo_remotes_ng winrepo_branch winrepo_refspecs "
            "winrepo_ssl_verify winrepo_insecure_auth winrepo_fallback winrepo_user "
            "winrepo_password winrepo_passphrase winrepo_proxy winrepo_depth"
        ),
        secret=_words(
            "gitfs_password gitfs_passphrase gitfs_proxy git_pillar_password "
            "git_pillar_passphrase git_pillar_proxy winrepo_remotes winrepo_remotes_ng "
            "winrepo_password winrepo_passphrase winrepo_proxy"
        ),
    ),
    Topic(
        "salt-ssh and roster",
        Level.SHOULD,
        "the same command reaches other hosts",
        _words(
            "roster roster_file roster_defaults rosters ssh_list_nodegroups ssh_user ssh_port "
            "ssh_passwd ssh_sudo ssh_sudo_user ssh_use_home_key ssh_identities_only ssh_keepalive "
            "ssh_keepalive_interval ssh_keepalive_count_max ssh_scan_ports enable_ssh_minions "
            "detect_remote_minions remote_minions_port range_server django_auth_path "
            "django_auth_settings discovery ssh_minion_opts"
        ),
        secret=_words("ssh_passwd roster_defaults django_auth_settings ssh_minion_opts"),
    ),
    Topic(
        "limits",
        Level.SHOULD,
        "what one master takes, the next refuses",
        _words(
            "max_event_size http_max_body file_buffer_size salt_cp_chunk_size state_max_parallel "
            "max_open_files clean_dynamic_modules use_os_truststore"
        ),
    ),
    Topic(
        "pass and sdb",
        Level.SHOULD,
        "secrets are looked up elsewhere",
        _words("pass_variable_prefix pass_strict_fetch"),
    ),
    Topic(
        "identity and addresses",
        Level.MAY,
        "each master has its own",
        _words(
            "id append_domain master_id interface ipv6 user root_dir conf_file default_include "
            "include cluster_peers cluster_pki_dir cluster_key_pass key_pass signing_key_pass "
            "master_roots local order_masters source_address ha eauth_tokens.cluster_id"
        ),
    ),
    Topic(
        "folders of states, pillar and modules",
        Level.MAY,
        "what is in them counts: the section roots compares it",
        tuple(roots.FILES),
    ),
    Topic(
        "other paths",
        Level.MAY,
        "each master has its own; what is in them is not compared either, except keys in the "
        "sections keys and master_key",
        _words(
            "pki_dir master_pubkey_signature key_cache cachedir sock_dir pidfile token_dir "
            "token_file sqlite_queue_dir log_file key_logfile ssh_log_file syndic_log_file "
            "syndic_pidfile api_logfile api_pidfile winrepo_dir winrepo_dir_ng winrepo_cachefile "
            "ssh_config_file ssh_priv "
            "gitfs_privkey gitfs_pubkey git_pillar_privkey git_pillar_pubkey winrepo_privkey "
            "winrepo_pubkey pass_dir pass_gnupghome sshpass_path"
        ),
    ),
    Topic(
        "compared elsewhere",
        Level.MAY,
        "the section roots compares it by remote and commit",
        _words("gitfs_remotes"),
    ),
    Topic(
        "logging",
        Level.MAY,
        "tells, and decides nothing",
        _words(
            "log_level log_level_logfile log_fmt_console log_fmt_logfile log_fmt_jid "
            "log_fmt_minion_id log_datefmt log_datefmt_logfile log_datefmt_console "
            "log_granular_levels log_rotate_max_bytes log_rotate_backup_count log_forwarding "
            "metrics tracing master_stats master_stats_event_iter"
        ),
    ),
    Topic(
        "output and command line",
        Level.MAY,
        "for the people on that host",
        _words(
            "color color_theme output state_output state_output_diff state_output_profile "
            "state_output_pct state_verbose pillar_mask_output show_jid show_timeout cli_summary "
            "optimization_order test state_tabular output_file strip_colors"
        ),
    ),
    Topic(
        "size of the host",
        Level.MAY,
        "a larger master does more at a time",
        _words(
            "worker_threads worker_pools worker_pools_enabled pub_hwm zmq_backlog zmq_monitor "
            "salt_event_pub_hwm event_publisher_pub_hwm ipc_mode ipc_write_buffer sock_pool_size "
            "tcp_master_pub_port tcp_master_pull_port tcp_master_publish_pull tcp_master_workers "
            "con_cache memcache_debug memcache_expire_seconds memcache_full_cleanup "
            "memcache_max_items event_return_queue event_return_queue_max_seconds "
            "reactor_refresh_interval reactor_worker_hwm reactor_worker_threads event_match_type "
            "event_return_niceness event_publisher_niceness fileserver_update_niceness "
            "maintenance_niceness mworker_niceness mworker_queue_niceness pub_server_niceness "
            "reactor_niceness req_server_niceness master_async_mworker "
            "master_mworker_max_inflight publish_drain_timeout pub_server_write_queue_size "
            "cluster_mode cluster_max_log_size cluster_auto_replace_voters "
            "cluster_demote_cooldown cluster_max_voters cluster_min_voters "
            "cluster_voter_health_check_interval cluster_voter_timeout"
        ),
    ),
    Topic(
        "building and starting",
        Level.MAY,
        "of this host's installation",
        _words(
            "cython_enable enable_gpu_grains enable_fqdns_grains grains verify_env "
            "permissive_pki_access fileserver_verify_config gitfs_verify_config "
            "git_pillar_verify_config regen_thin min_extra_mods thin_extra_mods "
            "thin_exclude_saltexts thin_saltext_allowlist thin_saltext_blocklist serial "
            "unique_jid cache_sreqs dummy_pub search file_client max_minions_warning "
            "gitfs_provider git_pillar_provider winrepo_provider"
        ),
    ),
    Topic(
        "syndic",
        Level.MAY,
        "of the syndic beside this master",
        _words(
            "syndic_master syndic_master_port syndic_failover syndic_wait syndic_dir "
            "syndic_forward_all_events syndic_event_forward_timeout syndic_jid_forward_cache_hwm "
            "syndic_user syndic_finger ssh_priv_passwd azurefs_update_interval"
        ),
    ),
)

#: Options of ``ha:`` that each master has of its own; the others should be the same.
_OWN_HA = _words("name group address port listen_host state_dir peers secret_file mode status")
_HA = EqualityRule("ha", severity=NOTE, without=_OWN_HA, fix=EDIT.replace("{option}", "{path}"))

#: The same of a tree: only masters that deploy need a source, and each may have its own check.
_OWN_OF_TREES = re.compile(r"ha:trees:[^:]+:(source|check|check_timeout)")

#: Files that each master may have under a name of its own: whether they are set counts.
_OWN_FILES = ("ssl:certfile", "ssl:keyfile")

#: What Salt takes for an option that is not set, where not every supported release has a default in
#: its configuration.
_UNSET: Mapping[str, Any] = {
    "ext_pillar_first": False,
    "presence_events": False,
    "fileserver_events": False,
    "fileserver_list_cache_time": 20,
    "roster": "flat",
    "cluster_pool_port": 4520,
    "disable_aes_with_tls": False,
    "cluster_encryption_algorithm": "OAEP-SHA1",
    "cluster_isolated_filesystem": False,
    "git_pillar_disable_saltenv_mapping": False,
    "git_pillar_ref_types": ["branch", "tag", "sha"],
    "keys.cache_driver": "localfs_key",
    "auth_events_pend_autosign_grains": False,
    "gitfs_depth": 1,
    "git_pillar_depth": 1,
    "winrepo_depth": 1,
    "ssh_keepalive": True,
    "ssh_keepalive_interval": 60,
    "ssh_keepalive_count_max": 3,
    "state_max_parallel": 0,
    "use_os_truststore": False,
}

#: No options: what Salt adds to a running master's configuration, and its command line.
_NO_OPTIONS = frozenset(
    _words(
        "aes config_dir cluster_port extmods __cli hardcrash lock_role log_config master_uri "
        "saltversion slot fun jid pub_uri secrets uid sudo_user conf_dir "
        "daemon disable_keepalive saltfile versions_report"
    )
)

#: Options in which Salt takes a text for a list with this entry. A text in ``fileserver_backend``
#: is to Salt a list of letters.
_LISTED = _words(
    "event_return event_return_whitelist event_return_blacklist minionfs_whitelist "
    "minionfs_blacklist gitfs_saltenv_whitelist gitfs_saltenv_blacklist hgfs_saltenv_whitelist "
    "hgfs_saltenv_blacklist svnfs_saltenv_whitelist svnfs_saltenv_blacklist roster"
)

#: How the names of options end of whose entries Salt asks whether any matches.
_MATCHED = ("_whitelist", "_blacklist", "file_ignore_regex", "file_ignore_glob")


def _rules() -> dict[str, EqualityRule]:
    rules = {
        option: EqualityRule(
            option,
            How.SET if option.endswith(_MATCHED) else How.EXACT,
            fix=topic.fix,
            severity=DRIFT if topic.level is Level.MUST else NOTE,
            secret=option in topic.secret,
            unset={option: _UNSET[option]} if option in _UNSET else {},
            listed=option in _LISTED,
        )
        for topic in TABLE
        if topic.level is not Level.MAY
        for option in topic.options
    }
    return {**rules, "ha": _HA}


RULES: Mapping[str, EqualityRule] = _rules()
_IN_TABLE = {option for topic in TABLE for option in topic.options}


def compared(*configurations: Mapping[str, Any]) -> Iterator[EqualityRule]:
    """The rules of all options that this section compares, given these configurations."""
    yield from RULES.values()
    found = {option for opts in configurations for option in opts}
    for option in sorted(found):
        if _is_a_sites_own(option):
            yield _own_rule(option)


def _is_a_sites_own(option: str) -> bool:
    """Whether *option* is none of Salt's: a setting of a returner, of a pillar, of states."""
    from saltext_ha.consistency import access, master_key

    return not (
        option in _IN_TABLE
        or option in _NO_OPTIONS
        or option in access.RULES
        or option in master_key.RULES
        or option.startswith("_")
        or option in _known_to_salt()
    )


def _known_to_salt() -> frozenset[str]:
    import salt.config

    return frozenset({*salt.config.VALID_OPTS, *salt.config.DEFAULT_MASTER_OPTS})


def _own_rule(option: str) -> EqualityRule:
    # It may be a password, whatever its name.
    return EqualityRule(option, severity=NOTE, secret=True)


def take(mine: Mine) -> Facts:
    """All options of the table, and the site's own, of the running master."""
    leaves: dict[str, Any] = {}
    opts = {**mine.opts, "ext_pillar": git.without_access(mine.opts.get("ext_pillar"))}
    for rule in compared(opts):
        leaves.update(leaves_of(rule, opts, mine.nonce))
    leaves = {path: leaf for path, leaf in leaves.items() if not _OWN_OF_TREES.fullmatch(path)}
    leaves.update((path, "a file") for path in _OWN_FILES if leaves.get(path))
    return Facts(leaves, {}, tuple(RULES))


def compare(parts: Mapping[str, Facts]) -> list[Difference]:
    """Leaf by leaf."""
    told = {option_of(path) for facts in parts.values() for path in facts.leaves}
    # Another release may take what the table has by now for an option of the site's own.
    own = told - RULES.keys() - _IN_TABLE
    rules = {**RULES, **{option: _own_rule(option) for option in sorted(own)}}
    # If a master does not have an option of the site's own, it is not set there.
    covering = {
        name: dataclasses.replace(facts, covers=(*facts.covers, *own))
        for name, facts in parts.items()
    }
    return by_rules(rules, covering)


SECTION = of_rules(
    "options", "Do they have the same settings, where it matters?", take, RULES, compare
)
