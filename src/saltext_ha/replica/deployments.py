"""
The history of deployments: the table ``deployment`` of replica.db. For people only.

The register of a tree has the deployments that can be gone back to; the rows of this table are kept
as long as the history.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from saltext_ha.replica.history import Receipt, sqlite_glob
from saltext_ha.replication.deployment import KEPT, Entry

MOST = 10_000
"""Most rows of all trees together; older ones are dropped."""
HERE = Receipt("", 0.0)
"""The receipt of a deployment that was made on this master."""


class DeployedLine(NamedTuple):
    """
    One deployment of the history.

    The writer chose ``number``, ``at``, ``by``, ``on``, ``source`` and ``message``. ``received``
    (Unix seconds) is when the deployment came here; ``sender`` is the peer that sent it, empty if
    it was made here.
    """

    tree: str
    number: int
    at: float
    by: str
    on: str
    source: str
    message: str
    received: float
    sender: str


class Deployments:
    """The table in *db*, an open replica.db; methods that write are called inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def wrote(self, tree: str, entries: Iterable[Entry], receipt: Receipt = HERE) -> None:
        """Remember deployments of a *tree* that are not known yet."""
        sender, received = receipt
        self._db.executemany(
            "INSERT OR IGNORE INTO deployment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (tree, e.number, e.at, e.by, e.on, e.source, e.message, received or e.at, sender)
                for e in entries
            ],
        )
        # A peer may send any number.
        self._db.execute(
            "DELETE FROM deployment WHERE (tree, number, at, on_master) IN ("
            "SELECT tree, number, at, on_master FROM deployment"
            " ORDER BY received DESC LIMIT -1 OFFSET ?)",
            (MOST,),
        )

    def lines(
        self, glob: str = "*", limit: int = 100, since: float | None = None, by: str = "*"
    ) -> list[DeployedLine]:
        """
        The last *limit* deployments of trees that match *glob*, the last received first.

        :param since: leave out deployments received before this time, in Unix seconds.
        :param by: a glob over the names of those who deployed.
        """
        rows = self._db.execute(
            "SELECT * FROM deployment WHERE tree GLOB ? AND received >= ? AND by_whom GLOB ?"
            " ORDER BY received DESC, number DESC LIMIT ?",
            (sqlite_glob(glob), float("-inf") if since is None else since, sqlite_glob(by), limit),
        )
        return [DeployedLine(*row) for row in rows]

    def prune(self, before: float) -> None:
        """
        Drop deployments received before *before* (Unix seconds), except the last :data:`.KEPT` of
        each tree.
        """
        self._db.execute(
            "DELETE FROM deployment WHERE received < ? AND number <= ("
            "SELECT MAX(number) FROM deployment AS last WHERE last.tree = deployment.tree) - ?",
            (before, KEPT),
        )
