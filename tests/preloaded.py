"""
The modules that a forked engine finds imported already (see ``tests/forked.py``).

It replaces ``time.time`` before it imports anything else. Code that asks the kernel itself, as
OpenSSL does, is not deceived.
"""

from __future__ import annotations

import gc
import time

from tests.shifted import shifted

time.time = shifted(time.time)

from lab import engines  # noqa: E402
from saltext_ha.common import fail_points  # noqa: E402
from saltext_ha.engine import main as service  # noqa: E402

__all__ = ["engines", "fail_points", "service"]

gc.collect()
gc.freeze()  # a collection in a forked process would copy all shared memory
