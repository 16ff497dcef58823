"""Builds everything from the configuration, wires it, starts it, ends it."""
