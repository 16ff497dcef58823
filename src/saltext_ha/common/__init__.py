"""Modules that every room may use: errors, validators, whole files, addresses, fail points."""
