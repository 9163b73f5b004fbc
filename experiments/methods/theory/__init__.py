"""Printed bounds, definitions and conversions, and optima of small problems."""
