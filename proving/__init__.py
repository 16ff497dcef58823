"""
What proves and measures the product, beside its tests.

- ``torture``: random histories of disasters on real engines, checked from outside
- ``hostile``: an engine, attacked through every door
- ``simulation``: a million keys, fifty masters, with the product's own replication
- ``suites``: Salt's own suites for several masters, with our engines on
- ``containers``: the image and the compose file of ``deploy/``, on a Docker Engine of its own
- ``benchmarks``: how long things take, beside others that do them

All of them use real masters and engines from ``lab``; ``harness`` has what else they share: facts
about the machine, folders for a run, and tables of numbers.
"""
