"""The description of the status listener, as OpenAPI 3.0 has it: what each page answers."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
YES_NO: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
ANYTHING: Schema = {"type": "object"}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


def _one_of(*words: str) -> Schema:
    return {**TEXT, "enum": list(words)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(*required: str, **properties: Schema) -> Schema:
    need = {"required": list(required)} if required else {}
    return {"type": "object", **need, "properties": properties}


def _counts(*names: str) -> Schema:
    return _map(**dict.fromkeys(names, WHOLE))


_CALLERS = _map(
    *("status", "master_count", "healthy_count", "masters"),
    status=_said(_one_of("online", "degraded", "offline"), "All masters are healthy, some, none."),
    master_count=WHOLE,
    healthy_count=WHOLE,
    masters=_list(
        _map(
            *("url", "healthy"),
            url=_said(
                TEXT,
                "Of salt-api there; empty without one. Of a master that does not answer, the last "
                "that is known.",
            ),
            healthy=_said(
                YES_NO,
                "The master serves and has a salt-api to be called. False, too, where nothing is "
                "known.",
            ),
            known=YES_NO,
            ready=YES_NO,
            name=TEXT,
            reason=TEXT,
        )
    ),
    group=TEXT,
    at=_said(NUMBER, "Unix seconds."),
)

_LEADER = _map(
    store=_said(TEXT, "Where it is decided; empty: this master takes no part."),
    leader=_said(_or_null(TEXT), "Its name; null: nobody leads."),
    leads=_said(YES_NO, "Whether this master does."),
    why=_said(TEXT, "Nobody leads; else empty."),
    since=_said(NUMBER, "Unix seconds."),
    apart={**_said(ANYTHING, "Master → why it takes no part."), "additionalProperties": TEXT},
    fence=_said(_or_null(WHOLE), "Grows with each change of leaders, where the store has that."),
)

_MASTER = _map(
    *("name", "state", "health"),
    name=TEXT,
    self=YES_NO,
    state=_one_of("running", "unknown"),
    salt=_or_null(TEXT),
    accepted=_or_null(WHOLE),
    pending=_or_null(WHOLE),
    rejected=_or_null(WHOLE),
    denied=_or_null(WHOLE),
    behind=_or_null(WHOLE),
    held=_or_null(WHOLE),
    doubt=_said(TEXT, "Why nothing in its key store is believed; empty when it is."),
    busy=_said(
        NUMBER,
        "Seconds for which it has been busy with its keys, and its numbers are old; 0 when they "
        "are not.",
    ),
    bound=_or_null(WHOLE),
    mines=_said(
        _or_null(_counts("older", "unknown")),
        "Of the minions that came to it lately: whose mine is older there than on the master that "
        "they left; and those of which that is not known, as that master does not answer, or they "
        "came just now. Null: it does not compare them.",
    ),
    seen=_said(_or_null(NUMBER), "Seconds since it last answered."),
    master_key=_said(
        _or_null(TEXT),
        "Its fingerprint; empty where a signing key vouches for it, or it is not known.",
    ),
    note=TEXT,
    health=_map(
        healthy=_or_null(YES_NO), ready=YES_NO, reason=TEXT, url=TEXT, checks=_list(ANYTHING)
    ),
)

_STATUS = _map(
    *("state", "masters", "consistency", "conflicts", "held", "at"),
    state=_one_of("ok", "degraded", "unknown"),
    at=_said(NUMBER, "When this was looked at, in Unix seconds."),
    master=_said(TEXT, "Who answers."),
    group=TEXT,
    mode=TEXT,
    tolerates=_said(WHOLE, "How many masters may be lost."),
    leader=_said(_LEADER, "Which master runs what runs once."),
    masters=_list(_MASTER),
    conflicts=_list(ANYTHING),
    conflict_count=WHOLE,
    held=_list(ANYTHING),
    consistency=_map(
        status=_one_of("same", "differ", "unknown"),
        stale=_said(
            TEXT,
            "why the last comparison counts no more, and status is unknown; empty while it does",
        ),
        at=_or_null(NUMBER),
        sections=ANYTHING,
        unknown=ANYTHING,
    ),
    changes=_list(ANYTHING),
    failovers=_map(count=WHOLE, last=_list(ANYTHING)),
    notes=_list(TEXT),
    reasons=_said(
        _list(
            _map(
                about=_said(TEXT, "A master, or what of the group: conflicts, comparison, group."),
                kind=TEXT,
                states=_list(_one_of("degraded", "unknown")),
                text=TEXT,
            )
        ),
        "Why state is not ok; empty where it is.",
    ),
)

_MINIONS = _map(
    *("minions", "total"),
    total=WHOLE,
    minions=_list(_map(id=TEXT, state=TEXT, masters=_list(TEXT))),
    counts=ANYTHING,
    unknown=ANYTHING,
    online=_said(
        _counts("online", "offline", "unknown"),
        "How many are online, offline, and of how many that is unknown; each minion counts once.",
    ),
)

_SCHEMAS = {
    "Callers": _CALLERS,
    "Status": _STATUS,
    "Minions": _MINIONS,
    "Error": _map("error", error=_said(TEXT, "What is wrong, and what is taken.")),
}


def _answer(description: str, kind: str = "text/plain", schema: Schema = TEXT) -> Schema:
    return {"description": description, "content": {kind: {"schema": schema}}}


def _named(name: str, description: str) -> Schema:
    """An answer in JSON, as the schema *name* has it."""
    return _answer(description, "application/json", {"$ref": f"#/components/schemas/{name}"})


def _page(ok: Schema, *, open: bool = False, **others: Schema) -> Schema:
    """
    One page.

    :param ok: its answer with the code 200.
    :param open: whether it is shown without the token, and by any name of the host.
    :param others: code, after an underscore → answer.
    """
    codes = {code.strip("_"): answer for code, answer in others.items()}
    if not open:
        codes["401"] = {"$ref": "#/components/responses/NoToken"}
        codes["421"] = {"$ref": "#/components/responses/OtherName"}
    responses = {"200": ok, **dict(sorted(codes.items()))}
    return {"get": {"summary": ok["description"], "responses": responses}}


_NOT_KNOWN = _answer("The state of the group is not known yet.")
_FIND = _page(
    _named("Minions", "On which masters minions hang."),
    _400=_named("Error", "glob or limit is wrong, or there is another parameter."),
    _503=_answer("This master cannot read its keys."),
)
_FIND["get"]["parameters"] = [
    {"name": "glob", "in": "query", "schema": {**TEXT, "default": "*"}},
    {"name": "limit", "in": "query", "schema": {**WHOLE, "maximum": 1000, "default": 100}},
]

DESCRIPTION: Schema = {
    "openapi": "3.0.3",
    "info": {
        "title": "saltext-ha status",
        "version": "1",
        "description": "What the engine of one Salt master says about its group. Nothing can be "
        "changed here. Fields may be added; those listed here stay.",
    },
    "paths": {
        "/live": _page(_answer("The engine, and the salt-master that started it, run."), open=True),
        "/ready": _page(
            _answer("This master should be given callers."),
            open=True,
            _503=_answer(
                "It should not; the body is the reason: unhealthy, drained, starting, not yet in "
                "sync with its peers."
            ),
        ),
        "/api/saltstack/status": _page(
            _named("Callers", "Where salt-api is, and which master is healthy."), _503=_NOT_KNOWN
        ),
        "/status.json": _page(
            _named(
                "Status",
                "All that is known of the group; the header Age says how many seconds old it is.",
            ),
            _503=_NOT_KNOWN,
        ),
        "/events": _page(
            _answer(
                "The same every few seconds, as server-sent events named status: {age, status}; an "
                "event named trouble is a reason why there is nothing.",
                "text/event-stream",
            ),
            _503=_answer("Too many follow; ask /status.json instead."),
        ),
        "/minions.json": _FIND,
        "/metrics": _page(
            _answer("Metrics for Prometheus."),
            _501=_answer("prometheus_client is not installed."),
            _503=_NOT_KNOWN,
        ),
        "/": _page(_answer("The status page.", "text/html")),
        "/openapi.json": _page(_answer("This description.", "application/json", ANYTHING)),
    },
    "components": {
        "securitySchemes": {
            "basic": {
                "type": "http",
                "scheme": "basic",
                "description": "Any user, the token as password.",
            },
            "bearer": {"type": "http", "scheme": "bearer"},
        },
        "responses": {
            "NoToken": _answer("A token is set, and it was not sent."),
            "OtherName": _answer(
                "No token is set, and the request was sent to a name of another host."
            ),
        },
        "schemas": _SCHEMAS,
    },
    "security": [{}, {"basic": []}, {"bearer": []}],
}
