"""
Which master is the minion connected to, and which masters answer?

The evidence is the connections of the minion's process, which is not this one
(:mod:`saltext_ha.minion.binding`), and a request in clear text over a separate connection. The
request needs no key and authenticates nothing; a worker of the master sends it back. A master whose
publisher does not greet (:mod:`saltext_ha.minion.watchdog.publisher`) counts as not answering, and
so does the current one if the minion's connections to it get no answers
(:mod:`saltext_ha.minion.watchdog.probes`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.minion import binding, pings
from saltext_ha.minion.binding import Running, SeenMaster
from saltext_ha.minion.tcp_links import Link, TcpLinks
from saltext_ha.minion.watchdog import admission, publisher
from saltext_ha.minion.watchdog.admission import AuthRefusal
from saltext_ha.minion.watchdog.decide import WatchdogLook

RESOLVE_AGAIN = 60.0
LOST = 2  # probes without an answer; the second one is sent when the first has waited its time


class AddressBook:
    """
    The addresses of the masters, looked up in another thread: a name service that is unresponsive
    together with the master must not keep the watchdog from noticing.
    """

    used: frozenset[str] = frozenset()
    """The addresses that the minion is connected to."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.masters: tuple[SeenMaster, ...] = tuple(binding.locate(running))

    def refresh(self) -> None:
        """
        Look up all masters again. One whose name does not resolve now keeps its addresses; an
        address in use is kept in any case: some name services tell another one each time.
        """
        found = binding.locate(self.running)
        pairs = zip(found, self.masters, strict=True)
        self.masters = tuple(self._renewed(new, old) for new, old in pairs)

    def _renewed(self, new: SeenMaster, old: SeenMaster) -> SeenMaster:
        if not new.ips:
            return replace(new, ips=old.ips, publish_port=old.publish_port, note=None)
        port = new.publish_port or old.publish_port
        return replace(new, ips=new.ips | (old.ips & self.used), publish_port=port)

    def hosts(self, master: SeenMaster) -> list[str | None]:
        """
        What Salt may call *master*: its own host comes first, then those of other entries that lead
        to the address in use. Which of them Salt took is not seen.
        """
        ips = master.ips & self.used or master.ips
        same = (each.host for each in self.masters if each.port == master.port and each.ips & ips)
        return list(dict.fromkeys([master.host, *same]))

    def keep_fresh(self) -> None:
        """Refresh every minute, in a thread that ends with the process."""

        def loop() -> None:
            while True:
                time.sleep(RESOLVE_AGAIN)
                self.refresh()

        threading.Thread(target=loop, name="ha-resolve", daemon=True).start()


def where(
    masters: Iterable[SeenMaster], running: Running, links: TcpLinks, last: str | None
) -> SeenMaster | None:
    """
    The minion's master, judged by the minion's *links*; *last* is the master before.

    It is the one at whose request port the minion has a connection, because it authenticated there.
    (Salt 3007 may keep a connection to the publisher of an unresponsive master that it has left.)
    If that is not clear, it is the one to whose publisher the minion is connected, otherwise
    *last*.
    """
    judged = [binding.judge(master, links, running) for master in masters]
    seen = links.seen or frozenset()
    asked = [each for each in judged if each.is_asked(links)]
    near = [each for each in asked or judged if each.connected] or [
        # Connected to a port there that is not known to be the publisher's.
        each
        for each in asked or judged
        if each.connected is None and any(ip in each.ips for ip, _ in seen)
    ]
    known = next((each for each in [*near, *asked, *judged] if each.configured == last), None)
    for group in (near, asked):
        if binding.are_one(group):
            return known if known in group else group[0]
    return known


def _missing(master: SeenMaster | None, unanswered: Mapping[Link, int]) -> int:
    """How many probes in a row on a connection to *master* have no answer."""
    if master is None:
        return 0
    ends = {(ip, port) for ip in master.ips for port in (master.port, master.publish_port)}
    return max((count for link, count in unanswered.items() if link in ends), default=0)


