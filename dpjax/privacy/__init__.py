"""Privacy definitions, accounting and mechanisms; no models, no files.

Modules, in import order: notions, adjacency, neighbours, divergences, tradeoff,
renyi, composition, restating, accounting, adaptive, tuning, blocks, mechanism,
threefry, chacha, keys, additive, draws, exact, laplace, selection, ordering,
inverse, smooth, k_norm, local, integers, discrete, lattice, langevin.
"""

__all__ = [
    'accounting', 'adaptive', 'additive', 'adjacency', 'blocks', 'chacha',
    'composition', 'discrete', 'divergences', 'draws', 'exact', 'integers',
    'inverse', 'k_norm', 'keys', 'langevin', 'laplace', 'lattice', 'local',
    'mechanism', 'neighbours', 'notions', 'ordering', 'renyi', 'restating',
    'selection', 'smooth', 'threefry', 'tradeoff', 'tuning'
]
