"""The ``ha:`` mapping of the configuration, all of it, parsed once into frozen values."""
