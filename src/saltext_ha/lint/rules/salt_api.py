"""Rules on salt-api beside a master."""

from __future__ import annotations

from saltext_ha.lint.cited import CitedLine
from saltext_ha.lint.model import MASTER, Hit, Hits, HostFacts, RuleBook
from saltext_ha.lint.rules.master import in_group

BOOK = RuleBook(MASTER)

REST = ("rest_cherrypy", "rest_tornado")


@BOOK.info(
    "HA510",
    "salt-api with logins of this master only",
    CitedLine(
        "salt/netapi/rest_cherrypy/app.py:822 salt_auth_tool", 'if "token" not in cherrypy.session:'
    ),
    CitedLine("salt/tokens/localfs.py:57 get_token", "token_dir"),
    CitedLine("salt/config/__init__.py:1745", '"eauth_tokens": "localfs",'),
    why="A token from one master is 401 on another: callers behind a load balancer are logged out "
    "when they are sent elsewhere. rest_cherrypy keeps its sessions in memory besides: there a "
    "token is 401 on another master even where eauth_tokens is a store that all share.",
    fix="have the load balancer keep a caller on one master, or use SaltApiPool, which logs in on "
    "each (docs/api-pool.md); with rest_tornado alone, eauth_tokens in a store that all masters "
    "share (such as rediscluster) is enough",
)
def local_tokens(facts: HostFacts) -> Hits:
    local = facts.get("eauth_tokens") == "localfs"
    for rest in REST if in_group(facts) else ():
        if facts.get(rest) and (local or rest == "rest_cherrypy"):
            yield Hit(rest, "eauth_tokens: localfs" if local else "sessions in memory")


@BOOK.info(
    "HA514",
    "salt-api that answers for a salt-master that is dead",
    CitedLine("salt/netapi/rest_cherrypy/app.py:1304 LowDataAdapter.GET", '"return": "Welcome"'),
    CitedLine(
        "salt/netapi/rest_tornado/saltnado.py:871 SaltAPIHandler.get", '"return": "Welcome"}'
    ),
    why="GET / of salt-api says Welcome while its salt-master does not run: a load balancer that "
    "asks for that sends callers to a dead master.",
    fix="have the load balancer ask for what takes a salt-master, such as POST /login; or use "
    "SaltApiPool (docs/api-pool.md)",
)
def welcome(facts: HostFacts) -> Hits:
    for rest in REST:
        if facts.get(rest) and in_group(facts):
            yield Hit(rest, "is configured")
