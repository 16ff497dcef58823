"""
Who belongs to the group: invitations, joins, admission, leaving.

membership (who belongs, gossip) · token, invites, group_secret → admission (letting in) · join,
unattended, reaching (getting in) · handover (of the masters' key pairs) · certificates, auto_join
"""
