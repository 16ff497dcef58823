"""
Authenticated calls between masters, and the control socket. What is called is opaque here.

wire (what travels) · identity, succession (who we are, and were) · trust (whom we know) · tls,
connection, framing → listener, client · control_server, control_client: the same for this machine
"""
