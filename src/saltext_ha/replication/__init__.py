"""
What several masters know about minion keys, and what follows from it: no I/O, no Salt, no clock.

``record`` says how two masters' knowledge merges; ``placement`` what one master's key store should
show; ``change`` what an operator or a minion did if the store shows something else; ``plan`` the
steps that mend it, in an order that makes a crash harmless; ``digest`` how two masters find what
differs; ``guard`` which changes are too large to be believed.
"""
