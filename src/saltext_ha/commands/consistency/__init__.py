"""Are the masters configured the same, and without traps?"""
