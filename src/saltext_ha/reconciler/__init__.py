"""Key store and records, held together: what is seen becomes records, what is known is applied."""
