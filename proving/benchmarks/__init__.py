"""Measurements behind every number in README and docs."""
