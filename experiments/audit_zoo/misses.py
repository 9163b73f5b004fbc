"""Bugs of the zoo that neither audit of dpjax finds, with the reason."""

KNOWN: dict[str, str] = {}
"""Name of a bug -> why it is not found."""
