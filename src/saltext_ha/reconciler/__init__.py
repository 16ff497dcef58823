"""Keeps key store and records in step: local changes become records, records are applied."""
