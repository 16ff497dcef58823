"""Engines in this process, and functions to talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.engines import Engine, Place, befriend
from lab.key_folders import ACCEPTED
from saltext_ha.commands.keys.decisions import Decisions
from saltext_ha.replication.record import Record
from saltext_ha.runners import ha as runner
from tests.keys import public_key
from tests.loop import becomes, until

# On a busy machine a peer that answers late is not away.
QUICK = {"sync_interval": 0.2, "scan_interval": 1, "peer_timeout": 20}


def places(root: Path, *names: str, ha: Any = None, **options: Any) -> list[Place]:
    """Masters below *root* with the same configuration: *options*, and its part *ha*."""
    return [Place(root, name, {**QUICK, **(ha or {})}, options) for name in names]


@contextlib.asynccontextmanager
async def running(*places: Place) -> AsyncIterator[list[Engine]]:
    """Engines that run; they stop at the end of the block."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Engine(place)) for place in places]


@contextlib.asynccontextmanager
async def met(*places: Place) -> AsyncIterator[list[Engine]]:
    """Engines that have met; makes them trust each other if they do not yet."""
    async with running(*places) as engines:
        befriend(*places)
        for engine in engines:
            await engine.meets(*(other for other in engines if other is not engine))
        yield engines


@contextlib.asynccontextmanager
async def sharing(ids: Iterable[str], first: Place, *others: Place) -> AsyncIterator[list[Engine]]:
    """Engines that have met, and all have accepted keys of *ids*, which were put on the first."""
    for minion_id in (wanted := set(ids)):
        put(first, minion_id)
    async with met(first, *others) as engines:
        await until(lambda: all(wanted <= there(other) for other in others), "all have the keys")
        yield engines


def put(place: Place, minion_id: str, key: int = 0, folder: str = ACCEPTED) -> None:
    """Put public key number *key* for an id into a key folder."""
    (place.pki_dir / folder).mkdir(exist_ok=True)
    (place.pki_dir / folder / minion_id).write_text(public_key(key))


async def run(place: Place, function: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``salt-run ha.<function>`` on *place*."""

    def call() -> dict[str, Any]:
        runner.__opts__, runner.__context__ = place.opts, {}
        answer: dict[str, Any] = getattr(runner, function)(*args, **kwargs)
        return answer

    return await asyncio.to_thread(call)


async def noted(place: Place, master: str) -> dict[str, Any]:
    """
    What ``ha.status`` says once it has a note about *master*. That it is degraded is not enough:
    in these tests it is so without a note as well, as no salt-master serves.
    """

    async def note() -> bool:
        rows = (await run(place, "status"))["masters"]
        return any(row["note"] for row in rows if row["name"] == master)

    await becomes(note, True)
    status = await run(place, "status")
    assert status["state"] == "degraded"
    return status


def wrong(status: Mapping[str, Any]) -> list[str]:
    """
    The troubles of masters and their keys according to ``ha.status``. In these tests no salt-master
    serves, and only some tests compare configurations.
    """
    return [
        reason["text"]
        for reason in status["reasons"]
        if reason["kind"] not in ("serves", "ready", "comparison")
    ]


def there(place: Place, folder: str = ACCEPTED) -> set[str]:
    """The ids in a key folder."""
    return {path.name for path in (place.pki_dir / folder).glob("[!.]*")}


def accepted(*where: Place) -> list[set[str]]:
    return [there(place) for place in where]


def records(engine: Engine, minion_id: str = "web1") -> dict[bytes, Record]:
    return engine.known(lambda of: dict(of.get(minion_id)))


def decisions(engine: Engine) -> Decisions:
    return Decisions(engine.parts.group, engine.parts.core)


async def notes(engine: Engine, name: str) -> str:
    """What is to be known of one master, or (without a name) of the one that is asked."""
    status = await engine.made.status.status({})
    if not name:
        return "; ".join(status["notes"])
    return next(str(row["note"]) for row in status["masters"] if row["name"] == name)


async def delete(engine: Engine, *minion_ids: str) -> None:
    """As ``salt-key -d`` does, and says."""
    for minion_id in minion_ids:
        (engine.place.pki_dir / ACCEPTED / minion_id).unlink()
        await engine.hint(minion_id, gone=True)


async def same_records(*engines: Engine) -> None:
    """Wait until all know the same; what each may write into its key store does not count."""
    replicas = [engine.parts.core.replica for engine in engines]
    await until(lambda: len({each.records.root for each in replicas}) == 1, "all know the same")


def is_level(*engines: Engine) -> bool:
    """Whether all know the same, and have the same keys."""
    replicas = [engine.parts.core.replica for engine in engines]
    return len({(each.records.root, each.placements.root) for each in replicas}) == 1


async def level(*engines: Engine) -> None:
    """Wait until they are."""
    await until(lambda: is_level(*engines), "all are level")


async def join(inviter: Place, joiner: Place) -> None:
    """Have *joiner* join the group of *inviter*, which runs."""
    joined = await join_by(joiner, await invited(inviter))
    assert joined["retcode"] == 0, joined


async def invited(place: Place, **options: Any) -> str:
    """The token that ``ha.invite`` on *place* writes into a file."""
    return Path((await run(place, "invite", **options))["token_file"]).read_text().strip()


async def join_by(place: Place, token: str, **options: Any) -> dict[str, Any]:
    """``ha.join`` on *place*, with *token* in a file."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(token)
        file.flush()
        return await run(place, "join", token_file=file.name, **options)
