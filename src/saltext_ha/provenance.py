"""
Is the key store the one that this master wrote last?

A wiped folder, an empty mount point and a backup that was copied over the keys look like the work
of an operator. So a master signs its key store with a token that changes every hour, and remembers
it in its replica: no signature means another or an emptied store, an old one an older copy.
"""

from __future__ import annotations

import secrets
import time

from saltext_ha.keystore.base import KeyStore
from saltext_ha.replica import Replica

SIGNED_FOR = 3600.0

OURS = "ours"
UNSIGNED = "unsigned"
"""Never signed by this replica: there is nothing to compare with."""
MISSING = "missing"
OLDER = "older"


class Provenance:
    """
    The signature of one master in its key store.

    :param name: the master's; each master that shares the store has a signature of its own.
    """

    def __init__(self, store: KeyStore, replica: Replica, name: str) -> None:
        self._store = store
        self._replica = replica
        self._name = name
        owner, *tokens = replica.signatures or [name]
        # A master that was given another name, or the replica of another one, signs anew.
        self._tokens = tokens if owner == name else []
        self._signed = float("-inf")

    def look(self) -> str:
        """
        One of OURS, UNSIGNED, MISSING and OLDER.

        :raises StoreError: the store cannot be read.
        """
        if not self._tokens:
            return UNSIGNED
        found = self._store.signature(self._name)
        if found is None:
            return MISSING
        return OURS if found in self._tokens else OLDER

    @property
    def token(self) -> str:
        """The last signature; empty when the store was never signed."""
        return self._tokens[-1] if self._tokens else ""

    def signing_due(self) -> bool:
        """Whether the signature is an hour old, or of before records were dropped."""
        old = time.monotonic() >= self._signed + SIGNED_FOR
        return old or not self.token.endswith(f".{self._replica.epoch}")

    def sign(self) -> None:
        """
        Sign the store anew: it is ours as it is.

        :raises StoreError: it cannot be written; the signature that it bears is good still.
        """
        token = f"{secrets.token_hex(8)}.{self._replica.epoch}"
        borne = self._store.signature(self._name)
        if borne in self._tokens:
            # Either is right until the new one is known to be there.
            self._remember([borne, token])
        # A store that bears none of ours must not be expected to bear one before it does.
        self._store.sign(self._name, token)
        self._remember([token])
        self._signed = time.monotonic()

    def forget(self) -> None:
        """What the store bears counts for nothing until it is signed again."""
        self._remember([])

    def predates_dropping(self) -> bool:
        """
        Whether records may have been dropped since the store was signed: a key in it that no
        record knows may be one that was deleted.
        """
        if not self._replica.epoch:
            return False
        found = self._store.signature(self._name) or ""
        epoch = found.rpartition(".")[2]
        return not epoch.isdigit() or int(epoch) < self._replica.epoch

    def _remember(self, tokens: list[str]) -> None:
        with self._replica.transaction():
            self._replica.signatures = [self._name, *tokens]
        self._tokens = tokens
