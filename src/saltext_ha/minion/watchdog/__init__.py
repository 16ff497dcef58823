"""
The minion's watchdog: sees that a master does not work, and moves the minion to one that does.

``decide`` has the decisions, without a clock and without I/O; ``look`` gathers what they rest on;
``order`` knows in which order Salt tries the masters; ``move`` makes the minion change its master;
``journal`` remembers where it hung since when; ``run`` is the loop of the ``ha_watchdog`` engine;
``settings`` its configuration.
"""
