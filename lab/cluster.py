"""Masters of a lab that form Salt's own master cluster (``cluster_id``, Salt 3007 and newer)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab import Lab, Master, wait_for
from lab.keys import write_whole
from lab.master import listens
from lab.node import START_TIMEOUT

CLUSTER_ID = "lab"
ANSWERED = 40.0  # seconds within which a member that asks is taken in, even under load
RESTARTS = 4  # of members that wait in vain
HANDED = 15.0  # seconds after which no process makes its own key any more
POLL = 0.2


def add_cluster(
    lab: Lab,
    *names: str,
    isolated: bool,
    ha: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    engine: bool = True,
) -> list[Master]:
    """
    Configure masters of one cluster; do not start them.

    The others know each master by its address, so that is its Salt id; ``ha.*`` commands use its
    name. The first of *names* has the lowest address and founds the cluster.

    :param isolated: every master has its own key folders (``cluster_isolated_filesystem``, Salt
        3008 and newer); otherwise all use one folder.
    :param ha: more keys for their ``ha:`` mappings.
    :param config: more keys for their configuration; they replace the lab's.
    :param engine: run the ha engine in them.
    """
    addresses = {name: lab.new_address() for name in names}
    private, public = lab.key_pair()
    masters = []
    for name, address in addresses.items():
        folder = lab.root / f"{name}-cluster" if isolated else lab.root / "cluster"
        # Salt 3007 writes into this folder before it makes it.
        (folder / "peers").mkdir(mode=0o700, parents=True, exist_ok=True)
        # 3008.3 hands the key to a new member, but its workers keep their own until a restart.
        write_whole(folder / "cluster.pem", private, 0o400)
        write_whole(folder / "cluster.pub", public)
        settings: dict[str, Any] = {
            "id": address,
            "cluster_id": CLUSTER_ID,
            "cluster_peers": [other for other in addresses.values() if other != address],
            "cluster_pki_dir": str(folder),
            "cluster_pool_port": lab.ports.cluster,
            **({"cluster_isolated_filesystem": True} if isolated else {}),
            **(config or {}),
        }
        masters.append(lab.add_master(name, ha=ha, config=settings, engine=engine, address=address))
    return masters


def start_cluster(masters: Iterable[Master]) -> None:
    """
    Start *masters* and wait until all serve. The first one founds the cluster.

    Salt 3008 opens a master to minions when it has become a voter. A new member asks only once to
    be taken in, so the founder must run by then. But the founder must not be alone for long: for
    each event that it cannot forward to two peers, 3008.3 fires two more. And it drops the question
    if it cannot tell its own bus of it (``handle_pool_publish``: "Unhandled error while polling
    master events"), so a member that waits in vain is started again and asks once more.

    Salt hands a member the cluster's key, though the member has it: 3008.3 unlinks the file before
    it writes it, and a process that looks for the key in between makes another one, which replaces
    it half a second later (``MasterKeys.find_or_create_keys``). As long as that may happen, such a
    member is given the key again.
    """
    first, *others = masters
    first.launch()
    pool = (first.address, int(first.opts["cluster_pool_port"]))
    wait_for(lambda: listens(pool), START_TIMEOUT, f"{first.name} listens to other members")
    for master in others:
        master.launch()
    for master in (first, *others):
        master.wait_ready()
    take_in(first, others)
    ours = cluster_key(first)
    deadline = time.monotonic() + HANDED
    while time.monotonic() < deadline:
        for master in others:
            if cluster_key(master) == ours:
                continue
            master.stop()
            for name, text in ours.items():
                write_whole(Path(master.opts["cluster_pki_dir"]) / name, text, 0o400)
            master.start()
            take_in(first, [master])
        time.sleep(POLL)


def take_in(first: Master, others: Iterable[Master]) -> None:
    """
    Wait until Salt has opened *first*, the founder, and *others* to minions.

    :raises TimeoutError: a master is still closed after :data:`RESTARTS` restarts of such members.
    """
    masters = [first, *others]
    for left in reversed(range(RESTARTS + 1)):
        try:
            wait_for(lambda: all(map(ready, masters)), ANSWERED, "Salt opens all to minions")
        except TimeoutError:
            if not left:
                raise
        else:
            return
        for master in masters[1:]:
            if not ready(master):
                master.stop()
                master.start()


def cluster_key(master: Master) -> dict[str, str]:
    """The pair by which minions know the cluster, as *master* has it: file name → PEM."""
    folder = Path(master.opts["cluster_pki_dir"])
    files = (folder / "cluster.pem", folder / "cluster.pub")
    return {path.name: path.read_text() if path.exists() else "" for path in files}


def ready(master: Master) -> bool:
    """Whether Salt has opened *master* to minions; 3007 has no gate."""
    health = Path(master.opts["cachedir"]) / "health"  # Salt empties it at each start
    return not health.exists() or (health / "ready").exists()
