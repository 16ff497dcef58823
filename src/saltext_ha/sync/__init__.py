"""One link to every peer: pushing changes, anti-entropy, retention, questions to the group."""
