"""What runs on minions: their binding to masters and its evidence, the watchdog, restarts."""
