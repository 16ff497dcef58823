"""Answers that people see end with a link to what explains a message."""

from __future__ import annotations

from saltext_ha.output import _explained, ha


def anchors(text: str) -> list[str]:
    return [line.partition("#")[2] for line in _explained.links(text)]


def test_an_error_ends_with_its_link() -> None:
    shown = ha.output({"kind": "error", "error": "the ha engine of this master is not running"})
    first, link = shown.splitlines()
    assert first == "error: the ha engine of this master is not running"
    assert link.startswith("→ ")
    assert link.endswith("#the-ha-engine-of-this-master-is-not-running")


def test_what_minions_returned_is_no_message() -> None:
    words = "the ha engine of this master is not running"
    answer = {"kind": "cmd", "returned": {"web1": words}, "fun": "test.echo", "retcode": 0}
    assert _explained.PAGE not in ha.output(answer)


def test_names_numbers_and_line_breaks_do_not_matter() -> None:
    assert anchors("m1: this group has 3 masters\n   already; more needs …") == [
        "this-group-has-64-masters-already-introduced-16-masters-within-an-hour"
    ]
    assert anchors("its key store is that of berlin-2.example, too") == [
        "its-key-store-is-that-of-m2-too"
    ]
    assert anchors("protocol 7 is not spoken here") == ["protocol--is-not-spoken-here"]
    assert anchors("all is well") == []


def test_a_few_links_are_enough() -> None:
    text = " ".join(_explained.HEADINGS).replace("`", "")
    assert len(anchors(text)) == _explained.MOST
