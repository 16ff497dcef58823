"""
The minion's watchdog: detects that a master does not work, and moves the minion to one that does.

``decide`` has the decisions, without a clock and without I/O; ``look`` gathers their input;
``order`` knows in which order Salt tries the masters; ``move`` makes the minion change its master;
``journal`` records which master the minion was connected to since when; ``run`` is the loop of the
``ha_watchdog`` engine. Its configuration is :mod:`saltext_ha.config.watchdog`.
"""
