"""Compares histograms under local privacy with those of a curator."""
