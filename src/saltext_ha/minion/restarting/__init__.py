"""How a minion is started anew, by a process that outlives it."""
