"""What is refused of a key store, as an operator is told of it."""

from __future__ import annotations

from saltext_ha.reconciler.refused import NO_KEY, RefusedIds


def test_a_note_says_which_and_why() -> None:
    refused = RefusedIds()
    assert refused.note() == ""
    refused.add("web7", "Permission denied")
    assert refused.note() == "1 id is refused here: web7 (Permission denied)"
    for name in ("db\n1", "web8", "web9"):
        refused.add(name, NO_KEY)
    assert refused.note() == (
        f"4 ids are refused here: db\\n1 ({NO_KEY}), web7 (Permission denied), web8 ({NO_KEY}), …"
    )
    refused.discard("web7")
    refused.add("a", "Operation not permitted " * 10)
    assert len(refused.note()) < 300
    assert "web7" not in refused.note()
