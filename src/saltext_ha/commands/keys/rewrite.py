"""``ha.rewrite``: a record that claims too much is replaced by what the key store shows."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from saltext_ha.commands.arguments import author, is_glob
from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.replication.poisoned import is_poisoned
from saltext_ha.sync.answers import RECORDS
from saltext_ha.sync.group import Group
from saltext_ha.sync.key_rows import change_row, key_text
from saltext_ha.sync.link import Link
from saltext_ha.sync.vouching import Vouching

PAGE = 2000
TRIES = 3


class Rewrite:
    def __init__(self, group: Group, core: Core, vouching: Vouching) -> None:
        self._group, self._core, self._vouching = group, core, vouching

    async def rewrite(self, payload: dict[str, Any]) -> dict[str, Any]:
        core, minion = self._core, str(payload.get("minion"))
        if core.mode.lost or core.mode.doubt:
            raise HaError(
                f"the key store of {self._group.name} does not show all that is known: run this "
                "again when salt-run ha.status no longer says so"
            )
        test = bool(payload.get("test"))
        ids = await self._poisoned(minion)
        if not ids and not is_glob(minion):
            raise HaError(f"no record of {minion!r} on this master claims more than it may")
        changes: list[dict[str, Any]] = []
        notes: list[str] = []
        if ids and not test:
            # The records may claim to know writes that the present node makes only now.
            await core.run(self._vouching.begin)
        for minion_id in ids:
            records = await core.run(core.replica.get, minion_id)
            states = await core.run(core.keeper.shown_anew, minion_id)
            if not states:
                notes.append(
                    f"{minion_id}: its entry in the key store cannot be read, or is not written "
                    "yet; left as it is"
                )
                continue
            if not test:
                await core.order(core.keeper.rewrite, minion_id, author(payload, "ha.rewrite"))
            changes += [
                change_row(
                    "all",
                    minion_id,
                    f"claims too much, {key_text(records[key].state, key)}",
                    key_text(state, key),
                )
                for key, state in sorted(states.items())
            ]
        unreachable: dict[str, str] = {}
        if changes and not test:
            more, unreachable = await self._spread()
            notes += more
        return {
            "kind": "sync",
            "test": test,
            "changes": changes,
            "conflicts": [],
            "notes": notes,
            "unreachable": unreachable,
            "retcode": 2 if unreachable else 1 if notes else 0,
        }

    async def _poisoned(self, minion: str) -> list[str]:
        """The ids that match and have a poisoned record, a page at a time."""
        core = self._core

        def page(where: tuple[int, str, bytes]) -> list[tuple[tuple[int, str, bytes], bool]]:
            return [
                ((bucket, record.minion_id, record.fingerprint), is_poisoned(record))
                for bucket, record in core.replica.records_after(where, PAGE)
            ]

        if not is_glob(minion):
            records = await core.run(core.replica.get, minion)
            return [minion] if any(map(is_poisoned, records.values())) else []
        found: set[str] = set()
        where = (-1, "", b"")
        while rows := await core.run(page, where):
            found |= {at[1] for at, bad in rows if bad and fnmatchcase(at[1], minion)}
            where = rows[-1][0]
        return sorted(found)

    async def _spread(self) -> tuple[list[str], dict[str, str]]:
        """Have the members take the new records; notes on some, and why others do not answer."""
        notes, unreachable = list[str](), self._group.unasked()
        for name, link in sorted(self._group.links.items()):
            try:
                if not await self._took(link):
                    notes.append(
                        f"{name} does not know the same yet: if it runs this release, run "
                        "ha.rewrite there, too"
                    )
            except HaError as exc:
                unreachable[name] = f"{exc}; it takes them when it is back"
        return notes, unreachable

    async def _took(self, link: Link) -> bool:
        """Whether the peer has the same records as this master."""
        for _ in range(TRIES):
            await link.exchange()
            asked = {"tree": RECORDS, "root": self._core.replica.records.root}
            if (await link.contact.call("digest", asked)).get("same") is True:
                return True
        return False
