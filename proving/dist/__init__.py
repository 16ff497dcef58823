"""What is published, built and tried as a stranger gets it: ``python -m proving.dist``."""
