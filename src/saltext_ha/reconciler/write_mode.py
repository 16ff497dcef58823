"""Whether this master writes its key store, and believes what the store shows; if not, why."""

from __future__ import annotations

ENFORCE, OBSERVE, PAUSED = "enforce", "observe", "paused"

# Notes for operators.
IS_PAUSED = "paused: keys are compared and reported, the key store is not written"
OBSERVES = "mode observe: the key store is not written before salt-run ha.resume on this master"
LOST = "replica.db is gone, or an old copy"
ADOPTING = (
    f"{LOST}; nothing is recorded or applied until the peers have been asked: a key that is "
    "deleted or rejected here meanwhile comes back, so delete and reject keys on a peer"
)
PULLING = (
    f"{LOST}; keys are still coming from the peers: until all have come, delete and reject keys on "
    "a peer"
)


def pause_note(configured: str, since: str) -> str:
    """
    The note of a master that does not write its key store.

    :param configured: ``ha: mode``.
    :param since: since when and by whom it is paused, in words; empty if no operator paused it.
    """
    if since:
        return f"{IS_PAUSED}; {since}"
    return OBSERVES if configured == OBSERVE else IS_PAUSED


class WriteMode:
    """
    The one place that decides whether the key store is believed and written.

    :param configured: ``ha: mode``.
    :param in_cluster: why Salt's own cluster writes the store instead; empty without one, or with
        ``repair``.
    :param lost: see the attribute. :param adopted: see the attribute.
    """

    def __init__(
        self,
        configured: str = ENFORCE,
        in_cluster: str = "",
        lost: bool = False,
        adopted: bool = False,
    ) -> None:
        self._configured = configured
        self._in_cluster = in_cluster
        self.shared = ""
        """Why a shared store is not written; empty if no other master shares it."""
        self.paused = ""
        """The note of :func:`pause_note` while writing is paused; empty if it is not."""
        self.lost = lost
        """Whether the replica was lost, and not all that the peers know was pulled yet."""
        self.adopted = adopted
        """Whether the store was adopted early, because it showed no decision."""
        self.doubt = ""
        """Why the store is neither believed nor written at present; empty if it is not in doubt."""

    def pause(self, since: str) -> None:
        """Stop writing; *since* when and by whom, in words."""
        self.paused = pause_note(self._configured, since)

    def resume(self) -> None:
        """Write again."""
        self.paused = ""

    @property
    def adopting(self) -> bool:
        """Whether nothing is recorded or written before the store is adopted."""
        return self.lost and not self.adopted

    @property
    def lost_note(self) -> str:
        """A note that the replica was lost, and what to avoid meanwhile; empty if it was not."""
        if not self.lost:
            return ""
        return ADOPTING if self.adopting else PULLING

    @property
    def never(self) -> str:
        """
        Why this master never writes its key store, even on an operator's word; empty if it may.
        """
        return self._in_cluster or self.shared

    @property
    def why_not(self) -> str:
        """Why the store must not be written now; empty if :attr:`paused` and :attr:`never` are."""
        return self.paused or self.never

    @property
    def believes(self) -> bool:
        """Whether what the store shows is recorded."""
        return not (self.adopting or self.doubt)

    @property
    def able(self) -> bool:
        """Whether the store is brought in line with the records, if it is not in doubt."""
        return not (self.adopting or self.why_not)

    @property
    def writes(self) -> bool:
        """Whether it is in fact brought in line."""
        return self.able and not self.doubt

    @property
    def only_reports(self) -> bool:
        """Whether this master is configured to change nothing: it observes, or Salt writes."""
        return bool(self._in_cluster or (self.paused and self._configured == OBSERVE))

    @property
    def name(self) -> str:
        """``enforce``, ``observe`` or ``paused``."""
        if self.shared or self.only_reports:
            return OBSERVE
        return PAUSED if self.paused else ENFORCE
