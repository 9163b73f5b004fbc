"""Answers statistical queries under local privacy."""
