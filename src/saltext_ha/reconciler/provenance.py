"""
Is the key store the one that this master wrote last?

A wiped folder, an empty mount point and a backup that was copied over the keys look like the work
of an operator. So a master signs its key store with a token, which changes at every start and every
hour, and remembers it in its replica. No signature means another store or an emptied one; an old
signature means an old copy of the store; one that the replica does not know yet, an old copy of the
replica.
"""

from __future__ import annotations

import secrets
import time

from saltext_ha.common.fail_points import point
from saltext_ha.keystore.base import KeyStore
from saltext_ha.replica.replica import Replica

SIGNED_FOR = 3600.0

OURS = "ours"
"""Also if this replica never signed it: there is nothing to compare with."""
MISSING = "missing"
OLDER = "older"
"""The store has an earlier signature than the last: it is an old copy."""
NEWER = "newer"
"""The store was signed later than the replica knows: the replica is an old copy."""


class Provenance:
    """
    The signature of one master in its key store.

    :param name: the master's name; each master that shares the store has its own signature.
    """

    def __init__(self, store: KeyStore, replica: Replica, name: str) -> None:
        self._store = store
        self._replica = replica
        self._name = name
        self._signed = float("-inf")

    def look(self) -> str:
        """
        One of OURS, MISSING, OLDER and NEWER.

        :raises StoreError: the store cannot be read.
        """
        tokens = self._tokens
        if not tokens:
            return OURS
        found = self._store.signature(self._name)
        if found is None:
            return MISSING
        if found in tokens:
            return OURS
        return NEWER if _number(found) > _number(tokens[-1]) else OLDER

    @property
    def _tokens(self) -> list[str]:
        """The signatures that are valid."""
        owner, *tokens = self._replica.meta.signatures or [self._name]
        # A master with a new name, or with the replica of another master, signs again.
        return tokens if owner == self._name else []

    @property
    def token(self) -> str:
        """The last signature; empty when the store was never signed."""
        tokens = self._tokens
        return tokens[-1] if tokens else ""

    @property
    def had(self) -> bool:
        """
        Whether the replica or the store was in use before: either has a signature.

        :raises StoreError: the store cannot be read.
        """
        return bool(self._tokens) or self._store.signature(self._name) is not None

    def signing_due(self) -> bool:
        """Whether the signature is an hour old, or from before records were dropped."""
        old = time.monotonic() >= self._signed + SIGNED_FOR
        return old or not self.token.endswith(f".{self._replica.dropped.epoch}")

    def sign(self) -> None:
        """
        Sign the store again, as it is now.

        :raises StoreError: it cannot be written; its present signature stays valid.
        """
        borne = self._store.signature(self._name)
        number = 1 + max(_number(borne or ""), _number(self.token))
        token = f"{number}.{secrets.token_hex(8)}.{self._replica.dropped.epoch}"
        if borne in self._tokens:
            # Both tokens are valid until the new one is surely written.
            self._remember([borne, token])
        # Expect a signature only once the store has one.
        point("sign.write")
        self._store.sign(self._name, token)
        point("sign.done")
        self._remember([token])
        self._signed = time.monotonic()

    def forget(self) -> None:
        """Ignore the store's signature until the store is signed again."""
        self._remember([])

    def predates_dropping(self) -> bool:
        """
        Whether records may have been dropped since the store was signed. If so, a key without a
        record may have been deleted.
        """
        if not self._replica.dropped.epoch:
            return False
        found = self._store.signature(self._name) or ""
        epoch = found.rpartition(".")[2]
        return not epoch.isdigit() or int(epoch) < self._replica.dropped.epoch

    def _remember(self, tokens: list[str]) -> None:
        with self._replica.transaction():
            self._replica.meta.signatures = [self._name, *tokens]


def _number(token: str) -> int:
    """How often the store was signed: the first part of a token; 0 for anything else."""
    number = token.partition(".")[0]
    return int(number) if number.isdecimal() and len(number) < 20 else 0
