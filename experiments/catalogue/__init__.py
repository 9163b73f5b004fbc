"""Catalogue of the papers' definitions, claims and results, with our code."""
