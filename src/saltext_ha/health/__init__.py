"""
Does this master serve? Real questions to its own ports, and the verdict that follows.

Nothing in here knows the engine; ``health/watcher.py`` asks and keeps the verdict.
"""
