"""Configurations of load balancers in front of the salt-api of all masters."""
