"""Links to all peers: pushes of changes, anti-entropy, retention, questions to the group."""
