"""Minions as masters see them: presence, location, jobs, drain and rebalance."""
