"""
What several masters know about minion keys, and what follows from it: no I/O, no Salt, no clock.

``record`` merges the knowledge of two masters; ``placement`` says what a key store should show;
``interpretation`` what an operator or a minion did if the store shows something else; ``plan``
which steps mend it, in an order that makes a crash harmless; ``digest`` what differs between two
masters; ``guard`` which changes are too large to be believed.
"""
