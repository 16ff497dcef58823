"""What is taken as the description of a peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from saltext_ha.common.errors import TrustError
from saltext_ha.transport import identity, succession
from saltext_ha.transport.peer import make_peer


@pytest.mark.parametrize(
    ("name", "url", "certificate"),
    [
        ("../m2", "https://h:1", None),
        ("m2\n", "https://h:1", None),
        (7, "https://h:1", None),
        ("m2", "h:1", None),
        ("m2", None, None),
        ("m2", "https://h:1", ""),
        ("m2", "https://h:1", 7),
        ("m2", "https://h:1", "twice"),
        ("m2", "https://h:1", "key"),
    ],
)
def test_what_is_no_peer(tmp_path: Path, name: object, url: object, certificate: object) -> None:
    made = identity.load_or_create(tmp_path / "x", "x")
    known = {None: made.certificate, "twice": made.certificate * 2}
    if certificate == "key":
        certificate = made.key_file.read_text()
    elif certificate in known:
        certificate = known[certificate]  # type: ignore[index]
    with pytest.raises(TrustError):
        make_peer(name, url, certificate)


@pytest.mark.parametrize("former", [7, "", "abc", {}, None, 17])
def test_former_certificates_are_a_list_and_not_too_many(tmp_path: Path, former: object) -> None:
    made = identity.load_or_create(tmp_path / "x", "x").certificate
    former = [made] * (succession.MAX_FORMER + 1) if former == 17 else former
    with pytest.raises(TrustError, match="no list, or too many"):
        make_peer("x", "https://h:1", made, former=former)


def test_former_certificates_lead_to_the_present_one(tmp_path: Path) -> None:
    identity.load_or_create(tmp_path / "x", "x")
    other = identity.load_or_create(tmp_path / "y", "y").certificate
    for _ in range(succession.MAX_FORMER):
        made = identity.succeed(tmp_path / "x", "x")
    last, former = made.certificate, made.former
    found = make_peer("x", "https://h:1", last, former=former)
    assert len(found.former) == succession.MAX_FORMER
    with pytest.raises(TrustError, match="certificate of x: a certificate was not signed"):
        make_peer("x", "https://h:1", last, former=[other])
