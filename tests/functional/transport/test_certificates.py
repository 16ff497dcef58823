"""Certificates that are pinned, and are not to be believed all the same."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from saltext_ha.common.errors import PeerRefused, PeerUnreachable
from saltext_ha.transport import identity
from saltext_ha.transport.client import call_once
from saltext_ha.transport.peer import make_peer
from tests.loop import in_a_loop, until
from tests.peers import Master, befriend, echo

DAY = datetime.timedelta(days=1)


@pytest.fixture
def m1(tmp_path: Path) -> Master:
    return Master(tmp_path, "m1")


def dated(master: Master, begins: datetime.timedelta, ends: datetime.timedelta) -> None:
    """Give *master* another certificate of its own key, valid from and until then."""
    own = master.identity
    old = x509.load_pem_x509_certificate(own.certificate.encode())
    key = serialization.load_pem_private_key(own.key_file.read_bytes(), None)
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.subject)
        .public_key(old.public_key())
        .serial_number(7)
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    own.certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    master.identity = identity.load_or_create(master.state_dir, master.name)


@pytest.mark.parametrize(("begins", "ends"), [(-2 * DAY, -DAY), (DAY, 2 * DAY)])
@in_a_loop
async def test_a_certificate_out_of_its_time_counts_while_it_is_pinned(
    m1: Master, tmp_path: Path, begins: datetime.timedelta, ends: datetime.timedelta
) -> None:
    """The pin decides: a clock that is years off must not take a master out of the group."""
    m2 = Master(tmp_path, "m2")
    dated(m2, begins, ends)
    befriend(m1, m2)

    async with m1.running({"echo": echo}) as listener, m2.running({"echo": echo}):
        await call_once(m2.identity, m1.peer, "echo")
        await call_once(m1.identity, m2.peer, "echo")
        m1.trust.remove("m2")
        with pytest.raises((PeerUnreachable, PeerRefused)):
            await call_once(m2.identity, m1.peer, "echo")
        await until(lambda: "certificate not pinned" in listener.refused)


@in_a_loop
async def test_two_peers_that_swapped_their_certificates(m1: Master, tmp_path: Path) -> None:
    """Each is called where the other answers: neither hears what was meant for the other."""
    m2, m3 = Master(tmp_path, "m2"), Master(tmp_path, "m3")
    befriend(m1, m2, m3)
    heard: list[object] = []

    async def listen(*call: object) -> dict[str, object]:
        heard.append(call)
        return {}

    async with m2.running({"echo": listen}), m3.running({"echo": listen}):
        for one, other in ((m2, m3), (m3, m2)):
            swapped = make_peer(one.name, other.url, one.identity.certificate)
            with pytest.raises(PeerUnreachable, match="another certificate"):
                await call_once(m1.identity, swapped, "echo")
    assert heard == []
