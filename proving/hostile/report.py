"""The table of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proving import harness
from proving.hostile.attack import Tally
from proving.hostile.honest import Served
from proving.hostile.target import Figures

HEAD = (
    "door",
    "inputs",
    "per s",
    "accepted",
    "crashes",
    "memory MB before/peak/after",
    "log KB",
    "honest ms median / p99",
    "failed",
)
REASONS = 8


@dataclass(frozen=True)
class Row:
    """One door: what was sent, its effect on the engine, and how the honest peer was served."""

    door: str
    tally: Tally
    figures: Figures
    served: Served

    def cells(self) -> list[str]:
        """As texts, in the order of HEAD."""
        tally, figures = self.tally, self.figures
        memory = "/".join(f"{n / 1e6:.0f}" for n in (figures.before, figures.peak, figures.after))
        return [
            self.door,
            f"{tally.inputs}",
            f"{tally.inputs / max(tally.seconds, 0.001):.0f}",
            f"{tally.accepted}",
            f"{len(tally.crashes)}",
            memory,
            f"{figures.log / 1000:.0f}",
            str(self.served) if self.served.calls else "-",
            f"{self.served.failed} of {self.served.failed + self.served.calls}",
        ]

    def reasons(self) -> str:
        """Refusals by reason, the most frequent first."""
        common = self.tally.refused.most_common(REASONS)
        rest = len(self.tally.refused) - len(common)
        shown = ", ".join(f"{reason} {count}" for reason, count in common)
        more = f", and {rest} others" if rest > 0 else ""
        return f"{self.door}: {'; '.join([(shown or '-') + more, *self.tally.notes])}"


def table(rows: Sequence[Row], quiet: Served) -> str:
    """The whole report; *quiet*: how the honest peer was served before."""
    text = [harness.aligned([HEAD, *(row.cells() for row in rows)])]
    text += ["", f"honest peer, nobody attacking: {quiet} ms", "", "refused:"]
    return "\n".join([*text, *(f"  {row.reasons()}" for row in rows)])
