"""Private estimates as functions of arrays, each with a confidence interval.

  from dpjax import stats
  stats.mean(key, x, epsilon=1.0, lower=0, upper=120, adjacency='replace_one')
  stats.quantiles(key, x, [0.25, 0.5, 0.75], epsilon=1.0, lower=0, upper=120,
                  adjacency='replace_one')

Noise protects only as long as its key is secret. To publish a result, use a key
of `dpjax.privacy.keys.system_keys`, which nobody can guess, and use it once.
`jax.random.key(seed)` is for research only.

Modules, in import order: precision, mechanisms, numbers, intervals, means,
frequencies, ecdf_methods, quantile_methods, density_methods, roc_curves,
roc_bands, hosmer_lemeshow, estimates.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.stats import frequencies as frequencies
  from dpjax.stats import hosmer_lemeshow as hosmer_lemeshow
  from dpjax.stats.density_methods.api import density as density
  from dpjax.stats.ecdf_methods.api import ecdf as ecdf
  from dpjax.stats.ecdf_methods.grids import Grid as Grid
  from dpjax.stats.estimates import mean as mean
  from dpjax.stats.estimates import proportion as proportion
  from dpjax.stats.estimates import roc as roc
  from dpjax.stats.quantile_methods.api import quantiles as quantiles

__all__ = [
    'Grid', 'density', 'ecdf', 'frequencies', 'hosmer_lemeshow', 'mean',
    'proportion', 'quantiles', 'roc'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'density': 'density_methods.api', 'ecdf': 'ecdf_methods.api',
      'Grid': 'ecdf_methods.grids', 'mean': 'estimates',
      'proportion': 'estimates', 'roc': 'estimates',
      'quantiles': 'quantile_methods.api'})
