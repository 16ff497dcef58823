"""One master leads: it does what must not be done twice."""
