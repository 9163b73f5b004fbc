"""Private quantiles: the estimators of thesis 000, chapter 6, and better ones.

  quantiles(key, x, [.25, .5, .75], epsilon=1.0, lower=0, upper=100,
            adjacency='replace_one')

`key` is one of `dpjax.privacy.keys.system_keys` for what others are to see; a
seeded one is for research.

Modules, in import order: orders, rates, records, choice,
mechanism, wide, lanes, paths, independent, recursive, joint, inversion,
curves, histogram, trees, factorised, histogram_bounds, smoothing, window,
grid, knots, unbounded, slicing, bounds, consistency, confidence, api.
"""

from dpjax.stats.quantiles.api import METHODS
from dpjax.stats.quantiles.api import plan
from dpjax.stats.quantiles.api import quantiles

__all__ = ['METHODS', 'plan', 'quantiles']
