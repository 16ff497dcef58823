"""What only one master does: the leader, ``ha.once``, locks."""
