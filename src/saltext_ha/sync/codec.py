"""The form of records on the wire: plain lists, checked as if from a stranger."""

from __future__ import annotations

import re
from typing import Any

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.common.printable import is_printable
from saltext_ha.common.validators import is_number
from saltext_ha.keystore import minion_key
from saltext_ha.replication.record import STATES, Dot, Record, Value, covers
from saltext_ha.replication.vouching import MAX_COUNTER
from saltext_ha.transport import wire

NODE = re.compile(r"[0-9a-f]{16}")
MAX_VALUES = 128
# Far more than sift() lets through, so that no honest write is ever refused.
MAX_CONTEXT = 65_536
MAX_TIME = 1e15  # seconds; also keeps out NaN, infinity and what no float can hold
MAX_TEXT = 64


def to_wire(record: Record) -> list[Any]:
    """``[id, public key, [[node, counter, state, at, by, on], …], [[node, counter], …]]``."""
    return [
        record.minion_id,
        record.public_key,
        [[*v.dot, v.state, v.at, v.by, v.on] for v in record.values],
        [list(seen) for seen in record.context],
    ]


def from_wire(raw: Any) -> Record:
    """
    The record that a peer sent.

    :raises InvalidRecord: names the minion id and what is wrong; use nothing of that record.
    """
    if not isinstance(raw, (list, tuple)) or len(raw) < 4:
        raise InvalidRecord("a record is a list of id, key, values and context")
    minion_id, text, values, context = raw[:4]
    minion_id = minion_key.check_id(minion_id)
    try:
        return _record(minion_id, text, values, context)
    except InvalidRecord as exc:
        raise InvalidRecord(f"record of {minion_id!a}: {exc}") from None
    except (TypeError, ValueError) as exc:
        raise InvalidRecord(f"record of {minion_id!a}: malformed: {exc}") from None


def _record(minion_id: str, text: Any, values: Any, context: Any) -> Record:
    if not isinstance(text, str):
        raise InvalidRecord("the public key is not a text")
    if text != minion_key.normalise(text):
        raise InvalidRecord("the public key is not in normal form")
    minion_key.check(text)
    if not 1 <= len(values) <= MAX_VALUES or not 1 <= len(context) <= MAX_CONTEXT:
        raise InvalidRecord("it has no values or too many")
    seen = read_context(context)
    read = tuple(sorted(_value(*each) for each in wire.rows(values, "values", *[object] * 6)))
    if len({v.dot for v in read}) != len(read):
        raise InvalidRecord("a write stands twice")
    if not all(covers(seen, value.dot) for value in read):
        raise InvalidRecord("a value is not covered by its context")
    return Record(minion_id, minion_key.fingerprint(text), text, read, tuple(sorted(seen.items())))


def read_context(raw: Any) -> dict[str, int]:
    """
    ``[[node, counter], …]`` from a peer.

    :raises InvalidRecord: it makes no sense.
    """
    entries = wire.rows(raw, "context", object, object)
    seen = {_node(node): _counter(counter) for node, counter in entries}
    if len(seen) != len(entries):
        raise InvalidRecord("a node stands twice")
    return seen


def _value(node: Any, counter: Any, state: Any, at: Any, by: Any, on: Any) -> Value:
    if not isinstance(state, str) or state not in STATES:
        raise InvalidRecord(f"unknown state {state!r:.40}")
    if not is_number(at) or not abs(at) < MAX_TIME:
        raise InvalidRecord("a time is not a number")
    return Value(Dot(_node(node), _counter(counter)), state, float(at), _text(by), _text(on))


def _node(node: Any) -> str:
    if not isinstance(node, str) or not NODE.fullmatch(node):
        raise InvalidRecord(f"{node!r:.40} does not name a node")
    return node


def _counter(counter: Any) -> int:
    if isinstance(counter, bool) or not isinstance(counter, int) or not 0 < counter < MAX_COUNTER:
        raise InvalidRecord(f"{counter!r:.40} is not a counter")
    return counter


def _text(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MAX_TEXT or not is_printable(text):
        raise InvalidRecord(f"{text!r:.40} is not a short text")
    return text
