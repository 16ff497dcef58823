"""
Functions of masters that change nothing: when an answer is lost, another master is asked.

Only those are listed that certainly change nothing (not ``manage.down``: it can remove keys; nor
``survey.*``, which runs anything on minions). For others, callers say ``idempotent=True``.
"""

from __future__ import annotations

RUNNERS = frozenset(
    {
        "cache.grains",
        "cache.list",
        "cache.mine",
        "cache.pillar",
        "config.get",
        "fileserver.dir_list",
        "fileserver.envs",
        "fileserver.file_list",
        "ha.check_consistency",
        "ha.deployments",
        "ha.jobs",
        "ha.leader",
        "ha.lookup_jid",
        "ha.failover_safe",
        "ha.history",
        "ha.keys",
        "ha.lint",
        "ha.minion_config",
        "ha.minions",
        "ha.peers",
        "ha.proxy_config",
        "ha.reachability",
        "ha.status",
        "ha.where",
        "jobs.active",
        "jobs.exit_success",
        "jobs.last_run",
        "jobs.list_job",
        "jobs.list_jobs",
        "jobs.list_jobs_filter",
        "jobs.lookup_jid",
        "jobs.print_job",
        "manage.alived",
        "manage.allowed",
        "manage.joined",
        "manage.list_not_state",
        "manage.list_state",
        "manage.not_alived",
        "manage.not_allowed",
        "manage.not_joined",
        "manage.not_present",
        "manage.not_reaped",
        "manage.present",
        "manage.reaped",
        "manage.status",
        "manage.up",
        "manage.versions",
        "pillar.show_pillar",
        "pillar.show_top",
        "test.arg",
        "test.get_opts",
        "test.metasyntactic",
        "test.sleep",
    }
)
WHEELS = frozenset(
    {
        "config.values",
        "file_roots.find",
        "file_roots.list_env",
        "file_roots.list_roots",
        "file_roots.read",
        "key.finger",
        "key.finger_master",
        "key.key_str",
        "key.list",
        "key.list_all",
        "key.name_match",
        "key.print",
        "minions.connected",
        "pillar_roots.find",
        "pillar_roots.list_env",
        "pillar_roots.list_roots",
        "pillar_roots.read",
    }
)


def is_read(client: str, fun: str) -> bool:
    """Whether *fun* of *client* (runner, wheel) is known to change nothing."""
    return fun in {"runner": RUNNERS, "wheel": WHEELS}.get(client, frozenset())
