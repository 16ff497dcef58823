"""
This master's identity towards peers: its own private key and self-signed certificate.

It is never Salt's ``master.pem``: the whole group may share that, and minions are shown it.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import secrets
import ssl
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from saltext_ha.common.errors import TrustError
from saltext_ha.common.fail_points import point
from saltext_ha.common.files import create_whole, private_dir, read_plain, refuse_link, write_whole
from saltext_ha.transport import fingerprints, succession

log = logging.getLogger(__name__)

KEY_FILE = "identity.key"
CERTIFICATE_FILE = "identity.crt"
# A renewed pair is in one file, so that one rename replaces the former pair.
RENEWED_FILE = "identity.pem"
FORMER_FILE = "identity.former"
LIFETIME = datetime.timedelta(days=3653)
# Masters whose clocks are far behind must still accept a new certificate.
BACKDATED = datetime.timedelta(days=366)
ANEW = (
    "on it salt-run ha.leave; on another member salt-ha invite; on it salt-ha join --token-file -"
)
"""How a master gets a certificate that does not follow from its present one, and comes back."""
_BEGIN = "-----BEGIN CERTIFICATE-----"
_OURS = {KEY_FILE, CERTIFICATE_FILE, RENEWED_FILE, "replica.db"}
"""A folder with one of these is a state folder, perhaps put back from a backup by hand."""


@dataclass(frozen=True)
class Identity:
    """
    This master's certificate (PEM), its fingerprint, the files of both halves, and its former
    certificates (the oldest first).
    """

    key_file: Path
    certificate_file: Path
    certificate: str
    fingerprint: str
    former: tuple[str, ...] = ()

    @property
    def chain(self) -> tuple[str, ...]:
        """All certificates, the oldest first; each was signed with the key of the one before it."""
        return (*self.former, self.certificate)

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all certificates."""
        return frozenset(map(fingerprints.of_pem, self.chain))


