"""A hostile member tells nonsense of what is current: it keeps nobody from deploying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.engines import Engine
from saltext_ha.replication import deployment
from saltext_ha.replication.deployment import MOST_NUMBER, Entry, Register
from saltext_ha.replication.record import Dot
from saltext_ha.replication.vouching import MOST_OF_ONE
from saltext_ha.trees import registers
from tests.engines import met, running
from tests.functional.trees.tree_place import tree_place
from tests.loop import in_a_loop, until

NAMES = ("m1", "m2", "m3")
PATIENCE = 30.0


async def tell(liar: Engine, victim: str, register: Register) -> dict[str, Any]:
    """What a member answers that is told, by a pinned peer, what is current."""
    payload = {"tree": "states", "register": registers.to_rows(register)}
    return await liar.service.parts.links.contacts[victim].call("tree_switch", payload, PATIENCE)


def known(engine: Engine) -> Register:
    return engine.service.parts.tree_registers["states"]


@in_a_loop
async def test_nobody_claims_what_another_master_has_yet_to_deploy(tmp_path: Path) -> None:
    three = [tree_place(tmp_path, name, files={"top.sls": "one"}) for name in NAMES]
    async with met(*three) as (m1, m2, m3):
        await three[0].deploy()
        node = m1.service.parts.core.replica.node
        for victim in ("m1", "m2"):
            await tell(m3, victim, Register(known(m2).values, ((node, 2**40),)))
        assert any(
            "not taken from m3: tree states" in note for note in m2.service.parts.all_notes()
        )
        three[0].put({"top.sls": "two"})
        await three[0].deploy()
        await until(lambda: known(m1) == known(m2) == known(m3), "all have heard of it")
        assert [entry.number for entry in known(m2).entries] == [2, 1]
        assert three[0].served() == three[1].served() == {"top.sls": "two"}


def crowded(register: Register, part: int) -> Register:
    """*register*, which claims to have seen many writers."""
    names = [(f"{part:08x}{number:08x}", 1) for number in range(MOST_OF_ONE)]
    return Register(register.values, tuple(sorted((*register.context, *names))))


def numbered(register: Register, dot: Dot) -> Register:
    """*register* after a deployment with the highest number that there is."""
    (value,) = deployment.deploy(register, dot, register.entries[0]).values
    last: Entry = value.entry._replace(number=MOST_NUMBER)
    return Register((value._replace(kept=(last,)),), (*register.context, dot))


@in_a_loop
async def test_what_it_tells_keeps_nobody_from_deploying_nor_from_starting(tmp_path: Path) -> None:
    three = [tree_place(tmp_path, name, files={"top.sls": "one"}) for name in NAMES]
    async with met(*three) as (m1, m2, m3):
        await three[0].deploy()
        for part in range(3):
            await tell(m3, "m2", crowded(known(m2), part))
        assert len(known(m2).context) <= MOST_OF_ONE, "names of writers fill the register"
        await tell(m3, "m2", numbered(known(m2), Dot("f" * 16, 1)))
        assert known(m2).entries[0].number == MOST_NUMBER
        # Else whoever deploys is told to look again.
        await until(lambda: known(m1) == known(m2) == known(m3), "all have heard of it")
        three[0].put({"top.sls": "two"})
        await three[0].deploy()
        assert three[0].served() == three[1].served() == {"top.sls": "two"}
    async with running(*three) as (m1, m2, _):
        await m1.meets(m2)
        three[1].put({"top.sls": "three"})
        await three[1].deploy()
        assert three[0].served() == three[1].served() == {"top.sls": "three"}
        assert [entry.number for entry in known(m1).entries][:2] == [2, 1]
