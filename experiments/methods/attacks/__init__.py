"""Attacks on networks: shadow networks, discriminators, inversion."""
