"""
Engine ``ha``: keeps the minion keys of this master and its peers the same.

.. code-block:: yaml

    # /etc/salt/master.d/ha.conf
    engines:
      - ha: {}
    ha:
      name: m1              # default: the master's id
      address: 10.0.0.1     # how peers reach this master; default: interface, else the host name

All settings are in the ``ha:`` mapping (see :mod:`saltext_ha.config.mapping`), which the runner
reads too. With a wrong setting the engine does not start: salt-master's log says which file, key
and value.

.. versionadded:: 0.1.0
"""

import contextlib
import logging
import os
import time
from typing import Any

from saltext_ha.common.errors import ConfigError, HaError

# Put here by Salt's loader.
__opts__: dict[str, Any]

log = logging.getLogger(__name__)

RETRY = 10.0


def start(**misplaced: Any) -> None:
    """
    Run the engine; called by salt-master, returns when the master ends.

    misplaced
        Settings in ``engines:``, where other engines have theirs. They are refused.

    CLI Example:

    .. code-block:: bash

        salt-run ha.status
    """
    from saltext_ha.config import engines, mapping
    from saltext_ha.engine import main
    from saltext_ha.transport import control_client

    parent = os.getppid()
    said = ""
    while os.getppid() == parent:
        try:
            engines.check("ha", __opts__, misplaced)
            return main.run(__opts__, mapping.parse(__opts__))
        except (HaError, OSError) as exc:
            # Salt at once starts an ended engine again, for ever. That does not mend a wrong
            # setting; a full disk, a folder of root or a taken port may be gone in a while.
            if str(exc) != said:
                log.critical("ha engine not started: %s", exc)
                said = str(exc)
            wrong = isinstance(exc, ConfigError)
            # Commands find a mistake as well, until it is mended.
            then = "mend it, and restart salt-master" if wrong else "tried again every 10 s"
            with contextlib.suppress(ValueError):  # sock_dir is no path
                control_client.tell_why(mapping.control_socket(__opts__), f"{exc} ({then})")
            _pause(parent, RETRY, for_ever=wrong)


def _pause(parent: int, seconds: float, for_ever: bool) -> None:
    """Sleep, but not longer than the master lives."""
    end = time.monotonic() + seconds
    while os.getppid() == parent and (for_ever or time.monotonic() < end):
        time.sleep(1)
