"""The leader: one master, which does the work that must not be done twice."""
