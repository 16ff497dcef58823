"""
The errors of this package, in one tree.

::

    HaError                     the root; derives from SaltException, so Salt prints it plainly
    ├── ConfigError             the ``ha:`` mapping is wrong; names the file, the key, what it takes
    ├── StoreError              Salt's key store could not be read or written
    │   ├── UnlistedStore       it could not be listed, so nobody knows what changed in it
    │   └── UncleanCaches       keys are revoked; caches of their minions could not be cleaned
    ├── ReplicaError            replica.db could not be read or written
    │   └── ReplicaDamaged      it is no database any more
    ├── InvalidRecord           a record from a peer, a key file or an argument is not acceptable
    ├── TokenError              a join token is malformed, altered, used or expired
    ├── TrustError              a certificate is missing, damaged or not pinned
    │   └── MisnamedPeer        the file of a peer is called after another name
    ├── PeerError               a call to a peer did not succeed
    │   ├── PeerUnreachable     no answer: refused, timed out, TLS failed
    │   │   ├── PeerMistrust    one of the two does not know the certificate of the other
    │   │   └── NobodyListens   its address answers, and has nobody at that port
    │   └── PeerRefused         the peer answered, and said no (its reason is the message)
    │       ├── MessageTooLarge more than it takes in one message
    │       └── UnknownMethod   its release does not know the question
    ├── EtcdError               no endpoint of etcd gave an answer of use; names each and why
    │   └── LeaseGone           the lease there has ended
    ├── LeadsNoMore             this master has ceased to lead meanwhile
    ├── PublishingTimedOut      salt-master did not say in time whether it took a job
    ├── StillReading            all files could not be read in the time there was
    ├── FolderChanged           somebody wrote into a folder while it was read
    ├── DiskHangs               work on a disk was given up, as nothing moved there
    ├── EngineBusy              the ha engine of this master carries out as many commands as it can
    └── EngineUnavailable       the ha engine of this master does not answer on its socket
        ├── EngineBrokeOff      it may have got the command, and carry it out
        └── NotPermitted        this user may not ask it

The errors of the salt-api pool are a tree of their own (``api/errors.py``): it works without Salt.
"""

import asyncio
import os
import traceback

from salt.exceptions import SaltException

# The errors that reading a malformed answer raises: a port may be anything, even infinity.
NO_SENSE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# So asyncio says that it cannot connect; only the number of the error says why.
NO_CONNECTION = "Connect call failed"

# The meanings of errors without a text: asyncio raises such errors. On Python 3.10,
# asyncio.TimeoutError is no TimeoutError.
_MEANINGS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncio.TimeoutError, "timed out"),
    (TimeoutError, "timed out"),
    (ConnectionAbortedError, "the connection was aborted, or its handshake timed out"),
    (ConnectionRefusedError, "the connection was refused"),
    (BrokenPipeError, "the other side hung up"),
    (ConnectionError, "the other side hung up"),
    (EOFError, "the other side hung up"),
    (asyncio.CancelledError, "it was cancelled"),
    (MemoryError, "out of memory"),
)


def drop_tracebacks(error: BaseException) -> None:
    """
    Drop the traceback of a handled *error*, and the objects that its frames hold; the same for its
    causes. Not for its contexts: other code may still handle these.

    None of the frames may be suspended, for instance in a task that caught the error and waits for
    something else: before Python 3.13, clearing such a frame closes its coroutine.

    A function that keeps the error that came through it makes a cycle. Only the garbage collector
    ends it. The collector counts objects, and a few can hold 0.3 MB if a TLS session is among them.
    """
    cause: BaseException | None = error
    while cause is not None and cause.__traceback__ is not None:  # one may be its own cause
        traceback.clear_frames(cause.__traceback__)
        cause.__traceback__ = None
        cause = cause.__cause__


def reason_of(exc: BaseException) -> str:
    """The reason of *exc* for people, never empty: its text, or else the meaning of its type."""
    said = str(getattr(exc, "strerror", None) or exc).strip()
    if isinstance(exc, OSError) and exc.errno and said.startswith(NO_CONNECTION):
        return os.strerror(exc.errno)
    if said and said != "()":  # an ssl.SSLError shows its arguments, even if it has none
        return said
    for kind, meaning in _MEANINGS:
        if isinstance(exc, kind):
            return meaning
    return type(exc).__name__


class HaError(SaltException):  # type: ignore[misc]  # Salt has no types
    """Root of all errors raised by saltext-ha."""


class ConfigError(HaError):
    """The ``ha:`` configuration is wrong; the message names file, key, value and what it takes."""


class StoreError(HaError):
    """Salt's key store could not be read or written."""


class UnlistedStore(StoreError):
    """Salt's key store could not be listed; single keys may be readable all the same."""


class UncleanCaches(StoreError):
    """See the tree above."""


class ReplicaError(HaError):
    """replica.db could not be read or written."""


class ReplicaDamaged(ReplicaError):
    """replica.db is damaged: move it aside, and rebuild it from the store and the peers."""


class InvalidRecord(HaError):
    """A record, minion id, public key or argument is not acceptable; no part of it was stored."""


class TokenError(HaError):
    """A join token is malformed, altered, used or expired."""


class TrustError(HaError):
    """A certificate or private key of ours or of a peer is missing, damaged or not pinned."""


class MisnamedPeer(TrustError):
    """
    The file of a peer is called after another name: most likely a copy.

    :ivar name: the name of the peer in it.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class PeerError(HaError):
    """A call to a peer did not succeed."""


class PeerUnreachable(PeerError):
    """A peer gave no usable answer: connection refused, deadline passed, TLS failed, nonsense."""


class PeerMistrust(PeerUnreachable):
    """
    One of the two does not know the other's certificate: renewed, removed, or a stranger's.

    :ivar taken: whether the peer may have taken the call all the same: it hung up, as a peer does
        that ends while it works.
    """

    def __init__(self, message: str, taken: bool = False) -> None:
        super().__init__(message)
        self.taken = taken


class NobodyListens(PeerUnreachable):
    """The address answers, and nothing listens on the port."""


class EtcdError(HaError):
    """None of the endpoints of etcd gave an answer of use; names each and why."""


class LeaseGone(EtcdError):
    """The lease in etcd has ended."""


class LeadsNoMore(HaError):
    """This master has ceased to lead meanwhile; it may lead again."""


class PeerRefused(PeerError):
    """
    A peer answered and refused; the message names the peer, what it was asked, and its reason.

    :ivar reason: the reason alone, in the peer's words; empty where it gave none.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class MessageTooLarge(PeerRefused):
    """A message is larger than the peer takes; the peer may take it in parts."""


class UnknownMethod(PeerRefused):
    """A peer does not know the question: it runs another release."""


class PublishingTimedOut(HaError):
    """salt-master did not say whether it took the job; it may yet publish it."""


class StillReading(HaError):
    """The time was too short to read all files; the next attempt goes on from there."""


class FolderChanged(HaError):
    """Somebody wrote into a folder while it was read: what was read is of no one moment."""


class DiskHangs(HaError):
    """Work on a disk was given up: nothing moved there for too long."""


class EngineBusy(HaError):
    """The ha engine of this master carries out as many commands as it can, and not this one."""


class EngineUnavailable(HaError):
    """The ha engine of this master does not answer on its control socket."""


class EngineBrokeOff(EngineUnavailable):
    """The engine may have got the command, and carried it out; no answer came."""


class NotPermitted(EngineUnavailable):
    """The socket of the engine is another user's: only its owner and root may ask it."""
