"""
Runner ``ha``: ask and steer the group of masters that this master belongs to.

Every function returns plain data; people get a table, ``--out=json`` prints the data. The exit
code of ``salt-run`` is 0 when everything is as it should be, 1 on drift or trouble, and 2 when
something could not be asked: an unreachable peer is unknown, never fine.

.. versionadded:: 0.1.0
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saltext_ha.commands import engine_client, runner_arguments
from saltext_ha.commands.engine_client import Answer
from saltext_ha.commands.minions import cmd_batches, drain_runner
from saltext_ha.commands.once import once_runner
from saltext_ha.commands.rollout import install_minions as install
from saltext_ha.commands.rollout import own_wheel
from saltext_ha.commands.trees import deploy_runner
from saltext_ha.common.errors import HaError
from saltext_ha.config import mapping

LONG = 7200.0  # seconds; ten thousand minions are moved in half an hour

# Put here by Salt's loader.
__opts__: dict[str, Any]
__context__: dict[str, Any]
# By Salt's runner client; absent if this module is called otherwise.
__jid_event__: Any

__func_alias__ = {"keys_": "keys"}


def __virtual__() -> bool:
    # salt-run of 3008 notes every run in this folder before it calls anything, and only the first
    # start of salt-master makes the folder: before it, no runner would work.
    if __opts__.get("cachedir"):
        with contextlib.suppress(OSError):
            (Path(__opts__["cachedir"]) / "proc").mkdir(mode=0o755, parents=True, exist_ok=True)
    return True


def status() -> Answer:
    """
    How the group is: every master, its keys, how far behind, conflicts and held changes.

    Returns a dict: ``state`` (ok, degraded, unknown), ``reasons`` (why not ok: ``about``, ``kind``,
    ``states``, ``text``), ``tolerates`` (how many masters may be lost: of those that are ready and
    level, all but one; without those that no minion is configured with, as ``ha.failover_safe``
    found here last), ``masters`` (a list of rows; ``behind`` counts ``held`` keys, too, ``doubt``
    says why nothing in its key store is believed), ``conflicts``, ``held``, ``refused`` (reason →
    count since the start), ``refusals`` (callers turned away lately: why, how often, and when),
    ``consistency`` (the last comparison), ``notes``, and ``retcode``: 2 if anything is unknown,
    else 1 if anything is wrong.

    CLI Example:

    .. code-block:: bash

        salt-run ha.status
        salt-run ha.status --out=json
    """
    return _ask("status")


def check_consistency(only: str = "") -> Answer:
    """
    Whether the masters are the same where they must be.

    only
        Some of the sections: ``keys`` (minion keys), ``master_key``, ``access`` (who may do what,
        which minion gets in), ``options`` (settings), ``roots`` (the files of states and pillar,
        commits of git remotes), ``versions``, ``running`` (does each master run with what its
        configuration files say), ``clock``. Without, all of them.

    Returns a dict: ``status`` (same, differ, unknown) and ``sections``, each with its own status
    and ``differences``: path, value on every master, and what mends it. Secrets and the content of
    files are never shown. docs/consistency.md describes all of it.

    CLI Example:

    .. code-block:: bash

        salt-run ha.check_consistency
        salt-run ha.check_consistency only=keys,access
    """
    return _ask("check", only=only)


def lint(only: str = "", ignore: str = "") -> Answer:
    """
    Known traps in the configuration files of this master and its peers, each by itself and all
    compared. Run it before a rollout: it reads the files, not what the masters run with.

    only
        Codes of the rules to check, such as ``HA501,HA703``; not those about minions.
    ignore
        Codes of rules to leave out, besides those of ``ha: lint: ignore:``.

    Returns a dict: ``status`` (clean, findings, unknown), ``asked`` (masters that were checked),
    ``findings`` (code, severity, on, file, line, option, title, detail, why, fix, versions),
    ``counts`` by severity, ``ignored``, and ``unknown``: what could not be checked, and why. Exit
    code 2 if something is unknown, 1 with errors or warnings, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.lint
        salt-run ha.lint ignore=HA707,HA708
    """
    from saltext_ha.lint import ask

    return engine_client.shaped(lambda: ask.master(__opts__, only, ignore), __context__)


def minion_config(
    type: str = "failover",
    format: str = "yaml",
    alive: int = 30,
    failback: bool = False,
    watchdog: bool = False,
) -> Answer:
    """
    Print what minions of this group need in their configuration: one file for minion.d.

    type
        ``failover``: one master at a time; ``hot``: all at once.
    format
        ``yaml``: the file; ``sls``: a state that manages it (``ha.multi_master``).
    alive
        Failover: seconds between two checks of the master.
    failback
        Failover: go back to the first master when it has worked for a while. Only ``watchdog``
        waits so long; without it Salt goes back at the first answer, and then moves to and fro.
    watchdog
        Run the engine ``ha_watchdog`` there, which also notices a master that does not respond;
        with the ``jitter`` that suits the number of accepted minions.

    The file has the masters as bare hosts, by the addresses at which peers reach them. Minions
    know them by the fingerprint of their key, or by their signature if they sign. If no such file
    would work (different keys and no signature, different ports), the error says what mends that.
    ``ha.lint`` checks the file before it is printed.

    Returns a dict: ``options``, ``text`` (the file), ``masters`` (their names), ``sign_finger``,
    ``notes``, ``findings`` (of lint), ``unknown`` (masters that could not be asked, and why). Exit
    code 2 if a master could not be asked, 1 with findings.

    CLI Example:

    .. code-block:: bash

        salt-run ha.minion_config > ha-masters.conf
        salt-run ha.minion_config type=hot format=sls
    """

    def work(settings: mapping.HaConfig) -> Answer:
        if format not in ("yaml", "sls"):
            raise HaError(f"format={format!r}: takes yaml or sls")
        wish = {"type": type, "alive": alive, "failback": failback, "watchdog": watchdog}
        found = engine_client.engine(settings, "minion_config", runner_arguments.checked(wish))
        return {**found, "text": found["sls"]} if format == "sls" else found

    return _answer(work)


def failover_safe(master: str = "", minions: str = "*") -> Answer:
    """
    Would every minion go on without that master? Run it before you take a master down.

    master
        Its name, as ``ha.status`` shows it. Without, each master in turn.
    minions
        Ask about some minions only: a glob of ids. Each master must have room for all minions even
        so.

    It checks the minions' keys; the masters' keys or signatures, access rules and roots (as
    ``ha.check_consistency`` compares them); what minions say of their masters and their
    configuration, and whether they reach these masters (a job of every master:
    ``ha.failover_report``); and whether each remaining master serves, and has worker threads, open
    files and ``max_minions`` for all. Every doubt counts as no: a minion that does not answer, a
    master that cannot be asked.

    Returns a dict: ``safe``, ``masters`` (name, safe, and ``reasons``: about, text, fix, unknown,
    minions, count), ``minions`` (accepted, answered). Exit code 0 if it is safe, 2 if something
    could not be checked, else 1.

    CLI Example:

    .. code-block:: bash

        salt-run ha.failover_safe
        salt-run ha.failover_safe m1 minions='web*'
    """
    # Slow minions are waited for as long as reports keep coming.
    return _ask("failover_safe", 40, master=runner_arguments.text(master), glob=minions)


def keys_(match: str = "*") -> Answer:
    """
    The minion keys on every master.

    match
        Which minion ids, as a shell-style glob.

    Returns a dict: ``keys``, a list of rows with id, full fingerprint and the state on each
    master (None: not there), ``same`` and ``conflict``; ``match``; ``unknown``: masters that could
    not be asked, and why. Fingerprints are those of ``salt-call --local key.finger`` on the minion.
    Exit code 2 if a master could not be asked, 1 if keys are not the same on all masters, an id is
    in conflict, or nothing matches a ``match`` other than ``*``, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.keys
        salt-run ha.keys 'web*'
    """
    return _ask("keys", glob=match)


def sync(test: bool = False) -> Answer:
    """
    Bring all masters that can be reached to the same keys now. The engines do so by themselves
    within seconds; this waits until it is done, and says what was changed.

    test
        Only print what would be changed where.

    Returns a dict: ``changes`` (master, id, from, to), ``conflicts``, ``unreachable``, ``notes``.

    CLI Example:

    .. code-block:: bash

        salt-run ha.sync test=True
        salt-run ha.sync
    """
    return _ask("sync", LONG, test=test)


def refill(test: bool = False) -> Answer:
    """
    Bring this master's key store back to what the group knows, after it was wiped, or restored
    from an old backup: the opposite of ``ha.release``. Keys in it that no master knows stay.

    test
        Only list the keys that are held.

    Returns a dict as ``ha.sync`` does; ``changes`` are the keys that were held. ``retcode`` 2 if
    none is held here, and another master could not be asked; 1, and a note, if this master writes
    nothing just now (paused, ``mode: observe``, or its key store cannot be written): they are
    brought back when it does.

    CLI Example:

    .. code-block:: bash

        salt-run ha.refill test=True
        salt-run ha.refill
    """
    return _ask("refill", LONG, test=test)


def release(test: bool = False, deletes: int | None = None) -> Answer:
    """
    Confirm that a change of many keys on this master was meant: keys that vanished are then deleted
    on all masters, revoked keys that came back are accepted on all. It also confirms a key folder
    that was replaced. Run it on the master where the keys are held; another one says which that is.
    ``ha.refill`` does the opposite.

    test
        Only list the keys, and say how many would be deleted.
    deletes
        How many keys it is to delete on all masters. If it would delete another number now, nothing
        is done, and the error names that number.

    Returns a dict as ``ha.sync`` does; ``changes`` are the keys that were held, ``deletes`` is how
    many keys are deleted. Exit code 2 if a master could not be asked whether it holds keys, 1, and
    a note, if no master writes the changes, as for ``ha.resolve``.

    CLI Example:

    .. code-block:: bash

        salt-run ha.release test=True
        salt-run ha.release deletes=30
    """
    return _ask("release", LONG, test=test, deletes=deletes)


def resolve(minion: str, fingerprint: str, test: bool = False) -> Answer:
    """
    End a conflict: of the different keys that are accepted for one id, keep one.

    minion
        The minion id.
    fingerprint
        Of the key to keep, or enough of its beginning. ``salt-call --local key.finger`` on the
        right minion shows it.
    test
        Only print what would be done.

    The other keys are deleted on all masters; masters that are down follow when they are back.

    Returns a dict as ``ha.sync`` does, and ``written``: whether a master writes it to its key store
    now. ``retcode`` 1, and a note, if another decision holds instead of this one, or if no master
    writes it because all observe or are paused. Then it is recorded, and they follow when they
    write again. If only some masters do not write, there is a note.

    CLI Example:

    .. code-block:: bash

        salt-run ha.resolve db02 3a:9f:77
    """
    return _ask("resolve", LONG, minion=minion, fingerprint=fingerprint, test=test)


def restore(minion: str, fingerprint: str = "", since: str = "", test: bool = False) -> Answer:
    """
    Undo a mistake: accept a deleted or rejected key again, on all masters, from any of them.

    minion
        The minion id, or a shell-style glob.
    fingerprint
        Of the key, or enough of its beginning; needed when several keys of the id were revoked.
    since
        For a glob, and only there: how long ago the mistake was made, such as 90s, 30m, 2h or 1d.
        Keys that were revoked earlier, by the clock of the master that revoked them, stay revoked.
        So do keys that were never accepted: a deletion of all takes those of strangers, too.
    test
        Only print what would be done.

    Returns a dict as ``ha.resolve`` does; ``retcode`` 1, and a note, if something was not
    restored, or no master writes it.

    CLI Example:

    .. code-block:: bash

        salt-run ha.restore web07
        salt-run ha.restore 'web*' since=1h test=True
    """
    return _ask("restore", LONG, minion=minion, fingerprint=fingerprint, since=since, test=test)


def rewrite(minion: str, test: bool = False) -> Answer:
    """
    Write records anew that claim writes which no master made. A master in other hands may have
    left such records behind; they keep decisions about these keys from arriving.

    minion
        The minion id, or a shell-style glob; ``'*'`` looks through all.
    test
        Only list them.

    The new record says what this master's key store shows: run it on a master where that is right.
    The members replace theirs by it; members that are down do so when they are back.

    Returns a dict as ``ha.sync`` does; ``retcode`` 1, and a note, if a member did not take one.

    CLI Example:

    .. code-block:: bash

        salt-run ha.rewrite '*' test=True
        salt-run ha.rewrite web07
    """
    return _ask("rewrite", LONG, minion=minion, test=test)


def history(match: str = "*", limit: int = 100, since: str = "", by: str = "") -> Answer:
    """
    Who did what to which key or tree, when, on which master, and why; the latest to arrive here
    first.

    match
        Which minion ids and trees, as a shell-style glob.
    limit
        How many lines at most.
    since
        Only what came to this master within this time, such as 90s, 30m, 2h or 1d.
    by
        Only what these people decided: a name, or a glob over names.

    Who: the user of a wheel call (salt-api, eauth) or of this runner, ``Reactor`` for the reactor;
    ``operator`` if Salt does not tell, as with ``salt-key`` on a master or a file moved by hand;
    ``minion`` for a knock, also one that was accepted automatically; ``-`` for a decided key that
    was found in the key store when nothing was known of it.

    Why: the command that decided. If decisions met that were made without knowing of each other, on
    two masters or in the same instant, a line says so (``rejected holds``), and others say when a
    ``conflict`` of two accepted keys began and how it ended (``conflict over``).

    Time, name and master of a write are what its writer says. When a write came here, and from
    which peer, this master knows itself: lines are in the order of arrival, ``since`` goes by it,
    and a line below says where the writer differs. For lines of older releases it is unknown.

    A deployment of a tree says where it was taken from, and its message.

    Returns a dict: ``writes``, a list with ``id`` and ``tree`` (one of the two is empty), ``at``
    (Unix seconds), ``time`` (the same in ISO 8601, local to this master), ``on`` (master), ``by``,
    ``what``, ``state``, ``fingerprint``, ``why`` and ``decisions`` (those that met: state,
    fingerprint, at, by, command, on), ``received`` and ``received_time`` (when it came here) and
    ``from`` (the master that sent it; this one's name if it was made here), None if unknown;
    ``more``: whether *limit* left lines out.

    CLI Example:

    .. code-block:: bash

        salt-run ha.history
        salt-run ha.history web07
        salt-run ha.history since=2h by=alice
    """
    return _ask("history", glob=match, limit=limit, since=since, by_whom=runner_arguments.text(by))


def pause(all: bool = False) -> Answer:
    """
    Stop writing this master's key store. Changes are still recorded, sent and received.

    all
        On every master of the group.

    Returns a dict: ``notes``, a line for each master, and ``retcode``: 2 if one did not do it.

    CLI Example:

    .. code-block:: bash

        salt-run ha.pause
        salt-run ha.pause all=True
    """
    return _ask("pause", all=all)


def resume(all: bool = False) -> Answer:
    """
    Go on after ``ha.pause``: what came meanwhile is applied. ``ha.sync test=True`` prints it.

    all
        On every master of the group.

    Returns a dict as ``ha.pause`` does.

    CLI Example:

    .. code-block:: bash

        salt-run ha.resume
    """
    return _ask("resume", all=all)


def leave(test: bool = False) -> Answer:
    """
    Take this master out of its group. Every key stays as it is, here and there. Open invitations of
    this master are withdrawn.

    test
        Only say what would be done.

    Returns a dict: ``notes``, what was done, line by line, and ``retcode``: 2 if a member was not
    told.

    CLI Example:

    .. code-block:: bash

        salt-run ha.leave
    """
    return _ask("leave", test=test)


def renew(test: bool = False) -> Answer:
    """
    Give this master a new key and certificate towards its peers, for instance because
    ``ha.status`` says that the present one ends soon.

    test
        Only say until when the present one is valid.

    The new certificate is signed with the old key, so every member can check it by itself: those
    that run take it over within seconds, those that are down when they are back. Minions do not
    notice: ``master.pem`` stays as it is. Open invitations of this master are withdrawn: their
    tokens name the former certificate.

    Returns a dict: ``notes``, the new certificate and which members know it, line by line.

    CLI Example:

    .. code-block:: bash

        salt-run ha.renew test=True
        salt-run ha.renew
    """
    return _ask("renew", test=test)


def remove_peer(name: str, since: str = "", undo: bool = False, test: bool = False) -> Answer:
    """
    Take another master out of the group for good, on all members: one that is dead or stolen. Shows
    the masters that it introduced and the keys that it decided about, and undoes that on request.

    name
        Its name, as ``ha.peers`` shows it; also of one that was removed before.
    since
        How far back to look, such as 90s, 30m, 2h or 1d, or ``all``; a write counts by when each
        master received it, not by the time that it names. Without, seven days.
    undo
        Also take out the members that it introduced, and those that these introduced; and put each
        key back to what another master last decided about it. If none did, an accepted or rejected
        key becomes pending, a deleted one stays deleted. A key that was decided otherwise since is
        left alone. Needs ``since``: since when it was in other hands.
    test
        Only show all that.

    Its writes are those that a master received from it or from a member that it introduced, and
    those that name one of these as their origin; except those that another member says it made. All
    members are asked, because it may have told something to one of them only. What it says from now
    on is refused. Repeat the command when a member that was down is back; but not after another
    master took that name: it would be removed.

    Returns a dict: ``members`` (name, fingerprint, introducer, added, on), ``keys`` (id,
    fingerprint, ``what`` it decided last, ``received``, ``from``; what the write says: ``at``,
    ``by``, ``on``, ``why``; ``state`` before, ``to``, ``note``), ``knocks`` (how many it reported),
    ``unknown`` (members that were not asked or told, and why), ``notes`` and ``retcode``: 2 with
    unknown ones, 1 if something could not be undone.

    CLI Example:

    .. code-block:: bash

        salt-run ha.remove_peer m2
        salt-run ha.remove_peer m3 undo=True since=2d test=True
    """
    return _ask("remove_peer", LONG, name=str(name), since=since, undo=undo, test=test)


def peers() -> Answer:
    """
    The masters that this one trusts, with address, certificate fingerprint and state.

    Returns a dict: ``self`` (name, url, fingerprint) and ``peers``, a list with ``name``, ``url``,
    ``fingerprint``, ``introducer`` (the member that told this one of it; this master's name if none
    did: one of the two let the other in, by a token or the secret; None: unknown), ``added``
    (when), ``state`` (up: it answers, which tables call running, as ``ha.status`` does; or
    unknown), ``seen`` (seconds since it last answered, or None) and ``note``; ``notes``: which
    files of peers cannot be read, and why, or deleted; ``retcode`` 2 if a file cannot be read, or a
    peer is unknown, 1 if one cannot be deleted.

    CLI Example:

    .. code-block:: bash

        salt-run ha.peers
    """
    return _ask("peers")


def invite(
    expires: int | str = 600, share_master_key: bool = False, share_signing_key: bool = False
) -> Answer:
    """
    Make a one-time token with which one more master can join this group. ``salt-ha invite`` prints
    the token. ``salt-run ha.invite`` says in which file it is: Salt sends what a runner returns to
    all who follow its events, and keeps it in the job cache.

    expires
        Seconds until the token is worthless, or a span: ``30m``, ``1h``; at most a day.
    share_master_key
        Hand the group's ``master.pem`` and ``master.pub`` (and the signing pair, if there is one)
        to the master that joins, so that minions know it by the same key.
    share_signing_key
        Hand over the ``master_sign`` pair only. The masters keep different keys, and failover
        minions with ``verify_master_pubkey_sign: True`` know each of them by its signature.

    Returns a dict: ``token_file`` (mode 0600; removed when the token is used, withdrawn or
    expired), ``invitation`` (its name, for ``ha.withdraw``), ``expires_in`` (seconds), ``command``
    (to be run on the other master) and ``notes``.

    CLI Example:

    .. code-block:: bash

        salt-ha invite
        salt-run ha.invite share_master_key=True
    """
    from saltext_ha.commands.membership import invite as command

    wish = expires, share_master_key, share_signing_key
    return _answer(lambda own: command.laid_down(own, command.make(__opts__, own, *wish)))


def withdraw(invitation: str = "", test: bool = False) -> Answer:
    """
    Take back unused invitations of this master, for instance because somebody may have seen the
    token.

    invitation
        The name of one, as ``ha.invite`` shows it; without, all of them.
    test
        Only say which.

    Returns a dict: ``notes``, and ``retcode``: 1 if that one was used already, or is not this
    master's.

    CLI Example:

    .. code-block:: bash

        salt-run ha.withdraw
    """
    from saltext_ha.commands.membership import invite as command

    return _answer(
        lambda settings: command.withdraw(
            settings, runner_arguments.text(invitation), runner_arguments.switch("test", test)
        )
    )


def join(
    token: str = "",  # nosec B107
    wait: float = 0,
    force: bool = False,
    test: bool = False,
    token_file: str = "",  # nosec B107
    probe: bool = True,
) -> Answer:
    """
    Join the group that a token from ``ha.invite`` on another master invites to; or, without a
    token, the group at ``ha: masters`` whose secret this master knows. Works before salt-master was
    ever started, too.

    token
        Refused: others can see an argument. ``salt-ha join`` asks for the token, or reads it from
        standard input.
    wait
        Seconds to go on trying while no other master answers or lets this one in; standard error
        says what it waits for.
    force
        Replace a different master key that this master has by the one that is shared (the old one
        is kept beside it), come back to a group that was left, and with a token make one group of
        two, if this master is in another one.
    test
        With a token: only print what joining would do: which keys would be accepted, rejected,
        deleted or denied where, what would be in conflict, what becomes of the master key, and why
        it would be refused. Nothing is written on either side, and the token stays valid. The
        group's side is as the inviting master knows it.
    token_file
        A file with the token, which belongs to the user that salt-master runs as and has mode 0600.
        The token works once; how long it is valid is up to ``ha.invite``.
    probe
        The master that lets this one in first tries to reach it at its own address (``ha:
        address``, ``ha: port``), and refuses if it cannot. The engine need not run for that. False:
        join all the same, for instance because a firewall is opened later; the notes say if this
        master was not reached.

    Without a token, a master that is in a group already stays as it is; if no other master answers,
    the first of ``ha: masters`` founds the group. So the command may be run before every start of
    salt-master.

    Keys are exchanged as soon as the engine runs; nothing is overwritten: an id that is accepted
    with different keys is shown as a conflict.

    Returns a dict: ``group``, ``members`` and ``notes``; with *test* the plan: ``problems``,
    ``key_problems``, ``changes`` (master, id, from, to), ``conflicts``, ``members``, ``notes``.

    CLI Example:

    .. code-block:: bash

        salt-ha join --token-file -
        salt-run ha.join token_file=/etc/salt/ha.token test=True
        salt-run ha.join wait=300
    """
    from saltext_ha.commands.membership import join as command

    def work() -> Answer:
        if token:  # before all else: the caller has to know what became of it
            raise command.refused(str(token))
        given = command.token_in(str(token_file)) if token_file else ""
        settings = mapping.parse(__opts__)
        return command.join(__opts__, settings, given, wait, force, test, probe, tell=command.aloud)

    return engine_client.shaped(work, __context__)


def minions(tgt: str = "*", live: bool = False, timeout: float = 5) -> Answer:
    """
    Which master each accepted minion is connected to, by all that the masters have heard of it:
    no job is published.

    tgt
        Which minion ids, as a shell-style glob.
    live
        Ask the minions, from every master at once; a minion that does not answer is not bound.
    timeout
        With ``live``: seconds for their answers.

    Returns a dict: ``masters`` (name, ``connections`` to its publisher, ``minions`` that are known
    to be bound to it, ``listening``: for how many seconds its engine has heard events, ``gone``:
    how many of ``minions`` are not connected any more, by the number of connections),
    ``minions`` (id, ``state``, ``masters``, ``seen`` seconds ago, ``by`` what evidence, ``type``,
    ``note``, and ``on``: the same for each master; with ``live`` also ``version``, of the
    saltext-ha there, None without), ``counts`` by state, ``online`` (how many are online, offline,
    unknown), ``unknown``: masters that could not be asked, and why. docs/minions.md says what the
    states mean.

    Exit code 0 if all are known to be bound, 2 if a master or a minion is unknown, or some are
    ``gone``; 1 if no accepted minion matches ``tgt``, with ``live`` also if one is silent.

    CLI Example:

    .. code-block:: bash

        salt-run ha.minions
        salt-run ha.minions 'web*' live=True
    """
    return _ask("minions", timeout, glob=tgt, live=live, timeout=timeout)


def where(tgt: str | list[str] = "*", live: bool = False, timeout: float = 2) -> Answer:
    """
    On which masters a job has to be published so that minions hear it.

    tgt
        A minion id or a glob over ids, or a list of ids.
    live
        Ping all of them now, on all masters at once; without, only those of which no master is
        sure.
    timeout
        Seconds that they have to answer such a ping. All pings end within twice that and 20
        seconds more; a minion that was not pinged by then counts where it was heard last.

    Returns a dict: ``count`` of the accepted minions that match, ``masters`` of the group, and
    ``minions``: id → the masters that reach it, for those that not all of them reach; an empty list
    if none does. ``silent`` are those of them that were pinged and did not answer: they count where
    they were heard last. ``absent`` are ids in ``tgt`` without an accepted key. ``self`` is this
    master, ``unknown`` says which could not be asked, and why. Exit code 2 if a master could not be
    asked, 1 if no accepted minion matches, no master reaches one, or one is silent or absent, else
    0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.where 'web*'
        salt-run ha.where live=True
    """
    target: dict[str, Any] = {"ids": tgt} if isinstance(tgt, list) else {"glob": tgt}
    return _ask("where", work=timeout, live=live, timeout=timeout, **target)


def cmd(tgt: str | list[str], fun: str, *args: Any, **kwargs: Any) -> Answer:
    """
    Run a function once on each targeted minion of the group, from a master that it listens to.

    tgt, fun
        As for ``salt``; what follows are the function's arguments, except these:
    tgt_type
        ``glob``, or ``list``, ``pcre``, ``compound``, ``grain``, ``grain_pcre``, ``pillar``,
        ``pillar_pcre``, ``ipcidr``, ``nodegroup``. Each master looks grains and pillar up in its
        own cache; a minion that is not in there (``saltutil.refresh_pillar`` mends that) is neither
        waited for nor shown, though it may run the job beside others that match.
    timeout
        Seconds to wait for minions, at most 300; by default 60. A minion that takes longer is asked
        every ``timeout`` whether it still runs the job, and waited for while it says so, for an
        hour more at most. If it says no, or nothing within ``gather_job_timeout`` (of the master's
        configuration, a minute at most), it is ``missing``; what it returns later is in the job
        cache of its master. A master of an older release waits for the timeout only.
    batch
        How many minions at a time, or a share such as ``10%``. The next batch begins when all of
        the last one have returned or are not waited for any more. Minions of a target other than a
        glob or a list are pinged first, as by ``salt``: those that do not answer are ``missing``,
        and are in no batch. On a master of masters (``order_masters``) minions below its syndics
        are in no batch; if no minion of its own matches, the job is refused.
    progress
        Print progress on standard error: whenever more have returned, at most once a second, such
        as ``batch 2 of 5: 12 of 30 returned, 1 failed``, and after each batch the sum of all so
        far. ``of 30`` is left out until all masters have published their part; a master that does
        not say how far it is is named, and its minions are not counted. After the timeout: how many
        still run it.
    test
        Only say on which masters it would be published, and for which minions; those that ``batch``
        has pinged are pinged all the same. A function with an argument of that name, or of another
        one of these, takes it as ``kwarg='{test: True}'``.

    It needs the rights of root or of the user of salt-master, as ``salt`` does. Masters publish for
    each other, except one that has ``ha: commands: False``.

    Returns a dict: ``returned`` (id → what the function returned), ``failed`` (id → exit code, if
    its function failed), ``missing`` (id → the master that published it, if it did not return in
    time), ``running`` (id → job id, for those of ``missing`` that said to the end that they still
    run it), ``unreachable`` (minions that no master reaches, or without an accepted key on the
    master that does, and listed ids without one), ``jobs`` (a list of master → job id), ``targets``
    (a list of master → target), ``unknown`` (masters that could not be asked, and why; with the job
    id if the job may have run), ``unsure`` (ids that may have run it, but the master that published
    it for them could not be asked any more while they were waited for; as far as it is known which
    minions listen to that one). If the engine of this master stops answering during the first
    batch, the error says that the job may have run; after it, ``unknown`` says why for ``this
    master``, earlier returns are kept, the ids of the batch under way are ``unsure``, and
    ``not_begun`` are those of later batches, which have not run it. Exit code 2 if a master could
    not be asked, 1 if a minion failed, did not return, is not reached, or none matched, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.cmd 'web*' test.ping
        salt-run ha.cmd '*' state.apply nginx batch=10% timeout=300
        salt-run ha.cmd os:Debian pkg.version salt-minion tgt_type=grain test=True
    """

    def work(settings: mapping.HaConfig) -> Answer:
        own, given = runner_arguments.divided(kwargs, cmd_batches.OPTIONS)
        runner_arguments.check_text(tgt)
        if own.get("timeout") is None:  # salt-api passes null on
            own["timeout"] = cmd_batches.TIMEOUT
        ask = _asking_minions(settings, own["timeout"])
        return cmd_batches.run(ask, tgt, fun, list(args), given, **own)

    return _answer(work)


def jobs(search: str = "", limit: int = 50) -> Answer:
    """
    The jobs in the job caches of all masters, newest first, whichever master published them.

    search
        A text in the function, the target, the user or the job id; with ``*`` a glob. Without, all
        but ``saltutil.find_job`` and the runner ``test.arg``, by which Salt asks minions and an
        engine its master all the time.
    limit
        How many at most, up to 1000.

    Minions that have not returned to a master that published the job are asked, on all masters,
    what they run.

    Returns a dict: ``jobs`` (a list: ``jid``, ``function``, ``arguments``, ``target``,
    ``target_type``, ``user``, ``masters`` (those that know it), ``listening`` (whether it is a
    question that every master asked the minions that listen to it, as by ``ha.reachability`` or
    ``ha.drain``), ``targeted`` (how many; None with ``listening``, or if the job cache, such as
    mysql's, does not keep the minions of a job) and ``returned`` (how many), ``missing`` (ids that
    did not return), ``running`` (those of them that say that they still run it), ``state``: done,
    running, missing or unknown), ``unknown``: masters that could not be asked, and why, and
    ``notes``: minions that were not asked, as only 8000 are, or as their ids have a comma. Exit
    code 2 with ``unknown`` ones, or with more than 8000, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.jobs
        salt-run ha.jobs state.apply limit=10
    """
    return _ask("jobs", 80, search=runner_arguments.text(search), limit=limit)


def lookup_jid(jid: str) -> Answer:
    """
    What minions returned of a job, from the job caches of all masters: whichever master published
    it, and whichever the minions returned it to.

    jid
        The job id.

    Returns a dict: ``job`` (``function``, ``arguments``, ``target``, …; None if no master knows
    it), ``published`` (masters), ``targeted`` (how many; None as for ``ha.jobs``), ``returned`` (id
    → what the function returned), ``arrived`` (id → master that has it), ``failed`` (ids whose exit
    code was not 0), ``running`` (ids that say that they still run it), ``missing`` (the other ids
    that did not return), ``unknown``, and ``notes`` as for ``ha.jobs``.
    Exit code 2 if a master or more than 8000 minions could not be asked, or ``targeted`` is None, 1
    if a minion failed or did not return (yet), else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.lookup_jid 20261124120000123456
    """
    return _ask("lookup_jid", 80, jid=str(jid))


def reachability(tgt: str = "*", timeout: float = 5) -> Answer:
    """
    Which minion hears which master: every master pings the minions at once.

    tgt
        Which minion ids, as a shell-style glob.
    timeout
        Seconds for their answers.

    Returns a dict: ``masters``, ``minions`` (id, ``state``: ok, deaf, silent, astray or unknown,
    ``type``, ``note``, ``answers``: master → ``state`` and ``seconds``), ``strays`` (answers that
    came to another master than the one that had asked), ``counts``, ``unknown`` (masters that could
    not ask, and why) and ``partial``: whether there are such.

    Exit code 0 if all minions hear the masters that they should, 1 if one is deaf, silent, or
    astray (answers another master), or if no accepted minion matches ``tgt``, 2 if something is
    unknown.

    CLI Example:

    .. code-block:: bash

        salt-run ha.reachability
        salt-run ha.reachability 'web*' timeout=20
    """
    return _ask("reachability", timeout, glob=tgt, timeout=timeout)


def drain(
    master: str, test: bool = False, batch: int = 50, timeout: float = 60, force: bool = False
) -> Answer:
    """
    Move minions off a master, for planned work on it: all that have another one to go to.

    master
        Its name, as ``ha.status`` shows it.
    test
        Only say which minions would go where, and which would stay. The minions are asked.
    batch
        How many are moved at a time.
    timeout
        Seconds in which those of one batch have to be heard on their new master.
    force
        Drain it although no other master is ready, so that the group serves nobody afterwards.
        Then minions also go to masters that are not ready, except drained ones.

    Before anybody is moved, the master is told that it is drained; if it cannot be told, nobody is
    moved. It stays drained until ``ha.rebalance`` or a restart of its salt-master, also if this
    function is interrupted, which it says on standard error before it begins; the engine goes on
    moving minions then. A master that has heard none of a batch, of two minions or more, gets no
    others.

    Minions that are bound to several masters at once are left alone: they go on with the others,
    if these hear them. A minion that was moved stays where it is until that master fails, or until
    ``ha.rebalance``: the watchdog does not move it back. The command may be repeated.

    Returns a dict: ``moves`` (id, from, to, ``moved``, ``planned``, ``note``), ``stay`` (id, why,
    ``goes_on``: whether another master, which is ready, hears it just now; None: unknown),
    ``unknown`` (masters that could not be asked), ``notes``. Exit code 1 if a minion did not move,
    or stays and is not known to go on, so that it would be lost when that master is stopped; or if
    it is the last master that is ready, which takes ``force``, or is not drained any more at the
    end, as after a restart; 2 if a master could not be asked.

    CLI Example:

    .. code-block:: bash

        salt-run ha.drain m1 test=True
        salt-run ha.drain m1
    """
    asked = {"name": str(master), "test": test, "force": force, "batch": batch, "timeout": timeout}
    return _moving(drain_runner.run, asked)


def rebalance(test: bool = False, batch: int = 50, timeout: float = 60) -> Answer:
    """
    Spread the failover minions evenly over the masters that are ready, by as few moves as possible:
    after ``ha.drain`` and the work on that master, or after a failover. Nobody is moved to or from
    a master that is not ready.

    test
        Only say which minions would go where. The minions are asked.
    batch
        How many are moved at a time.
    timeout
        Seconds in which those of one batch have to be heard on their new master.

    Returns a dict as ``ha.drain``, and ``spread``: master → how many ``before`` and ``after``;
    ``untold``: master → why it could not be told that it is not drained any more, then the exit
    code is 2. ``notes`` name these, and masters that are not ready; then the exit code is 1 at
    least.

    CLI Example:

    .. code-block:: bash

        salt-run ha.rebalance test=True
        salt-run ha.rebalance
    """
    return _moving(drain_runner.rebalance, {"test": test, "batch": batch, "timeout": timeout})


def proxy_config(
    kind: str,
    cert: str = "",
    listen: str = "",
    ca: str = "",
    name: str = "",
    api_port: int = 0,
    timeout: int = 0,
    prefix: str = "",
    tls: bool = True,
) -> Answer:
    """
    Print the configuration of a load balancer in front of the salt-api of all masters.

    kind
        ``haproxy`` (asks every master whether it is ready) or ``nginx`` (notices what fails).
    cert
        On the balancer: PEM file with certificate, chain and private key, which callers see. By
        default /etc/ssl/private/salt-api.pem.
    listen
        Where callers connect: a port (443; 80 without TLS), or ``address:port``.
    ca
        On the balancer: PEM file of the CA that signed the masters' certificates. By default
        those of the system, /etc/ssl/certs/ca-certificates.crt.
    name
        A name that is in the certificates of all masters; needed if these are known by address.
    api_port
        The port of salt-api on masters that cannot be asked just now; by default as on the others.
    timeout
        Seconds that one call may take; by default 3600.
    prefix
        Path below which callers find salt-api, such as ``/salt-api/``; everything else is 404.
    tls
        ``False``: callers speak plain HTTP. Their passwords and tokens can be read on the way; the
        text says so in a ``NOTE``.

    Returns a dict: ``text``, and ``masters`` (name, api, tls, ready, and ``unknown``: why it could
    not be asked; then the text says what is assumed, and the exit code is 2). Nothing is written.

    CLI Example:

    .. code-block:: bash

        salt-run ha.proxy_config haproxy > /etc/haproxy/haproxy.cfg
        salt-run ha.proxy_config nginx listen=8443 ca=/etc/ssl/salt-ca.pem name=salt.example.org
        salt-run ha.proxy_config nginx listen=127.0.0.1:8080 tls=False prefix=/salt-api/
    """
    return _ask(
        "proxy_config",
        kind=kind,
        cert=cert,
        listen=listen,
        ca=ca,
        name=name,
        api_port=api_port,
        timeout=timeout,
        prefix=prefix,
        tls=tls,
    )


def deploy(*trees: str, **options: Any) -> Answer:
    """
    Make all masters serve what is in the ``source`` folders of this master.

    The new version is staged on every master and verified there, ``check:`` is run on it, and only
    then all masters switch, each by one rename. If anything fails before that, none switches. The
    engine carries it out, and goes on also if this function is interrupted.

    trees
        Names of ``ha: trees:``, or ``tree=states,pillar``; without, all of them.
    test
        Only show what would change.
    without
        Masters to leave out because they are down for long, such as ``m2,m3``. They follow when
        they are back.
    message
        A line for ``ha.deployments``, at most 200 characters.
    adopt
        If the live folder is still a real folder, keep it beside a link that takes its place.

    Returns a dict: ``trees`` (a list: ``tree``, ``source``, ``owners`` (users other than that of
    salt-master that own some of it), ``version``, ``number`` of the deployment, ``files``, ``size``
    in bytes, ``counts`` and some of what was ``added``, ``changed`` and ``removed``, ``diff``
    (lines; none of secret trees), ``replaces`` (the current deployment, in words, if it was made on
    another master), ``edits`` (master → what was changed by hand there), ``conflict``, ``unread``
    (why a live folder that was there before can neither be compared nor be gone back to),
    ``opens`` (whether that folder is closed to other users, and the tree is not)), ``masters``
    (name → empty, or why it is not known to serve what was deployed), ``left_out``, ``adopt`` (tree
    → masters with a folder of their own), ``unknown``, and ``problem`` (empty, or which trees were
    deployed, which not, and why). Exit code 2 if it failed, or a master is not known to serve it;
    else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.deploy test=True
        salt-run ha.deploy states message='nginx 1.28'
        salt-run ha.deploy without=m3
    """
    given = runner_arguments.given(options)
    return _answer(lambda settings: deploy_runner.deploy(settings, trees, given, _caller()))


def rollback(
    to: int | str = "",
    tree: str | list[str] | None = None,
    test: bool = False,
    without: str = "",
    message: str = "",
    adopt: bool = False,
) -> Answer:
    """
    Make an earlier deployment current again, on all masters; that is a deployment, too.

    to
        Its number, or the beginning of its version, as ``ha.deployments`` shows them; without, the
        one before the current.
    tree
        Which tree, or several, such as ``states,pillar``; without, all of them.
    test, without, message, adopt
        As for ``ha.deploy``, which also says what is returned.

    CLI Example:

    .. code-block:: bash

        salt-run ha.rollback test=True
        salt-run ha.rollback 7 tree=states
    """
    payload = {"to": to, "test": test, "without": without, "message": message, "adopt": adopt}

    def work(settings: mapping.HaConfig) -> Answer:
        named = {"trees": deploy_runner.named(tree), "by": _caller()}
        return deploy_runner.run(settings, "rollback", runner_arguments.checked(payload | named))

    return _answer(work)


def deployments(*trees: str) -> Answer:
    """
    What was deployed, by whom, when and from where, and which master serves what.

    trees
        Names of ``ha: trees:``; without, all of them.

    Returns a dict: ``trees`` (a list: ``tree``, ``live``, ``source``, ``secret``, ``current`` (a
    number, None in a conflict), ``conflict``, ``deployments`` (newest first, the last five:
    ``number``, ``version`` (empty if the tree is secret), ``at``, ``by``, ``on``, ``source``,
    ``message``, ``files``, ``size``, ``live_on``), ``masters`` (name → number of the deployment
    that it serves, or in words what it serves), ``edits`` (master → what was changed by hand in the
    live folder)), and ``unknown``. Exit code 2 if a master could not be asked, 1 if one serves
    something else, or something was edited; else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.deployments
        salt-run ha.deployments states --out=json
    """
    return _ask("deployments", trees=list(trees))


def once(function: str, *args: Any, **kwargs: Any) -> Answer:
    """
    Run a function on the master that leads, and on no other: for the same ``schedule:`` or cron on
    all masters. docs/once.md says what that promises.

    function
        A runner function; ``wheel.`` and a function of wheel; or ``local.`` and a function of
        minions, whose target comes first. What follows are its arguments, except these:
    name
        Remember the run under this name, on all masters: so it runs once within ``within``, even if
        another master takes the lead meanwhile.
    within
        That period, such as 90s, 30m, 2h or 1d: somewhat less than the time between two runs. By
        default 1m.
    wait
        Seconds that a master without the lead waits for the leader to begin a run with a name, and
        that any master waits for a leader, for its engine to start, or for the end of the last run,
        if that has taken longer than ``within``; by default 15, and in ``schedule:`` 15 more than
        ``loop_interval``. A master that takes the lead meanwhile runs it.
    kwarg
        More arguments, for a function that takes one of these names: ``kwarg='{name: web1}'``.

    Returns a dict: ``skipped`` (whether it did not run here), ``waited`` (whether it was skipped as
    nobody led, the leader had not begun it, or the last run had not ended, within ``wait``),
    ``why``, ``leader`` (a name, or None), ``fence`` (a number that grows with each change of
    leaders, if the store has one; what runs has it in the environment as ``SALT_HA_FENCE``),
    ``return``, ``error``, ``function``, ``name``. Exit code: the function's; 0 if another master
    leads, or it ran already; 1 if it runs nowhere, as nobody leads or the last run has not ended
    though its period is over.

    CLI Example:

    .. code-block:: bash

        salt-run ha.once state.orchestrate orch.nightly name=nightly within=12h
        salt-run ha.once local.state.apply 'web*' nginx
    """

    def work(settings: mapping.HaConfig) -> Answer:
        own, given = runner_arguments.divided(kwargs, once_runner.OPTIONS)
        functions = once_runner.Functions(__opts__, globals()["__salt__"], __context__)
        own.setdefault("wait", once_runner.usual_wait(kwargs, __opts__))
        return once_runner.run(_asking(settings), functions, function, args, given, **own)

    answer = _answer(work)
    once_runner.log_unseen(answer, kwargs)
    return answer


def leader() -> Answer:
    """
    Which master leads: the one on which ``ha.once`` runs what must not run twice.

    Returns a dict: ``leader`` (a name, or None), ``leads`` (whether it is this master), ``why`` (if
    nobody leads), ``since`` (Unix seconds), ``store``, ``fence``, ``masters`` (a list: ``name``,
    ``leads``, ``follows`` (the leader that it knows), ``note``, ``reactor`` (None without
    ``ha: once: {reactor: true}``: ``configured``, ``reacts`` (None: not known), and how many events
    are ``waiting``, were ``handed`` over, were ``taken`` from others, were the ``same`` as a known
    one, were reacted to ``twice``, were ``dropped``)), ``leading`` (masters that say that they
    lead; more than one while masters do not reach each other), ``apart`` (master → why it takes no
    part), ``runs`` (what ran last under each name of ``ha.once``: ``name``, ``function``, ``state``
    (running, done, failed, unfinished), ``on``, ``by``, ``ago`` and ``seconds``, ``fence``), and
    ``unknown``. Exit code 2 if a master could not be asked, 1 if nobody leads, masters do not
    agree, or a run failed or was not finished, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.leader
        salt-run ha.leader --out=json
    """
    return _ask("leader")


def restart_masters(
    test: bool = False, timeout: float = 300, without: str | list[str] = ""
) -> Answer:
    """
    Restart all salt-masters of the group one after the other, this one last: after a change of the
    master configuration, or an upgrade.

    test
        Only say in which order and by which command, and what prevents it.
    timeout
        Seconds in which each has to serve again, and to have caught up.
    without
        Masters to leave out because they are down for long, such as ``m2,m3``.

    Each master runs its own ``ha: restart:``, else ``systemctl --no-block restart salt-master``.
    Nothing is restarted unless all of them serve and are level; it stops at the first one that does
    not come back.

    Returns a dict: ``masters`` (a list, in that order: ``name``, ``command``, ``restarted`` (None:
    its turn did not come), ``seconds``, ``problem``). Exit code 1 if one did not come back, or with
    ``test`` if something prevents it; 2 if nothing was restarted.

    CLI Example:

    .. code-block:: bash

        salt-run ha.restart_masters test=True
        salt-run ha.restart_masters
        salt-run ha.restart_masters without=m3
    """
    from saltext_ha.commands.masters import restart_masters_runner as command

    try:
        return _answer(
            lambda settings: command.run(
                settings, runner_arguments.switch("test", test), timeout, without
            )
        )
    finally:
        _forget_bus()


def _forget_bus() -> None:
    """
    Close the connection to the event bus: it leads to the salt-master that was restarted. Salt 3006
    and 3007 would announce the end of this run over it, and fail; without one they connect anew.
    """
    run_event = globals().get("__jid_event__")
    if run_event is not None:
        run_event.event.close_pull()


def install_minions(
    tgt: str | list[str],
    tgt_type: str = "glob",
    batch: int | str = install.BATCH,
    timeout: float = install.TIMEOUT,
    force: bool = False,
    restart: bool = True,
    test: bool = False,
) -> Answer:
    """
    Install the saltext-ha that this master runs on minions of the group, over Salt itself.

    tgt, tgt_type
        As for ``ha.cmd``.
    batch
        How many minions are installed and restarted at a time, or a share such as ``10%``. If
        several were restarted, and none came back, it ends with that batch.
    timeout
        Seconds for each step of a minion; longer while it says that it still runs it.
    force
        Install it even where that version, or a newer one, is installed already.
    restart
        Restart minions that do not use it otherwise: those that had another version, and those
        with the engine ``ha_watchdog``. False: the answer names them.
    test
        Only say which minions would get it, and which cannot.

    A minion needs nothing but Salt, and pip in Salt's own Python. The wheel of what is installed
    here is sent in jobs of 130 KB; each minion checks its hash, tries whether it runs, and installs
    it with ``salt-pip`` (else ``python -m pip``), without any package index. Each master sends a
    job to all minions that are connected to it (unless ``zmq_filtering``): 1.3 MB for each, however
    many are to get it. Progress goes to standard error.

    Returns a dict: ``version``, ``sha256`` and ``bytes`` of the wheel, ``minions`` (a list of rows:
    ``id``; ``result``: ``installed``, ``already there``, ``would be installed``, ``would be
    restarted``, ``failed``, ``no answer``; ``before`` and ``now``, the versions, None without;
    ``restarted``, None if not needed; ``problem``), ``counts`` (result → minions), and ``unknown``
    (masters that could not be asked, and why). Exit code 2 if a minion did not answer or a master
    could not be asked, 1 if anything failed or no minion matches, else 0.

    CLI Example:

    .. code-block:: bash

        salt-run ha.install_minions 'web*' test=True
        salt-run ha.install_minions 'os:Debian' tgt_type=grain batch=10%
    """

    def work(settings: mapping.HaConfig) -> Answer:
        runner_arguments.check_text(tgt)
        ask, wheel = _asking_minions(settings, timeout), own_wheel.make()
        how = runner_arguments.checked({"force": force, "restart": restart, "test": test})
        return install.run(ask, wheel, tgt, tgt_type, batch, timeout, **how)

    return _answer(work)


def _caller() -> str:
    return engine_client.caller(globals().get("__user__"))


def _asking(settings: mapping.HaConfig, work: Any = 0, more: float = 0.0) -> engine_client.Ask:
    return engine_client.asking(settings, _caller(), work, more)


def _moving(work: Callable[[engine_client.Ask, Answer], Answer], payload: Answer) -> Answer:
    return _answer(
        lambda settings: work(_asking(settings, LONG), runner_arguments.checked(payload))
    )


def _asking_minions(settings: mapping.HaConfig, timeout: Any) -> engine_client.Ask:
    return _asking(settings, timeout, cmd_batches.BESIDE)


def _ask(command: str, work: Any = 0, **payload: Any) -> Answer:
    """Ask the engine to carry out *command*; *work*: seconds that it may work on it."""
    return _answer(
        lambda settings: _asking(settings, work)(command, runner_arguments.checked(payload))
    )


def _answer(work: Callable[[mapping.HaConfig], Answer]) -> Answer:
    return engine_client.shaped(lambda: work(mapping.parse(__opts__)), __context__)
