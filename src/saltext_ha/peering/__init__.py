"""
Authenticated calls between masters. What is called, and with what, is opaque here.

identity (who we are) · trust (whom we know) · tls, wire, connection, refusals → listener, client ·
token, invites, standing → membership (letting in, leaving, gossip) · join, unattended (getting in)
"""
