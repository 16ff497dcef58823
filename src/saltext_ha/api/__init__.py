"""
The salt-api pool: one client for the salt-api of several masters.

::

    from saltext_ha.api import SaltApiPool

    with SaltApiPool() as pool:  # SALT_MASTERS_CONFIG and the like say where
        pool.local("web*", "test.ping")

.. versionadded:: 0.1.0
"""

from saltext_ha.api.config import Endpoint, InsecureConnection, Secret
from saltext_ha.api.errors import (
    ApiPoolError,
    BadConfiguration,
    CallFailed,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    PartlyRun,
    TargetNotDivided,
    TimedOut,
)
from saltext_ha.api.jobs import Job, JobStatus, Returns
from saltext_ha.api.minions import Minions
from saltext_ha.api.pool import SaltApiPool
from saltext_ha.api.selection import Policy

__all__ = [
    "ApiPoolError",
    "BadConfiguration",
    "CallFailed",
    "Endpoint",
    "InsecureConnection",
    "Job",
    "JobStatus",
    "Minions",
    "NoMasterAvailable",
    "NotAuthorised",
    "OutcomeUnknown",
    "PartlyRun",
    "Policy",
    "Returns",
    "SaltApiPool",
    "Secret",
    "TargetNotDivided",
    "TimedOut",
]
