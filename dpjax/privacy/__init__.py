"""What privacy means and how it is spent; no models, no files.

Modules, in import order: notions, adjacency, divergences, renyi, composition,
accounting, adaptive, tuning, blocks, mechanism, threefry, additive, draws,
laplace, selection, k_norm, integers, discrete, lattice.
"""

__all__ = [
    'accounting', 'adaptive', 'additive', 'adjacency', 'blocks',
    'composition', 'discrete', 'divergences', 'draws', 'integers', 'k_norm',
    'laplace', 'lattice', 'mechanism', 'notions', 'renyi', 'selection',
    'threefry', 'tuning'
]
