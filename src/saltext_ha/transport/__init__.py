"""
Authenticated calls between masters, and the control socket. Their content is opaque here.

wire (the messages) · fingerprints · identity, succession (our own certificates) · peer_files →
pins, removals, pinning → trust (pinned peers) · tls, connection, framing → listener, client →
stranger_calls · control_server, control_client: calls within one machine
"""
