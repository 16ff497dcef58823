"""
``salt-ha``: the functions of the ``ha`` runner, without a salt-master that has been started.

``salt-run`` needs the folders that the first start of salt-master makes. ``salt-ha`` makes them,
as salt-master does (for the user of ``user:`` when root runs it), becomes that user, and calls the
function as ``salt-run ha.FUNCTION`` would: same arguments, same output, same exit codes.

It is also the way for secrets, which must not go through Salt: everything that a runner returns is
an event that others may follow. ``salt-ha invite`` prints the token, alone on standard output, and
``salt-ha join`` takes it from a file, from standard input or from a prompt, never as an argument.

Only this program has the four functions ``watch``, ``report``, ``completion`` and ``lock``. With
these root stays root.

.. code-block:: bash

    salt-ha invite
    salt-ha join --token-file -
    salt-ha join wait=300
    salt-ha -c /srv/salt-config --out=json peers
    salt-ha watch
    salt-ha report report.md
    salt-ha completion bash

``salt-ha lock`` runs a command while no other master of the group runs one under that name.
It does not change the user: the command runs as the user that calls it.

.. code-block:: bash

    salt-ha lock --wait 60 nightly-backup -- /usr/local/bin/backup --full
"""

from saltext_ha.cli.program import main

__all__ = ["main"]
