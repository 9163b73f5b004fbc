"""Reproduces whole papers: plans, worker processes, comparisons, one page."""
