"""``ha.proxy_config``: each master says where its salt-api is; the one that is asked writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from saltext_ha.balancer import servers
from saltext_ha.balancer.render import render, wishes
from saltext_ha.balancer.servers import Address, Server
from saltext_ha.config.mapping import HaConfig
from saltext_ha.sync.group import Group, read_each
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class ProxyConfig:
    def __init__(self, group: Group, opts: Mapping[str, Any], config: HaConfig) -> None:
        self._group, self._opts, self._config = group, opts, config

    def for_peers(self) -> dict[str, Handler]:
        return {"salt_api": self.answer}

    async def answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """Where this master's salt-api and status listener are, for a peer."""
        return servers.to_wire(self._own())

    async def proxy_config(self, payload: dict[str, Any]) -> dict[str, Any]:
        wanted = wishes(**{key: value for key, value in payload.items() if key != "by"})
        answers, errors = await self._group.ask("salt_api")
        known = [self._own(), *read_each(answers, errors, servers.from_wire).values()]
        like = _usual([master.api for master in known if master.api], wanted.api_port)
        peers = self._group.peers
        # Callers must find a master that is down now when it is back.
        known += [
            servers.assumed(name, urlsplit(peers[name].url).hostname or name, like, why)
            for name, why in errors.items()
            if name in peers and like
        ]
        named = {master.name for master in known}
        known += [
            Server(name, None, problem=why) for name, why in errors.items() if name not in named
        ]
        known.sort(key=lambda master: master.name)
        text = render(wanted, self._config.group, self._group.name, known)
        return {
            "kind": "proxy_config",
            "text": text,
            "masters": [_shown(master) for master in known],
            "retcode": 2 if errors else 0,
        }

    def _own(self) -> Server:
        return servers.of_master(self._opts, self._config)


def _usual(known: list[Address], port: int) -> Address | None:
    """The port and TLS assumed of a master that cannot be asked."""
    if not known:
        return None
    common = Counter((address.port, address.tls) for address in known).most_common(1)[0][0]
    return Address("", port or common[0], common[1])


def _shown(master: Server) -> dict[str, Any]:
    return {
        "name": master.name,
        "api": master.api and master.api.netloc,
        "tls": bool(master.api and master.api.tls),
        "ready": master.status and master.status.netloc,
        "unknown": master.problem,
    }
