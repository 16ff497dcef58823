"""What runs on minions: where they are bound, what they say of it, the watchdog, restarts."""
