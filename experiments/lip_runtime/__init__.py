"""Seconds of an epoch against the logical batch size, Figure 5.3.2."""
