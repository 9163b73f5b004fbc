"""Histograms without a curator, and with one."""
