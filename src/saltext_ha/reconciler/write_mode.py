"""Whether this master writes its key store, and believes what it shows; if not, why."""

from __future__ import annotations

ENFORCE, OBSERVE, PAUSED = "enforce", "observe", "paused"


class WriteMode:
    """
    What is done with the key store; the one place that decides and tells it.

    :param configured: ``ha: mode``.
    :param in_cluster: why Salt's own cluster writes it instead; empty without one, or with
        ``repair``.
    :param lost: as the attribute. :param adopted: as the attribute.
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
        """Why a store that another master shares is not written; empty when it is not shared."""
        self.paused = ""
        """That it is paused, since when and by whom, in words; empty when it is not."""
        self.lost = lost
        """Whether the replica was lost, and not all that the peers know was pulled yet."""
        self.adopted = adopted
        """Whether the store was adopted all the same: it showed no decision."""
        self.doubt = ""
        """Why the store is neither believed nor written at present; empty when it is."""

    @property
    def adopting(self) -> bool:
        """Whether nothing is recorded or written before the store is adopted."""
        return self.lost and not self.adopted

    @property
    def never(self) -> str:
        """
        Why this master never writes its key store, even on an operator's word; empty if it may.
        """
        return self._in_cluster or self.shared

    @property
    def why_not(self) -> str:
        """Why it is not to write now; empty when it is."""
        return self.paused or self.never

    @property
    def believes(self) -> bool:
        """Whether what the store shows is recorded."""
        return not (self.adopting or self.doubt)

    @property
    def able(self) -> bool:
        """Whether the store is brought in line with the records, unless it is in doubt."""
        return not (self.adopting or self.why_not)

    @property
    def writes(self) -> bool:
        """Whether it is."""
        return self.able and not self.doubt

    @property
    def name(self) -> str:
        """``enforce``, ``observe`` or ``paused``."""
        if self.never or (self.paused and self._configured == OBSERVE):
            return OBSERVE
        return PAUSED if self.paused else ENFORCE
