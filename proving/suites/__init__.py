"""
Salt's own suites for several masters, run as they are on a Salt with saltext-ha in it.

None of them is kept here: the source archive of the installed Salt comes from the package index.
"""
