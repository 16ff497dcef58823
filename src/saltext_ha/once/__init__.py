"""The leader: one master, which does what must not be done twice."""
