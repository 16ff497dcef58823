"""How the masters are, how they are reached, and restarting them."""
