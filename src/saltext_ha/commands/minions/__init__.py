"""Where minions are; jobs for them; moving them from one master to another."""
