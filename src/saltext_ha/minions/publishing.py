"""Hands a job to this master, by Salt's own client."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.common.errors import HaError, PublishingTimedOut, reason_of
from saltext_ha.minions.job_specs import Spec

PUBLISHING = 10.0  # seconds that Salt's own publisher may take

Publish = Callable[[Mapping[str, Any], Spec, str], list[str]]


def new_jids(count: int) -> list[str]:
    """*count* different job ids, made from the time as Salt makes them."""
    now = datetime.datetime.now(datetime.timezone.utc)
    moments = (now + datetime.timedelta(microseconds=number) for number in range(count))
    return [f"{moment:%Y%m%d%H%M%S%f}" for moment in moments]


def publish_here(opts: Mapping[str, Any], spec: Spec, jid: str) -> list[str]:
    """
    Publish on the master with *opts*; blocks.

    :return: the ids of the accepted minions that the job is for.
    :raises HaError: the master did not take it; says why.
    """
    import salt.client
    import salt.exceptions

    function, target, kind, arguments = spec.job()
    kept = {"metadata": dict(spec.metadata)} if spec.metadata else {}
    try:
        # Salt would ask three times: no caller waits for that, and the job might go out twice.
        once = {"request_channel_tries": 1, "request_channel_timeout": PUBLISHING}
        with salt.client.LocalClient(mopts={**opts, **once}) as client:
            told = client.pub(
                target, function, arguments, tgt_type=kind, jid=jid, timeout=PUBLISHING, **kept
            )
    # Salt's client and transports raise many kinds; without a key, the client ends the program.
    except (Exception, SystemExit) as exc:
        reason = reason_of(exc)
        timed_out = isinstance(exc, salt.exceptions.SaltReqTimeoutError)
        error = PublishingTimedOut if timed_out else HaError
        raise error(f"{reason.splitlines()[0][:300]}; is salt-master well?") from None
    if told and told.get("jid") is None and not told.get("minions"):
        return []  # none of them has an accepted key here
    if not told or told.get("jid") != jid:
        raise HaError("salt-master did not take the job")
    return [str(each) for each in told.get("minions") or ()]
