"""Private statistics of files: exact integer noise, and a ledger of the budget.

This package is made for real data. Private sums are integers of any size, noise
is drawn by `privacy.exact`, and budget is recorded before noise is drawn.
Floats and seeds serve only to post-process a release, which is public. JAX is
not used here, but in other packages.

Modules, in import order: costs, lattice, ledger, streams, reservations, noise,
combinations, two_counts, meter, parameters, query, counts, modes,
proportions, sample_means, moments, splitting, quantiles, supports,
normal_means, grids, trees, bands, curves, density_bands, densities,
calibration, classifiers, pictures, registry, sources, sessions.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.release.query import Query as Query
  from dpjax.release.registry import STATISTICS as STATISTICS
  from dpjax.release.sessions import Ledger as Ledger
  from dpjax.release.sessions import release as release

__all__ = [
    'Ledger', 'Query', 'STATISTICS', 'release'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Query': 'query', 'STATISTICS': 'registry',
      'Ledger': 'sessions', 'release': 'sessions'})
