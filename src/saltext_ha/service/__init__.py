"""
What runs inside the ``ha`` engine: the keeper of this master's keys, one link to every peer, and
a control socket for the runner.
"""
