"""
The containers of ``deploy/`` for real: a Docker Engine of its own, an image built from the
checkout, a group by ``compose.yaml``, and what may happen to it.

Docker Engine, docker-compose and mmdebstrap are Debian's; no image is pulled from anywhere.
"""
