"""
The whole ``ha:`` mapping of the configuration, parsed once into frozen values.

A ``parse`` of what stands under one key of it raises a ValueError that begins with what follows
that key, as ``: timeout: …``, and says what it takes.
"""
