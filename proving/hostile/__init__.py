"""
An engine under attack: all that strangers, minions, peers and local users could send, and far more.

``python -m proving.hostile`` runs a real engine in a process of its own, beside an honest peer that
goes on working and measures how it is served. It sends seeded nonsense through every door, and
afterwards looks from outside at folders, files, memory and logs.
"""
