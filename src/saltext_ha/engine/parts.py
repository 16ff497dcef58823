"""The parts of an engine, except those that answer peers and commands (:mod:`.wiring`)."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.commands.keys import key_pages
from saltext_ha.common import master_key
from saltext_ha.common.counters import Counters
from saltext_ha.common.errors import ConfigError
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.refusals import Refusals
from saltext_ha.common.tasks import Ending, Tasks
from saltext_ha.config.mapping import HaConfig
from saltext_ha.consistency.git import fetched_within
from saltext_ha.engine.startup import open_keeper
from saltext_ha.engine.state_folder import StateFolder
from saltext_ha.health.echoes import Echoes
from saltext_ha.health.watcher import Watcher
from saltext_ha.membership import handover
from saltext_ha.membership.admission import Admission
from saltext_ha.membership.group_secret import GroupSecret
from saltext_ha.membership.invites import Invites
from saltext_ha.membership.membership import Membership
from saltext_ha.membership.renewal import Renewal
from saltext_ha.minions.connections import is_ours
from saltext_ha.minions.failovers import Failovers
from saltext_ha.minions.presence import Presence
from saltext_ha.minions.returns import Returns
from saltext_ha.once import leader, locks
from saltext_ha.once.candidate import Candidate
from saltext_ha.once.leader import Leader
from saltext_ha.once.reactions import Reactions
from saltext_ha.once.runs import Runs
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.hints import Hints
from saltext_ha.reconciler.wheel_calls import WheelCalls
from saltext_ha.replica import state_owner
from saltext_ha.salt_bus import proof
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.intake import MemoryBudget
from saltext_ha.salt_bus.proof import Proofs
from saltext_ha.salt_bus.reactor import Reactor
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import Group
from saltext_ha.sync.hello import Hello
from saltext_ha.sync.link import Link
from saltext_ha.sync.links import Links
from saltext_ha.sync.rebuilding import Rebuilding
from saltext_ha.sync.repair_leases import RepairLeases
from saltext_ha.sync.retention import Retention
from saltext_ha.sync.rounds import Rounds
from saltext_ha.sync.sending import Sender
from saltext_ha.sync.shared_store import SharedStore
from saltext_ha.transport import identity as identities
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.trust import Trust
from saltext_ha.trees.registers import TreeRegisters
from saltext_ha.trees.stager import Stager
from saltext_ha.trees.trees import Trees

NONSENSE = "nonsense about a tree"


class Parts:
    """
    The parts of one engine. None of them gets this object; each gets only what it uses.

    :param opts: the running master's configuration, as engines get it in ``__opts__``.
    :param tasks: the links to peers run in them.
    :raises ConfigError: the configuration contradicts the state folder. :raises HaError: the state
        folder cannot be used.
    """

    def __init__(self, opts: Mapping[str, Any], config: HaConfig, tasks: Tasks) -> None:
        self.opts, self.config = opts, config
        self._tasks = tasks
        self.ending = Ending()
        self.notes: dict[str, str] = {}
        """Notes for operators, by subject."""
        self.later_notes: list[Callable[[], Iterable[str]]] = []
        """The notes of parts that are made later (:mod:`.wiring`)."""
        self.counters = Counters()
        # Salt has made or read the key by now, and reads it no more.
        self.master_key = master_key.at_start(opts)
        """The fingerprint of the key by which minions know the running master; empty: unknown."""
        self.looks = Looks()
        """Looks at the state folder."""
        self.trust = Trust(config.state_dir, config.peers, config.max_members, self.looks)
        self.renewal = Renewal(
            identities.load_or_create(config.state_dir, config.name),
            config.state_dir,
            config.name,
            self.trust,
            config.peer_timeout,
        )
        self.refusals = Refusals(self.trust.last_change)
        """Callers that the peers' listener turned away."""
        self.proofs = Proofs(self._event_key())
        """Tells which events are this master's own."""
        # Consumers of events, in this order: hints take the user's name from the calls.
        self._calls = WheelCalls()
        self.presence = Presence(functools.partial(is_ours, opts))
        self.memory = MemoryBudget()
        self.returns = Returns(memory=self.memory)
        self.failovers = Failovers()
        self.bus = EventBus(opts, (self._calls.heard, self.presence, self.returns, self.failovers))
        if config.name in self.trust.pinned():
            raise ConfigError(
                f"{config.source}: ha: name: {config.name!r} is the name of a pinned peer; every "
                "master of a group needs a name of its own"
            )

    @property
    def identity(self) -> Identity:
        """The identity that this master shows at present."""
        return self.renewal.identity

    def _event_key(self) -> bytes:
        try:
            return proof.key_of(self.config.state_dir)
        except (OSError, ValueError) as exc:
            # Without the key only reactors suffer; the engine still keeps minion keys the same.
            self.notes["events"] = (
                f"reactors that check ha.genuine ignore all events: {exc}; make events.key in the "
                "state folder readable for salt-master, or remove it, and restart salt-master"
            )
            return secrets.token_bytes(proof.KEY_BYTES)

    # -- the parts, each built after those that it uses

    def build(self, announce: Announcer) -> None:
        """
        Build all parts that use replica.db; in the event loop.

        :param announce: fires events.
        :raises HaError: replica.db or the key store cannot be used.
        """
        self.announce = announce
        self.hints = Hints(self._calls)
        self.bus.add(self.hints)
        self._build_keys()
        try:
            self._build_group()
            self._build_watching()
        except BaseException:
            self.core.close()
            raise

    def _build_keys(self) -> None:
        """The key store, the replica, and the parts that reconcile them."""
        opened = open_keeper(
            self.opts,
            self.config,
            self.trust,
            lambda: self.identity,
            counters=self.counters,
            notes=self.notes,
            announce=self.announce,
            calls=self._calls,
        )
        self.vouching, self._shared_with = opened.vouching, opened.shared_with
        self.core = Core(opened.keeper, lambda records: self.links.push(records))
        self.state_folder = StateFolder(
            self.config.state_dir, lambda: self.identity, self.looks, self.trust.look
        )

    def _build_group(self) -> None:
        """The trust in peers, the links to them, and the exchange with them."""
        config, core, trust = self.config, self.core, self.trust
        self.membership = Membership(
            self.identity, trust, config.name, config.url, config.group, config.peer_timeout
        )
        self.renewal.shown_by.append(self.membership.show)
        self.hello = Hello(config, core.keeper, self.vouching)
        self.leases = RepairLeases(config.name)
        self.links = Links(trust, lambda: self.identity, self._link, self._tasks)
        self.retention = Retention(
            config.name,
            core,
            trust,
            self.links.contacts,
            keep=config.keep_tombstones,
            pause=config.sync_interval,
        )
        self.shared_store = SharedStore(
            core,
            trust,
            self.links.contacts,
            names=self._shared_with,
            patience=config.scan_interval,
        )
        self.rebuilding = Rebuilding(core, trust, self.links, self.retention.pull)
        self.group = Group(config.name, core, trust, self.links, config.peer_timeout)
        self.admission = self._admission()

    def _link(self, peer: Peer, identity: Identity) -> Link:
        config, core, vouching, counters = self.config, self.core, self.vouching, self.counters
        client = PeerClient(identity, peer, config.peer_timeout)
        contact = Contact(client, self.announce, config.sync_interval)
        sender = Sender(contact, peer.name, core, vouching, counters)
        rounds = Rounds(contact, sender, core, vouching, self.leases, counters)
        greet, reconcile = self.hello.greet, self.renewal.reconcile
        return Link(contact, sender, rounds, greeting=greet, met=self._met, mistrusted=reconcile)

    async def _met(self, contact: Contact) -> None:
        await self.shared_store.check(contact)
        await self.rebuilding.met()

    def _admission(self) -> Admission:
        config, opts, contacts = self.config, self.opts, self.links.contacts
        secret = None
        if config.secret:
            secret = GroupSecret(
                config.state_dir, config.group, config.share_master_key, config.secret
            )
        return Admission(
            self.membership,
            self.trust,
            Invites(config.state_dir),
            share=lambda i: handover.take(opts, i.shares) if i.shares else handover.show(opts),
            preview=functools.partial(key_pages.offer, self.core, opts),
            secret=secret,
            seen=lambda name: contact.ago() if (contact := contacts.get(name)) else None,
        )

    def _build_watching(self) -> None:
        """Trees, health, the leader, and the regular comparison of masters."""
        config, contacts = self.config, self.links.contacts
        refuse = functools.partial(self.refusals.add, NONSENSE)
        self.tree_registers = registers = TreeRegisters(
            [tree.name for tree in config.trees], self.core, contacts, refuse, self.vouching
        )
        self.stager = Stager(config.trees, contacts, refuse, registers.kept, self.ending.check)
        self.watch = ConsistencyWatch(
            config.state_dir,
            config.name,
            self.announce,
            config.consistency.interval,
            members=lambda: {config.name, *self.trust.peers()},
            up=lambda: {config.name, *(name for name, contact in contacts.items() if contact.up)},
            looks=self.looks,
            fetched=fetched_within(self.opts),
        )
        self.trees = Trees(
            self.stager,
            registers,
            self.core,
            self.announce,
            cachedir=Path(self.opts["cachedir"]),
            interval=config.sync_interval,
            switched=self.watch.mended,
        )
        self.health = Watcher(
            config.health,
            self.opts,
            host=config.address,
            core=self.core,
            pins=self.trust,
            contacts=contacts,
            echoes=Echoes(config.name, self.bus, self.announce, self.proofs),
            damage=self.damage,
            behind=self.trees.behind,
        )
        self.leader: Leader = leader.make(
            Candidate(config.name, self._unfit_to_lead, self.announce),
            config.group,
            config.leader,
            contacts,
            # A damaged file of a master ends the contact to it, not its membership.
            lambda name: name in contacts or name in self.group.masters,
        )
        self.reactions = self._reactions() if config.once.reactor else None
        self.locks = locks.make(config.name, config.group, config.leader, contacts, self.leader)
        self.runs = Runs(
            config.name,
            self.core,
            contacts,
            self.leader,
            self.vouching,
            config.sync_interval,
        )

    def _unfit_to_lead(self) -> str:
        """Why this master should not act for the group; empty if it may."""
        named = (contact.greeting.caller for contact in self.links.contacts.values())
        # Both it and the first of the others would lead: no view counts under another name.
        renamed = next((name for name in named if name not in ("", self.config.name)), "")
        return self.health.unfit_to_lead() or (
            f"the group knows it as {renamed}, and ha: name: is another" if renamed else ""
        )

    def _reactions(self) -> Reactions:
        """The reactor that reacts on the leader only."""
        reactor = Reactor(self.opts, self.announce.fire)
        reactions = Reactions(
            self.config.name,
            self.links.contacts,
            self.leader,
            reactor,
            self.announce.fire,
            self.proofs,
            hears=lambda minion_id: bool(self.presence.sights([minion_id])),
        )
        reactor.heard = reactions.heard
        return reactions

    # -- notes for operators

    def damage(self, lately: bool = False) -> str:
        """
        Why this engine is of no use although it runs; empty when it is. Tables, the page and
        metrics all ask this.

        :param lately: an answer of the last two seconds will do.
        """
        return self.state_folder.problem(lately)

    def all_notes(self) -> Iterable[str]:
        """All notes about this master except those about keys; some are empty."""
        yield from self.notes.values()
        yield self.core.mode.paused
        yield from self.renewal.notes()
        yield from self.membership.notes()
        for name in sorted(self.config.peers.keys() - self.group.masters):
            yield f"ha: peers: no member is called {name}, so the URL there is not used"
        yield from self.vouching.notes()
        damage = self.damage()
        yield damage
        if not damage:  # otherwise a file there may hang
            yield state_owner.turned_away(self.config)
        yield self.memory.note()
        yield from self.trees.notes()
        yield from self.leader.notes()
        yield from self.runs.notes()
        yield from self.rebuilding.notes()
        if self.reactions:
            yield from self.reactions.notes()
        for notes in self.later_notes:
            yield from notes()
