"""
Who belongs to the group: invitations, joins, admission, leaving.

membership (who belongs, gossip) · token, invites, group_secret → admission (lets masters in) ·
join, unattended, reaching (the joining side) · handover (of key pairs) · renewal, auto_join
"""
