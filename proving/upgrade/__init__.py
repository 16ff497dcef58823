"""Masters of an earlier commit and of this one in one group, before and after the upgrade."""
