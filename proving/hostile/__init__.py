"""
An engine under attack: what strangers, minions, peers and local users could send, and far more.

``python -m proving.hostile`` runs a real engine in a process of its own, with an honest peer beside
it that goes on working and measures how it is served; sends seeded nonsense through every door, and
looks from outside afterwards at what became of folders, files, memory and logs.
"""
