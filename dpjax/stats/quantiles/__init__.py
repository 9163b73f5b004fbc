"""Private quantiles: the estimators of thesis 000, chapter 6, and better ones.

Modules, in import order: precision, orders, rates, records, choice,
mechanism, wide, lanes, paths, independent, recursive, joint, inversion,
curves, histogram, trees, factorised, histogram_bounds, smoothing, window,
grid, knots, unbounded, slicing, bounds, consistency.
"""
