"""Conversions between definitions of privacy, and their loss."""
