"""
Many masters on a simulated network: the product's own code, on a clock that jumps.

``kernel`` runs coroutines in simulated time, ``network`` carries their calls, ``keys`` and
``replica`` hold a million keys for dozens of masters in little memory, ``stage`` runs
``saltext_ha.sync.link`` on all that. ``group`` has the masters, ``scenarios`` what happens to them,
``report`` and ``plot`` show the results.
"""
