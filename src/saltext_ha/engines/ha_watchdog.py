"""
Engine ``ha_watchdog``: moves this minion to another master when its own does not work.

.. code-block:: yaml

    # /etc/salt/minion.d/ha.conf
    engines:
      - ha_watchdog: {}
    ha:
      watchdog:               # all of it may be left out; these are the defaults, in seconds
        interval: 5
        timeout: 2.5
        failures: 2
        jitter: 2
        report: 300
        failback: false
        stable: 60
        restart: true         # no duration: restart a minion that got stuck between two masters

With a wrong setting nothing is watched: the minion's log says which file, key and value.

.. versionadded:: 0.1.0
"""

import logging
from typing import Any

from saltext_ha.common.errors import ConfigError

# Put here by Salt's loader.
__opts__: dict[str, Any]

log = logging.getLogger(__name__)


def start(**misplaced: Any) -> None:
    """
    Run the engine; called by salt-minion, returns when the minion ends.

    misplaced
        Settings in ``engines:``, where other engines have theirs. They are refused.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.current_master
    """
    from saltext_ha.config import engines, watchdog
    from saltext_ha.minion import windows
    from saltext_ha.minion.watchdog import run
    from saltext_ha.minion.watchdog.parent_minion import ParentMinion

    minion = ParentMinion(__opts__)
    try:
        if why := windows.refusal():
            raise ConfigError(why)
        engines.check("ha_watchdog", __opts__, misplaced)
        if __opts__.get("__role") == "syndic":  # it reads the minion's configuration, too
            log.info("ha_watchdog: a syndic's masters are not watched")
        else:
            run.run(__opts__, watchdog.parse(__opts__), minion)
    except ConfigError as exc:
        log.critical("ha_watchdog not started: %s", exc)
    # Salt at once starts an ended engine again, for ever.
    while minion.lasts(60.0):
        pass
