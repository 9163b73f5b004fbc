"""The true epsilon of Algorithm 8 of Barczewski (2025) as printed."""
