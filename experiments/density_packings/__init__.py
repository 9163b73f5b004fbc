"""Figures 1 to 3 of Lalanne, Garivier and Gribonval (2023), and the
inequalities that they stand for.
"""
