"""
Random histories of operators, minions and disasters on real engines, and what must hold after.

A history is data (:mod:`torture.history`), made from a seed alone (:mod:`torture.schedule`).
:mod:`torture.play` acts it out on engines that are real processes with real key folders, sockets
and replicas (:mod:`torture.world`); what happened is kept in a ledger (:mod:`torture.ledger`), and
:mod:`torture.checker` compares what the key folders show in the end with what the ledger allows.
See docs/torture.md.
"""
