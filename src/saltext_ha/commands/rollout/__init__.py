"""What minions need of this package: their configuration, and the package itself."""
