"""
Who this master is to its peers: a private key and a self-signed certificate of its own.

Never Salt's ``master.pem``: that one may be shared by the whole group, and is shown to minions.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from saltext_ha.errors import TrustError
from saltext_ha.peering.files import create_whole, private_dir

log = logging.getLogger(__name__)

KEY_FILE = "identity.key"
CERTIFICATE_FILE = "identity.crt"
LIFETIME = datetime.timedelta(days=3653)
# Masters whose clocks are far behind must still take a fresh certificate.
BACKDATED = datetime.timedelta(days=366)


@dataclass(frozen=True)
class Identity:
    """This master's certificate (PEM), its fingerprint, and where both halves lie."""

    key_file: Path
    certificate_file: Path
    certificate: str
    fingerprint: str


def load_or_create(state_dir: Path, name: str) -> Identity:
    """
    This master's identity, made on first use.

    The engine and a runner may both be first: each file is created whole by exactly one of them,
    and the certificate follows from whichever key is there.

    :param state_dir: created with mode 0700 when missing.
    :param name: written into a new certificate for people to read; nothing checks it.
    :raises TrustError: a file is damaged, or the two do not belong together.
    """
    private_dir(state_dir)
    key_file, certificate_file = state_dir / KEY_FILE, state_dir / CERTIFICATE_FILE
    try:
        # Looked for before the key, which is always made first: another process at this very
        # point cannot be taken for a lost key.
        orphaned = certificate_file.exists()
        if not key_file.exists():
            if orphaned:
                raise TrustError(
                    f"{key_file}: missing, while {certificate_file} is there; restore the key from "
                    f"a backup, or remove the certificate and join the group again"
                )
            create_whole(key_file, _new_key())
        if key_file.stat().st_mode & 0o077:
            log.warning("identity key=%s was open to others; mode set to 0600", key_file)
            key_file.chmod(0o600)
        key = _load_key(key_file)
        if not certificate_file.exists():
            create_whole(certificate_file, _new_certificate(key, name), mode=0o644)
        pem = certificate_file.read_text("ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise TrustError(f"{state_dir}: the identity cannot be read or made: {exc}") from None
    return _checked(key, pem, key_file, certificate_file)


def existing_or_provisional(state_dir: Path, name: str) -> Identity:
    """
    This master's identity where it has one; else one that is good for a question only: it lies
    in memory, nothing is written.
    """
    key_file, certificate_file = state_dir / KEY_FILE, state_dir / CERTIFICATE_FILE
    if key_file.exists() and certificate_file.exists():
        return load_or_create(state_dir, name)
    key = ec.generate_private_key(ec.SECP256R1())
    pem = _new_certificate(key, name).decode("ascii")
    return _checked(key, pem, key_file, certificate_file)


def renew(state_dir: Path, name: str) -> Identity:
    """
    Throw the identity away and make a new one; peers know nothing of it before it joins.

    A certificate that was removed from a group stays removed for good, so a master that left
    comes back under a new one.
    """
    # Key last: a certificate without its key would be refused after a crash in between.
    (state_dir / CERTIFICATE_FILE).unlink(missing_ok=True)
    (state_dir / KEY_FILE).unlink(missing_ok=True)
    return load_or_create(state_dir, name)


def _new_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as exc:
        raise TrustError(
            f"{path}: not a private key: {exc}; restore it from a backup, or remove identity.key "
            f"and identity.crt and join the group again"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TrustError(f"{path}: not an elliptic curve key; remove it and join the group again")
    return key


def _new_certificate(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    # TLS libraries look trust anchors up by subject: two certificates of one master must differ.
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
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
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
    digest = hashlib.sha256(der).digest().hex(":")
    return Identity(key_file, certificate_file, ssl.DER_cert_to_PEM_cert(der), digest)
