"""Masters that come into the group, go, or are removed from it."""
