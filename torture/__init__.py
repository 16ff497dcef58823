"""
Random histories of operators, minions and disasters on real engines, and what must be true after.

A history is data (:mod:`torture.schedule`), made from a seed alone. :mod:`torture.world` acts it out
on engines that are real processes with real key folders, sockets and replicas; what happened is
kept in a ledger (:mod:`torture.ledger`), and :mod:`torture.checker` compares what the key folders
show in the end with what the ledger allows. See docs/torture.md.
"""
