"""What privacy means and how it is spent; no models, no files.

Modules, in import order: notions, adjacency, neighbours, divergences,
tradeoff, renyi, composition, restating, accounting, adaptive, tuning, blocks,
mechanism, threefry, additive, draws, laplace, selection, k_norm, local,
queries.
"""

__all__ = [
    'accounting', 'adaptive', 'additive', 'adjacency', 'blocks',
    'composition', 'divergences', 'draws', 'k_norm', 'laplace', 'local',
    'mechanism', 'neighbours', 'notions', 'queries', 'renyi', 'restating',
    'selection', 'threefry', 'tradeoff', 'tuning'
]
