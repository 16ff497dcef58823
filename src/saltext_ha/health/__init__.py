"""
Does this master serve? Asks its own ports real questions, and draws the verdict.

Nothing in here knows the engine; ``health/watcher.py`` asks and keeps the verdict.
"""
