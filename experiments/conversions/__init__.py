"""Measures how much conversions between privacy definitions lose."""
