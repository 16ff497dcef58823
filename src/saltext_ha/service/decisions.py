"""What operators decide for all masters: ``ha.resolve``, ``ha.restore``, ``ha.release``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha import minion_key
from saltext_ha.errors import HaError
from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED, Record
from saltext_ha.service.group import Command, Group


class Decisions:
    """Commands that decide about keys."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of these."""
        return {"resolve": self.resolve, "restore": self.restore, "release": self.release}

    async def resolve(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.resolve``: of several accepted keys of an id one stays, the others are deleted."""
        core = self._group.service.core
        minion_id = str(payload.get("minion"))
        records = await core.run(core.replica.get, minion_id)
        accepted = accepted_keys(records.values())
        if len(accepted) < 2:
            raise HaError(
                f"{minion_id} is not in conflict; ha.status lists the ids that are"
                if records
                else f"no key of {minion_id!r} is known here"
            )
        right = minion_key.find(accepted, str(payload.get("fingerprint")))
        states = {key: ACCEPTED if key == right else DELETED for key in accepted}
        return await self._decide(minion_id, records, states, payload)

    async def restore(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.restore``: a deleted or rejected key is accepted again, everywhere."""
        core = self._group.service.core
        minion_id = str(payload.get("minion"))
        records = await core.run(core.replica.get, minion_id)
        revoked = [
            key
            for key, record in records.items()
            if any(value.state in (DELETED, REJECTED) for value in record.values)
        ]
        if not revoked:
            raise HaError(f"no deleted or rejected key of {minion_id!r} is known here")
        wanted = str(payload.get("fingerprint") or "")
        if not wanted and len(revoked) > 1:
            shown = ", ".join(minion_key.show(key, False) for key in sorted(revoked))
            raise HaError(f"several keys of {minion_id} were revoked, name one: {shown}")
        key = minion_key.find(revoked, wanted) if wanted else revoked[0]
        others = [k for k in accepted_keys(records.values()) if k != key]
        if others:
            raise HaError(
                f"{minion_id} is accepted with another key ({minion_key.show(others[0])}); "
                f"delete that first: salt-key -d {minion_id}"
            )
        return await self._decide(minion_id, records, {key: ACCEPTED}, payload)

    async def release(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.release``: believe that the keys that are held back were really deleted."""
        core = self._group.service.core
        test = bool(payload.get("test"))
        ids = sorted(await core.run(core.replica.held)) if test else await core.release()
        name = self._group.service.config.name
        return {
            "kind": "sync",
            "test": test,
            "changes": [
                {"master": "all", "id": i, "from": f"held on {name}", "to": "deleted"} for i in ids
            ],
            "conflicts": [],
            "unreachable": {},
            "retcode": 0,
        }

    async def _decide(
        self,
        minion_id: str,
        records: Mapping[bytes, Record],
        states: Mapping[bytes, str],
        payload: Mapping[str, Any],
    ) -> dict[str, Any]:
        test = bool(payload.get("test"))
        if not test:
            await self._group.service.core.decide(
                minion_id, states, str(payload.get("by", ""))[:64]
            )
        return {
            "kind": "sync",
            "test": test,
            "changes": [
                {
                    "master": "all",
                    "id": minion_id,
                    "from": f"{records[key].state} {minion_key.show(key)}",
                    "to": f"{state} {minion_key.show(key)}",
                }
                for key, state in states.items()
                if records[key].state != state
            ],
            "conflicts": [],
            "unreachable": {
                name: link.error for name, link in self._group.service.links.items() if not link.up
            },
            "retcode": 0,
        }
