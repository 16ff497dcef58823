"""One file for each ``ha.*`` command: takes its collaborators, returns plain data."""
