"""The whole ``ha:`` mapping of the configuration, parsed once into frozen values."""
