"""Exchanges a minion's file about its masters; the old one comes back if no master is reached."""
