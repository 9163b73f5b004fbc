"""Private statistics: estimates with intervals, and what they risk.

Noise is as secret as its key: what others are to see takes a key of
`dpjax.privacy.keys.system_keys`, which nobody can guess, and uses it once.
`jax.random.key(seed)` is for research.

Modules, in import order: precision, numbers, intervals, risks, mean,
frequencies, polls, minimax, ecdf, quantiles, density, parametric, roc,
roc_bands, hosmer_lemeshow, hosmer_lemeshow_cells.
"""

__all__ = [
    'density', 'ecdf', 'frequencies', 'hosmer_lemeshow',
    'hosmer_lemeshow_cells', 'intervals', 'mean', 'minimax', 'numbers',
    'parametric', 'polls', 'precision', 'quantiles', 'risks', 'roc',
    'roc_bands'
]
