"""Private distribution functions: one release of a whole curve, on a grid.

  ecdf(key, x, Grid(lower=0, upper=100, num_thresholds=1000), epsilon=1.0,
       adjacency='replace_one').cdf

To publish a result, use a key of `dpjax.privacy.keys.system_keys`; a seeded key
is for research only.

Curves are kept as counts: ranks S_j = #{x <= t_j} of n records at thresholds
t_1 < ... < t_N. Source: Barczewski (2025, chapter 6).

Modules, in import order: grids, mechanism, levels, smoothing, inverse,
hierarchy, digits, trees, toeplitz, dyadic_calibration, dyadic, stream_noise,
streams, api.
"""
