"""Experiments: what to run is data, and reports are functions of rows."""
