"""
``python -m proving.torture.guards``: guards that no honest master needs, taken out.

No history of torture has a member that lies, or a minion that floods the bus, so none goes red
without these; without ``late-knowledge`` one does by luck only. For each of them a test is named
that is to go red; it must be green with it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import salt.key  # noqa: F401  # takes long, and the tests need it

from proving.torture.mutants import late_knowledge, vars_of
from saltext_ha.reconciler import claims as claimed
from saltext_ha.reconciler import dropping, merging
from saltext_ha.reconciler.claims import Claims
from saltext_ha.reconciler.merging import Merger
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.replica.replica import Replica
from saltext_ha.replication import vouching
from saltext_ha.replication.deployment import Register
from saltext_ha.salt_bus import intake
from saltext_ha.salt_bus.intake import MemoryBudget
from saltext_ha.sync import antientropy, outbox
from saltext_ha.sync import vouching as proving
from saltext_ha.sync.outbox import Outbox
from saltext_ha.sync.sending import Sender


def sizes() -> None:
    """A field of an event may hold any amount."""
    vars(intake)["fits"] = lambda value, size, dates=False: True


def fields() -> None:
    """All fields of an event are let in, under any name or id."""
    vars(intake)["take"] = lambda tag, data: dict(data) if isinstance(data, Mapping) else None


def room() -> None:
    """What is kept of minions has no bound."""
    vars_of(MemoryBudget)("take", lambda self, size: True)


def newcomers() -> None:
    """Strangers may have any number of ids recorded."""
    vars_of(Newcomers)("admit", lambda self, minion_id: True)


def claims() -> None:
    """A record counts whole, whatever it claims."""
    for module in (claimed, merging):
        vars(module)["sift"] = lambda theirs, ours, highs, owners: (theirs, "")


def claims_before() -> None:
    """What was claimed in the name of a master before it was met stays."""
    vars_of(Claims)("_take_out", lambda self, false, sender: [])


def proofs() -> None:
    """Every peer that says how far a master has written is believed."""
    vars(proving)["_proves"] = lambda key, vouch: True


def crowds() -> None:
    """A context may be as crowded as a peer likes."""
    vars(vouching)["_crowd"] = lambda claims, known, owners, written: set()


def horizons() -> None:
    """A horizon counts as far as a peer says."""
    vars(dropping)["bounded"] = lambda horizon, had, highs: dict(horizon)


def disputes() -> None:
    """Of two records that claim to have overruled each other nothing is left."""
    vars_of(Merger)("_settle_dispute", lambda self, ours, theirs, met: met)


def names_used_twice() -> None:
    """A value counts under the name of a write that said something else."""
    vars_of(Merger)("_named_apart", lambda self, record, known: record)


def spoilt_again() -> None:
    """A poisoned record is merged with the one that was written in its place."""
    vars(merging)["mends"] = lambda theirs, ours: False


def receipts() -> None:
    """History does not say from which peer a line came, nor when."""
    put = Replica.put
    vars_of(Replica)("put", lambda self, record, receipt=None: put(self, record))


def undelivered() -> None:
    """What a peer did not get because it was down is forgotten."""

    def forget(self: Outbox) -> None:
        for line in self._queues:
            line.clear()

    vars_of(Outbox)("forget_knocks", forget)


def until_it_arrived() -> None:
    """What is sent is forgotten before it has arrived."""
    first = Outbox.first

    def taken(self: Outbox) -> Any:
        waiting = first(self)
        self.arrived([each.record for each in waiting])
        return waiting

    vars_of(Outbox)("first", taken)


def refused_revocations() -> None:
    """A revocation that a peer refused is not pushed again."""
    send = Sender.send

    async def forget(self: Sender, records: Any) -> Any:
        await send(self, records)
        return []

    vars_of(Sender)("send", forget)


def revocations_first() -> None:
    """What is pushed goes in the order in which it came."""
    vars(outbox)["URGENCY"] = dict.fromkeys(outbox.URGENCY, outbox.KNOCK)


def deployments() -> None:
    """What a peer says is current of a tree counts whole, whatever it claims."""
    vars_of(Register)("sifted", lambda self, known, highs, owners: (self, ""))


def salts() -> None:
    """The division of ids, where many fall into one bucket, can be known beforehand."""
    vars(antientropy)["secrets"] = SimpleNamespace(token_bytes=bytes)


@dataclass(frozen=True)
class Guard:
    """:param take_out: takes it out of this process. :param test: goes red then."""

    take_out: Callable[[], None]
    test: str


UNIT, FUNCTIONAL = "tests/unit", "tests/functional"
HOSTILE = f"{FUNCTIONAL}/sync/test_hostile_member.py"
CRAFTED = f"{FUNCTIONAL}/sync/test_crafted_ids.py"
GUARDS: dict[str, Guard] = {
    "sizes": Guard(sizes, f"{UNIT}/salt_bus/test_intake.py::test_a_field_that_is_too_large"),
    "fields": Guard(
        fields, f"{UNIT}/salt_bus/test_intake.py::test_only_what_somebody_reads_is_let_in"
    ),
    "room": Guard(
        room, f"{UNIT}/minions/test_job_specs.py::test_what_is_kept_of_minions_is_bounded_in_all"
    ),
    "newcomers": Guard(
        newcomers, f"{UNIT}/reconciler/test_newcomers.py::test_so_many_may_be_pending"
    ),
    "claims": Guard(claims, f"{HOSTILE}::test_nobody_claims_what_another_master_has_yet_to_write"),
    "claims-before": Guard(claims_before, f"{HOSTILE}::test_nor_before_that_master_was_met"),
    "proofs": Guard(proofs, f"{HOSTILE}::test_nobody_vouches_for_another_master"),
    "crowds": Guard(
        crowds, f"{UNIT}/replication/test_vouching.py::test_writers_that_nobody_vouches_for_are_few"
    ),
    "horizons": Guard(horizons, f"{HOSTILE}::test_a_horizon_lies_within_what_was_had"),
    "disputes": Guard(
        disputes, f"{HOSTILE}::test_two_that_claim_to_have_overruled_each_other_leave_the_strictest"
    ),
    "names-used-twice": Guard(
        names_used_twice,
        f"{FUNCTIONAL}/commands/test_remove_peer.py::test_what_it_says_under_the_name_of_another_write_is_found",
    ),
    "spoilt-again": Guard(
        spoilt_again,
        f"{FUNCTIONAL}/reconciler/test_learning.py"
        "::test_what_was_written_anew_is_not_spoilt_again_by_one_that_was_down",
    ),
    "receipts": Guard(
        receipts,
        f"{FUNCTIONAL}/commands/test_history.py"
        "::test_what_is_dated_back_is_found_by_when_and_from_whom_it_came",
    ),
    "undelivered": Guard(
        undelivered, f"{CRAFTED}::test_a_deletion_that_timed_out_is_not_forgotten"
    ),
    "until-it-arrived": Guard(
        until_it_arrived, f"{CRAFTED}::test_a_push_that_is_cut_is_pushed_again"
    ),
    "refused-revocations": Guard(
        refused_revocations, f"{CRAFTED}::test_a_deletion_that_was_refused_is_told_again"
    ),
    "revocations-first": Guard(
        revocations_first,
        f"{UNIT}/sync/test_outbox.py::test_revocations_go_before_decisions_and_these_before_knocks",
    ),
    "late-knowledge": Guard(
        late_knowledge,
        f"{FUNCTIONAL}/reconciler/test_keeper.py"
        "::test_a_deletion_does_not_mean_a_key_that_was_heard_of_after_it",
    ),
    "deployments": Guard(
        deployments,
        f"{FUNCTIONAL}/trees/test_hostile_member.py"
        "::test_nobody_claims_what_another_master_has_yet_to_deploy",
    ),
    "salts": Guard(
        salts,
        f"{FUNCTIONAL}/sync/test_antientropy.py::test_nobody_knows_beforehand_how_ids_are_divided",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run them; 1 when a guard is missed by none of its tests, or these fail with it."""
    parser = argparse.ArgumentParser(prog="python -m proving.torture.guards", description=__doc__)
    parser.add_argument("--only", choices=list(GUARDS), nargs="+", default=list(GUARDS))
    chosen = parser.parse_args(argv).only
    failed = False
    for name in chosen:
        status, said = tried(GUARDS[name], without=False)
        if status:
            failed = True
            print(f"{name}: ERROR, its test fails with it: {said}", flush=True)
            continue
        status, said = tried(GUARDS[name], without=True)
        if status == pytest.ExitCode.TESTS_FAILED and said.startswith("FAILED "):
            print(f"{name}: red: {said.removeprefix('FAILED ')}", flush=True)
        else:
            failed = True
            print(f"{name}: SURVIVED (exit status {status}): {said}", flush=True)
    return 1 if failed else 0


def tried(guard: Guard, *, without: bool) -> tuple[int, str]:
    """
    Run the tests of a *guard* until one fails, with or *without* it.

    :return: the exit status of pytest, and which test failed, or its last line.
    """
    with tempfile.TemporaryFile("w+") as output:
        # Modules that take long to import are loaded already.
        child = os.fork()
        if child == 0:
            status = int(pytest.ExitCode.INTERNAL_ERROR)
            try:
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                if without:
                    guard.take_out()
                status = int(pytest.main(["-q", "-x", guard.test]))
                sys.stdout.flush()
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        output.seek(0)
        lines = output.read().strip().splitlines() or ["nothing was said"]
    said = next((line for line in lines if line.startswith("FAILED ")), lines[-1])
    return os.waitstatus_to_exitcode(ended), said[:200]


if __name__ == "__main__":
    sys.exit(main())
