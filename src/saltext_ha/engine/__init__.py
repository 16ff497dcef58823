"""Builds the parts of an engine from the configuration, wires them, starts them, ends them."""
