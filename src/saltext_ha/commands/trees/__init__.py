"""Folders that all masters serve the same: deploying and rolling back."""
