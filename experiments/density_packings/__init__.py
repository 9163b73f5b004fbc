"""Figures 1 to 3 of paper 001, and the inequalities that they stand for."""
