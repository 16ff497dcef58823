"""
The containers of ``deploy/`` for real: a Docker Engine of its own, an image built from the
checkout, a group made by ``compose.yaml``, and what may happen to the group.

Docker Engine, docker-compose and mmdebstrap are Debian's; no image is pulled from anywhere.
"""
