"""A file for each ``ha.*`` command: takes what it needs, returns plain data."""
