"""Does the minion of a watchdog still run?"""

from __future__ import annotations

import os
from pathlib import Path

from saltext_ha.minion.watchdog.parent_minion import ParentMinion


def test_a_minion_that_ends_before_the_engine_has_waited_for_it(tmp_path: Path) -> None:
    """The engine looks up all masters first, and a name service may not answer."""
    pidfile = tmp_path / "salt-minion.pid"
    pidfile.write_text(str(os.getppid()))
    minion = ParentMinion({"pidfile": str(pidfile)})
    assert minion.lasts(0)
    ends = ParentMinion({"pidfile": str(pidfile)})
    pidfile.unlink()
    assert not ends.lasts(0)
    assert not minion.lasts(0)
    assert ParentMinion({"pidfile": str(pidfile)}).lasts(0), "it never named the minion"
