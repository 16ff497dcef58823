"""Three keys, and steps on a key store of any kind."""

from __future__ import annotations

from saltext_ha.keystore import minion_key
from saltext_ha.keystore.base import Change, KeyStore, Outcome
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.plan import Step
from tests.keys import public_keys

TEXTS = public_keys(3)
A, B, C = (minion_key.fingerprint(text) for text in TEXTS)
KEYS = dict(zip((A, B, C), TEXTS, strict=True))


def take(
    store: KeyStore,
    *steps: tuple[str, str, bytes],
    minion_id: str = "web1",
    shown: Stored | None = None,
) -> set[str]:
    """
    Have *store* take these steps; returns ids whose keys had gone since.

    :param shown: the entry as seen before; default: the entry as it is now.
    """
    return change(store, *steps, minion_id=minion_id, seen=shown).missing


def change(
    store: KeyStore,
    *steps: tuple[str, str, bytes],
    minion_id: str = "web1",
    seen: Stored | None = None,
) -> Outcome:
    """As :func:`take`, with the whole outcome."""
    seen = shown(store, minion_id) if seen is None else seen
    return store.apply([Change(minion_id, [Step(*step) for step in steps], KEYS, seen)])


def shown(store: KeyStore, minion_id: str = "web1") -> Stored:
    """The entry of *minion_id* in *store*."""
    content = store.read(minion_id)
    assert content is not None
    return content.stored


def look(store: KeyStore) -> set[str]:
    """The changed ids; *store* takes note of them."""
    ids = set(store.changed())
    for minion_id in ids:
        store.read(minion_id)
    return ids
