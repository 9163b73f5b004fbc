"""Mechanisms, and the privacy of them, that only reproductions use."""
