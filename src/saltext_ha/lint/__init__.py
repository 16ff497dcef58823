"""Traps in the configuration of a master or a minion, found before they do harm."""
