"""Statistics of a file for whoever asks: exact noise, and a ledger of budget.

What is promised here is meant for data that matter: private sums are integers
of any size, noise is drawn by `privacy.exact`, and budget is written down
before noise is drawn. Floats and seeds are for what is made of a release, which
is public; JAX is for the rooms beside this one.

Modules, in import order: costs, lattice, formats, ledger, streams,
reservations, noise, combinations, two_counts, meter, tables, query, counts,
proportions, sample_means, moments, splitting, quantiles, supports,
normal_means, grids, trees, bands, curves, density_bands, densities,
calibration, classifiers, pictures, registry.
"""

__all__ = [
    'bands', 'calibration', 'classifiers', 'combinations', 'costs', 'counts',
    'curves', 'densities', 'density_bands', 'formats', 'grids', 'lattice',
    'ledger', 'meter', 'moments', 'noise', 'normal_means', 'pictures',
    'proportions', 'quantiles', 'query', 'registry', 'reservations',
    'sample_means', 'splitting', 'streams', 'supports', 'tables', 'trees',
    'two_counts'
]
