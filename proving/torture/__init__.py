"""
Random histories of operators, minions and disasters on real engines, and what must hold after.

A history is data (``history``), made from a seed alone (``schedule``). ``play`` acts it out on
engines that are real processes with real key folders, sockets and replicas (``world``). A ledger
(``ledger``) records what happened, and ``checker`` compares what the key folders show in the end
with what the ledger allows.
See docs/torture.md.
"""
