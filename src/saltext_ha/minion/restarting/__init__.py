"""Restarts a minion, by a process that outlives it."""
