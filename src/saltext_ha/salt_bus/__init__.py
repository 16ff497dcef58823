"""Salt's event bus: one listener, what is let in, what we fire."""
