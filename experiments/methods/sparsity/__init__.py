"""Sparse networks: magnitude pruning, and butterfly factorisations of kernels.

Names such as MIA-06 are items of experiments/catalogue. Errata such as M-E04
are explained in experiments/ERRATA.md.
"""
