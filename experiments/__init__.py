"""Experiments: settings are data, and reports are functions of rows."""
