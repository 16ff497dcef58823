"""The settings of the lab's masters and minions."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Any

from lab.network import Ports
from saltext_ha.common import version

# Log our own lines from debug on, Salt's from info on.
LOGGING: dict[str, Any] = {
    "log_level": "warning",
    "log_level_logfile": "debug",
    "log_granular_levels": {
        "salt": "info",
        "salt.loaded.ext": "debug",
        "saltext_ha": "debug",
        "asyncio": "info",
        "aiohttp": "info",
        "tornado": "info",
        "urllib3": "info",
    },
}
# Grains that ask the name service or the hardware cost seconds, and are useless here.
CHEAP: dict[str, Any] = {"enable_fqdns_grains": False, "enable_gpu_grains": False}


def master_settings(
    name: str,
    address: str,
    ports: Ports,
    engine: bool,
    ha: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """A master's configuration without the folders; *config* has the last word."""
    settings: dict[str, Any] = {
        "interface": address,
        "publish_port": ports.publish,
        "ret_port": ports.ret,
        "user": getpass.getuser(),
        "worker_threads": 1,
        "auto_accept": False,
        "open_mode": False,
        "timeout": 15,  # minions share two processors with much else, and are waited for
        "gather_job_timeout": 5,
        "grains_cache": True,  # each worker collects grains twice
        **LOGGING,
        **CHEAP,
        **config,
    }
    if engine:
        settings["engines"] = [*settings.get("engines", []), {"ha": {}}]
        settings["ha"] = {
            "name": name,
            "address": address,
            "listen_host": address,
            "port": ports.peer,
            "status": {"host": address, "port": ports.status},
            **settings.get("ha", {}),
            **ha,
        }
    elif ha:
        settings["ha"] = dict(ha)
    return settings


def minion_settings(
    masters: Sequence[str],
    ports: Ports,
    kind: str,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """
    A minion's configuration without the folders; *config* has the last word.

    :param masters: addresses without ports. The port is set once, which works on all releases of
        Salt; with failover, ``host:port`` entries do not.
    :param kind: ``hot`` (bound to all masters) or ``failover`` (to one at a time).
    """
    if kind not in ("hot", "failover"):
        raise ValueError(f"type {kind!r}: takes hot or failover")
    settings: dict[str, Any] = {
        "master": list(masters),
        "master_type": "str",
        "master_port": ports.ret,
        "publish_port": ports.publish,
        "user": getpass.getuser(),
        "acceptance_wait_time": 2,
        "acceptance_wait_time_max": 2,
        # Not shorter: if a master is busy for longer than this, a failover minion gives it up, and
        # waits for ever because its key is pending on the next master.
        "auth_timeout": 10,
        "random_reauth_delay": 1,
        "recon_default": 200,
        "recon_max": 1000,
        "recon_randomize": False,
        "mine_enabled": False,
        **LOGGING,
        **CHEAP,
    }
    if kind == "hot" and len(masters) > 1 and version.salt_release()[0] == 3007:
        # Where this is on, a minion that has met a master again checks it without a pause from
        # then on, though the check is switched off: it answers nobody in time any more.
        settings["zmq_monitor"] = False
    if kind == "failover":
        # With failover Salt forces retry_dns to 0, and logs it as CRITICAL if it was not.
        settings.update(master_type="failover", master_alive_interval=5, retry_dns=0)
        # If a master's host vanishes silently, only keepalive notices it.
        settings.update(tcp_keepalive_idle=20, tcp_keepalive_intvl=5, tcp_keepalive_cnt=3)
    return {**settings, **config}
