"""What may be pinned beside the peers that are; no files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from saltext_ha.common.errors import TrustError
from saltext_ha.transport import identity, pinning
from saltext_ha.transport.peer import Peer, make_peer
from tests.peers import some_peer


@pytest.fixture
def m2(tmp_path: Path) -> Peer:
    return replace(some_peer(tmp_path), added="2026-01-01", introducer="m4")


@pytest.fixture
def m3(tmp_path: Path) -> Peer:
    return some_peer(tmp_path, "m3")


def test_who_is_pinned_already_needs_no_room(m2: Peer, m3: Peer) -> None:
    pinning.check_room([m2], {"m2": m2, "m3": m3}, most=2)
    with pytest.raises(TrustError, match=r"^m3: this group has 2 masters already, and takes 2"):
        pinning.check_room([m3], {"m2": m2}, most=2)
    with pytest.raises(TrustError, match=r"^this group has 2 masters already, and takes 2"):
        pinning.check_room([m2, m3], {}, most=2)


def test_a_certificate_has_one_name_and_a_name_one_certificate(m2: Peer, m3: Peer) -> None:
    pinning.check_certificate(m2, None, None)
    pinning.check_certificate(m2, m2, m2)
    with pytest.raises(TrustError, match="m9: that certificate is pinned already, as 'm2'"):
        pinning.check_certificate(replace(m2, name="m9"), m2, None)
    other = replace(m3, name="m2")
    with pytest.raises(TrustError, match="pinned already with another certificate"):
        pinning.check_certificate(other, None, m2)
    # The pinned one is a former certificate of this one.
    pinning.check_certificate(replace(other, former=(m2.certificate,)), None, m2)


def test_what_stays_when_a_peer_is_pinned_again(m2: Peer, m3: Peer) -> None:
    moved = replace(m2, url="https://10.0.0.9:4530", added="", introducer="m5")
    assert pinning.merged(m2, moved) == replace(m2, url=moved.url)
    admitted = replace(m2, introducer="")
    assert pinning.merged(m2, admitted) == admitted
    assert pinning.merged(admitted, m2) == admitted
    with pytest.raises(TrustError, match="pinned already with another certificate"):
        pinning.merged(m2, m3)


def test_a_renewed_peer_keeps_all_but_its_certificate(tmp_path: Path, m3: Peer) -> None:
    first = identity.load_or_create(tmp_path / "m2", "m2").certificate
    second = identity.succeed(tmp_path / "m2", "m2")
    third = identity.succeed(tmp_path / "m2", "m2")
    pinned = make_peer("m2", "https://10.0.0.2:4530", first, "2026-01-01", introducer="m4")
    assert pinning.renewed(pinned, [first]) is pinned
    now = pinning.renewed(pinned, third.chain)
    assert (now.certificate, now.former) == (third.certificate, (first, second.certificate))
    assert replace(pinned, certificate="", fingerprint="", former=()) == replace(
        now, certificate="", fingerprint="", former=()
    )
    assert pinning.renewed(now, third.chain) is now
    in_between = pinning.renewed(pinned, second.chain)
    assert pinning.renewed(in_between, third.chain) == now
    with pytest.raises(TrustError, match=r"^m2: shows a certificate that does not follow"):
        pinning.renewed(pinned, [m3.certificate])
