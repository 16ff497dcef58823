"""Keys of minions on all masters: shown, decided about, compared."""
