"""One file for each ``ha.*`` command, by subject: takes its collaborators, returns plain data."""