class Looker:
    """
    Takes looks.

    :param book: the masters.
    :param opts: the minion's configuration, for Salt's transport.
    :param links: shows the connections of the minion's process as they are now.
    :param unanswered: returns how many probes in a row on each connection have no answer.
    :param timeout: seconds to wait for an answer.
    """

    def __init__(
        self,
        book: AddressBook,
        opts: Mapping[str, Any],
        links: Callable[[], TcpLinks],
        unanswered: Callable[[], Mapping[Link, int]],
        timeout: float,
    ) -> None:
        self.book, self.opts, self.timeout = book, opts, timeout
        self.links, self.unanswered = links, unanswered
        self.last: str | None = None
        self.notes: dict[str, str] = {}
        self.silent: frozenset[str] = frozenset()
        self.unseen: str | None = None
        """Why the connections of the minion could not be seen by the last look."""
        self._floor: tuple[str, int] | None = None

    def bound(self) -> SeenMaster | None:
        """The master that the minion is subscribed to now, judged by its connections alone."""
        master = where(self.book.masters, self.book.running, self.links(), self.last)
        return master if master and master.connected is not False else None

    def look(self, ask: Iterable[str]) -> WatchdogLook:
        """Ask the current master and those of *ask*, all at the same time."""
        links = self.links()
        self.book.used = frozenset(ip for ip, _ in links.seen or ())
        self.unseen = links.note if links.seen is None else None
        current = where(self.book.masters, self.book.running, links, self.last)
        here = current.configured if current else None
        subscribed = current.connected if current and links.seen is not None else None
        wanted = {*ask, here}
        # The connection shows the publish port of the current master, if nothing else does.
        masters = [
            each if each.configured != here else current or each for each in self.book.masters
        ]
        answers = self._ask([each for each in masters if each.configured in wanted])
        if here != self.last and subscribed is False and not answers.get(here or ""):
            # The minion was never subscribed there: Salt is changing masters, and will try the next
            # one by itself.
            return WatchdogLook(time.monotonic(), None, None, answers)
        if subscribed is not False:
            self.last = here
        problem = "its publisher does not answer" if here in self.silent else None
        missing = _missing(current, self.unanswered())
        if here and self._in_vain(here, answers.get(here, False), missing):
            problem = "nobody answers on the connection to it"
            self.notes[here] = f"{missing} probes of the connection to it without an answer"
            answers = answers | {here: False}
        now = time.monotonic()
        return WatchdogLook(now, here, subscribed, answers, problem=problem, doubt=missing > 0)

    def _in_vain(self, here: str, answers: bool, missing: int) -> bool:
        """
        Whether probes on the minion's connection to *here* get no answer while *here* answers our
        requests. After a network failure the kernel counts old probes until it sends the next.
        """
        if not answers:
            self._floor = None
            return False
        known = self._floor[1] if self._floor and self._floor[0] == here else missing
        self._floor = here, min(known, missing)
        return missing >= LOST and missing > self._floor[1]

    def refusal(self, entry: str) -> AuthRefusal | None:
        """Why the master written as *entry* would not accept the minion; None: it would."""
        master = next(each for each in self.book.masters if each.configured == entry)
        if master.host and not binding.resolved(master.host):
            # Salt looks up all names when it has left its master, and ends if it finds none.
            hosts = {each.host for each in self.book.masters if each.host} - {master.host}
            # Addresses first: if the name service hangs, each name takes long.
            found = any(map(binding.resolved, sorted(hosts, key=lambda host: not bare_ip(host))))
            return AuthRefusal("its name cannot be looked up now", final=not found)
        return admission.refusal(self.opts, master, self.timeout)

    def _ask(self, masters: list[SeenMaster]) -> dict[str, bool]:
        if not masters:
            return {}
        transport = str(self.opts.get("transport", "zeromq"))
        source = bare_ip(str(self.opts.get("source_ip") or ""))
        with ThreadPoolExecutor(max_workers=1) as pool:
            deaf = pool.submit(publisher.problems, transport, masters, self.timeout, source)
            answers = pings.ping_all(self.opts, masters, self.timeout)
            problems = deaf.result()
        told = [
            (str(master.configured), answer)
            for master, answer in zip(masters, answers, strict=True)
        ]
        works = {entry: answer["answers"] is True for entry, answer in told}
        notes = {entry: str(answer["note"]) for entry, answer in told if "note" in answer}
        self.silent = frozenset(entry for entry in problems if works[entry])
        self.notes = {**problems, **notes}
        return {entry: good and entry not in problems for entry, good in works.items()}
