"""
Authenticated calls between masters. What is called, and with what, is opaque here.

files, wire (what is kept, what travels) · identity, succession (who we are, and were) · trust (whom
we know) · tls, connection, refusals → listener, client · membership (who belongs, leaving, gossip)
· token, invites, standing → admission (letting in) · join, unattended (getting in) · handover (of
the masters' key pairs)
"""
