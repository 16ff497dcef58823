"""A minion's file about its masters is exchanged, and comes back when it leads to no master."""