def state_folder(path: Path) -> Path:
    """
    The state folder *path*, made when it is missing, and closed to everyone but its owner.

    :raises TrustError: it is a link; or it is open to others, and holds something else: closing a
        folder such as ``/var/lib``, which ``ha: state_dir`` may name, would break the machine.
    """
    refuse_link(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        held = {entry.name for entry in path.iterdir()} - {"lost+found"}
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and held and not held & _OURS:
            raise TrustError(
                f"{path}: holds other things and is open to others (mode {mode:04o}); closing it "
                f"would lock them out. Name a folder for this alone: ha: state_dir: "
                f"{path / 'salt-ha'}; or, if others need nothing in it: chmod 700 {path}"
            )
    return private_dir(path)


def load_or_create(state_dir: Path, name: str) -> Identity:
    """
    This master's identity, made on first use.

    The engine and a runner may both be first: exactly one of them creates each file, as a whole,
    and the certificate is made from the key that is there.

    :param state_dir: created with mode 0700 if it is missing.
    :param name: written into a new certificate for people to read; nothing checks it.
    :raises TrustError: a file is damaged, or key and certificate do not belong together; or as
        :func:`state_folder`.
    """
    state_folder(state_dir)
    key_file, certificate_file = state_dir / KEY_FILE, state_dir / CERTIFICATE_FILE
    for file in (KEY_FILE, CERTIFICATE_FILE, RENEWED_FILE, FORMER_FILE):
        refuse_link(state_dir / file)
    renewed = _renewed(state_dir)
    if renewed:
        return renewed
    try:
        # Look before the key, which is always made first: so a key that another process is making
        # does not look like a lost one.
        orphaned = certificate_file.exists()
        if not key_file.exists():
            if orphaned:
                raise TrustError(
                    f"{key_file}: missing, while {certificate_file} is there; restore the key from "
                    f"a backup, or remove the certificate and join the group again"
                )
            create_whole(key_file, _new_key())
        _close_to_others(key_file)
        key = _load_key(key_file)
        if not certificate_file.exists():
            point("identity.certificate")
            create_whole(certificate_file, _new_certificate(key, name), mode=0o644)
        pem = read_plain(certificate_file).decode("ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise TrustError(f"{state_dir}: the identity cannot be read or made: {exc}") from None
    return _checked(key, pem, key_file, certificate_file)


def is_there(state_dir: Path) -> bool:
    """
    Whether this master's key is in its state folder: in its own file or, if renewed, in one file
    with the certificate.

    :raises OSError: the folder cannot be read.
    """
    # In this order: a renewal makes the one file, then drops the other.
    for name in (KEY_FILE, RENEWED_FILE):
        with contextlib.suppress(FileNotFoundError):
            (state_dir / name).stat()
            return True
    return False


def files(state_dir: Path) -> dict[Path, bytes]:
    """
    The files of this master's key and certificate, and what is in each.

    :raises OSError: one cannot be read.
    """
    found = {}
    for name in (KEY_FILE, CERTIFICATE_FILE, RENEWED_FILE):
        with contextlib.suppress(FileNotFoundError):
            found[state_dir / name] = read_plain(state_dir / name)
    return found


def existing_or_provisional(state_dir: Path, name: str, scratch: Path) -> Identity:
    """
    This master's identity if it has one; if not, a temporary identity in the folder *scratch*, to
    ask a question.
    """
    key_file, certificate_file = state_dir / KEY_FILE, state_dir / CERTIFICATE_FILE
    if (state_dir / RENEWED_FILE).exists() or (key_file.exists() and certificate_file.exists()):
        return load_or_create(state_dir, name)
    return load_or_create(scratch, name)


def check_vouches(present: Identity) -> None:
    """
    Check that the certificate of *present* can vouch for one that follows it.

    :raises TrustError: it has expired, or has too many former ones.
    """
    if succession.expired(present.certificate):
        raise TrustError(
            f"this master's certificate has expired and vouches for no other any more: {ANEW}"
        )
    if len(present.former) >= succession.MAX_FORMER:
        raise TrustError(f"too many former certificates: {ANEW}")


def succeed(state_dir: Path, name: str) -> Identity:
    """
    Take a new key and certificate, signed with the present key: see :mod:`.succession`.

    Peers are shown the new certificate from now on; they need not be asked first.

    :raises TrustError: the present certificate cannot be read, has expired, or has too many former
        ones.
    """
    present = load_or_create(state_dir, name)
    check_vouches(present)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _new_certificate(key, name, (_load_key(present.key_file), present.certificate))
    # Write the former ones first: they count only if a certificate follows them.
    write_whole(state_dir / FORMER_FILE, "".join(present.chain).encode("ascii"))
    write_whole(state_dir / RENEWED_FILE, _encoded(key) + certificate)
    for file in (CERTIFICATE_FILE, KEY_FILE):
        (state_dir / file).unlink(missing_ok=True)
    return load_or_create(state_dir, name)


def renew(state_dir: Path, name: str) -> Identity:
    """
    Delete the identity and make a new one, which peers do not know until this master joins.

    A certificate that was removed from a group stays removed for good, so a master that left comes
    back with a new one.
    """
    # Delete the key last: after a crash in between, a certificate without its key would be refused.
    (state_dir / CERTIFICATE_FILE).unlink(missing_ok=True)
    point("identity.drop")
    for file in (KEY_FILE, RENEWED_FILE, FORMER_FILE):
        (state_dir / file).unlink(missing_ok=True)
    return load_or_create(state_dir, name)


def _renewed(state_dir: Path) -> Identity | None:
    """The identity after a renewal, if there was one."""
    path = state_dir / RENEWED_FILE
    try:
        if not path.exists():
            return None
        _close_to_others(path)
        pem = read_plain(path).decode("ascii")
        former_file = state_dir / FORMER_FILE
        former = read_plain(former_file).decode("ascii") if former_file.exists() else ""
    except (OSError, UnicodeDecodeError) as exc:
        raise TrustError(f"{state_dir}: the identity cannot be read: {exc}") from None
    start = pem.find(_BEGIN)
    made = _checked(_load_key(path), pem[max(0, start) :], path, path)
    older = [f"{_BEGIN}\n{part.strip()}\n" for part in former.split(_BEGIN)[1:]]
    return replace(made, former=tuple(pem for pem in older if pem != made.certificate))


def _close_to_others(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        log.warning("identity key=%s was open to others; mode set to 0600", path)
        path.chmod(0o600)


def _new_key() -> bytes:
    return _encoded(ec.generate_private_key(ec.SECP256R1()))


def _encoded(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_plain(path), password=None)
    except (ValueError, TypeError) as exc:
        raise TrustError(
            f"{path}: not a private key: {exc}; restore it from a backup, or remove identity.key "
            f"and identity.crt and join the group again"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TrustError(f"{path}: not an elliptic curve key; remove it and join the group again")
    return key


def _new_certificate(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    former: tuple[ec.EllipticCurvePrivateKey, str] | None = None,
) -> bytes:
    """A certificate for *key*: self-signed, or issued with the *former* key and certificate."""
    # TLS libraries look up trust anchors by subject: each certificate of a master needs its own.
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "saltext-ha"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, secrets.token_hex(16)),
        ]
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    public = key.public_key()
    signer, issuer = key, subject
    if former:
        signer = former[0]
        issuer = x509.load_pem_x509_certificate(former[1].encode("ascii")).subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    certificate = builder.sign(signer, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


def _checked(
    key: ec.EllipticCurvePrivateKey, pem: str, key_file: Path, certificate_file: Path
) -> Identity:
    try:
        der = ssl.PEM_cert_to_DER_cert(pem.strip())
        shown = x509.load_der_x509_certificate(der).public_key()
    except ValueError as exc:
        raise TrustError(
            f"{certificate_file}: not a PEM certificate: {exc}; remove it to have a new one made "
            f"(peers must then pin it: join the group again)"
        ) from None
    raw = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if shown.public_bytes(*raw) != key.public_key().public_bytes(*raw):
        raise TrustError(
            f"{certificate_file}: does not belong to {key_file}; restore the matching pair from a "
            f"backup, or remove both and join the group again"
        )
    shown_pem = ssl.DER_cert_to_PEM_cert(der)
    return Identity(key_file, certificate_file, shown_pem, fingerprints.of(der))
