"""
Does this master serve? Real questions to its own doors, and what follows from the answers.

Nothing in here knows the engine; ``health/watcher.py`` asks and keeps the verdict.
"""
