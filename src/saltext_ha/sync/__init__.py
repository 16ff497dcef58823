"""One link to every peer: what is pushed, what differs, what is repaired, what may be forgotten."""
