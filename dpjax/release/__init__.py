"""Private statistics of files: exact integer noise, and a ledger of the budget.

This package is made for real data. Private sums are integers of any size, noise
is drawn by `privacy.exact`, and budget is recorded before noise is drawn.
Floats and seeds serve only to post-process a release, which is public. JAX is
not used here, but in other packages.

Modules, in import order: costs, lattice, ledger, streams, reservations,
noise, combinations, two_counts, meter, query, counts, proportions,
sample_means, moments, splitting, quantiles, supports, normal_means, grids,
trees, bands, curves, density_bands, densities, calibration, classifiers,
pictures, registry, sources, sessions.
"""

__all__ = [
    'bands', 'calibration', 'classifiers', 'combinations', 'costs', 'counts',
    'curves', 'densities', 'density_bands', 'grids', 'lattice',
    'ledger', 'meter', 'moments', 'noise', 'normal_means', 'pictures',
    'proportions', 'quantiles', 'query', 'registry', 'reservations',
    'sample_means', 'sessions', 'sources', 'splitting', 'streams', 'supports',
    'trees', 'two_counts'
]
