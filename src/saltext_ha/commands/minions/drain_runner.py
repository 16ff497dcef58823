"""The runner's half of ``ha.drain`` and ``ha.rebalance``: says what goes on if interrupted."""

from __future__ import annotations

from saltext_ha.commands.engine_client import Answer, Ask, say
from saltext_ha.common.errors import EngineUnavailable

BEFORE = (
    "from the first move on {0} is drained, and stays so if this is interrupted; "
    "salt-run ha.rebalance ends that"
)
AFTER = "{0} may be drained: salt-run ha.status shows it; salt-run ha.rebalance ends that"
GOES_ON = "interrupted; the engine of this master goes on moving minions. "
AGAIN = "salt-run ha.rebalance test=True shows which ones are still to move; it may be run again"


def run(ask: Ask, payload: Answer) -> Answer:
    """
    The answer of ``ha.drain``; see the runner.

    :param payload: as for the engine; with ``test`` nothing is said.
    :raises HaError: the engine refused, or does not answer any more.
    """
    name = payload["name"]
    if payload["test"]:
        return ask("drain", payload)
    ask("may_drain", payload)  # a user who is refused is told nothing else
    say(BEFORE.format(name))
    try:
        return ask("drain", payload)
    except EngineUnavailable as exc:
        raise EngineUnavailable(f"{exc}. {AFTER.format(name)}") from None
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C; SIGTERM, of which Salt makes an exit
        say(GOES_ON + AFTER.format(name))
        raise


def rebalance(ask: Ask, payload: Answer) -> Answer:
    """The same for ``ha.rebalance``: its answer, and what goes on if it is given up."""
    try:
        return ask("rebalance", payload)
    except (KeyboardInterrupt, SystemExit):
        if not payload["test"]:
            say(GOES_ON + AGAIN)
        raise
