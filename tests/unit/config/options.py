"""The options of a master, as its configuration has them, for what is read out of them."""

from __future__ import annotations

OPTS = {
    "conf_file": "/etc/salt/master",
    "id": "m1_master",
    "interface": "10.0.0.1",
    "pki_dir": "/etc/salt/pki/master",
    "sock_dir": "/var/run/salt/master",
}
