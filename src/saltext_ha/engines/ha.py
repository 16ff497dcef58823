"""
Engine ``ha``: keeps the minion keys of this master and its peers the same.

.. code-block:: yaml

    # /etc/salt/master.d/ha.conf
    engines:
      - ha: {}
    ha:
      name: m1              # default: the master's id
      address: 10.0.0.1     # how peers reach this master; default: interface, else the host name

All settings are in the ``ha:`` mapping (see :mod:`saltext_ha.config`), which the runner reads too.
With a wrong setting the engine does not start: salt-master's log says which file, key and value.
"""

import logging
import os
import time
from typing import Any

from saltext_ha.errors import HaError

# Put here by Salt's loader.
__opts__: dict[str, Any]

log = logging.getLogger(__name__)


def start() -> None:
    """
    Run the engine; called by salt-master, returns when the master ends.

    CLI Example:

    .. code-block:: bash

        salt-run ha.status
    """
    from saltext_ha import config
    from saltext_ha.service import main

    parent = os.getppid()
    try:
        main.run(__opts__, config.parse(__opts__))
    except HaError as exc:
        log.critical("ha engine not started: %s", exc)
        # Salt starts an engine that has ended again at once, for ever; a wrong setting does not
        # get better by that. Wait for the master to be restarted.
        while os.getppid() == parent:
            time.sleep(1)
