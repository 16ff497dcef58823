"""Builds what is published, and tries it as a stranger gets it: ``python -m proving.dist``."""
