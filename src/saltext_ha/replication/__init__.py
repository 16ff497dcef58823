"""
What several masters know about minion keys, and what follows from it: no I/O, no Salt, no clock.

``record`` says how two masters' knowledge merges, ``placement`` what one master's key store should
show, ``change`` what an operator or a minion did when the store shows something else, ``plan`` the
steps to mend it in an order that a crash cannot hurt, ``digest`` how two masters find what differs,
``guard`` which changes are too large to be believed.
"""
