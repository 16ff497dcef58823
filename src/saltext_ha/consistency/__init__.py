"""Are the masters of a group the same? Snapshots of each, rules as data, a pure comparison."""
