"""Private distribution functions: a whole curve on a public grid, at once.

  ecdf(key, x, Grid(lower=0, upper=100, num_thresholds=1000), epsilon=1.0,
       adjacency='replace_one').cdf

`key` is one of `dpjax.privacy.keys.system_keys` for what others are to see; a
seeded one is for research.

Curves are kept in counts: ranks S_j = #{x <= t_j} of n records at thresholds
t_1 < ... < t_N. Source: thesis 003, chapter 6 (catalogue ecdf).

Modules, in import order: grids, mechanism, levels, smoothing, flows, inverse,
hierarchy, digits, trees, toeplitz, smooth_binary, optimal, dyadic_calibration,
dyadic, stream_noise, streams, api.
"""

__all__ = [
    'api', 'digits', 'dyadic', 'dyadic_calibration', 'flows', 'grids',
    'hierarchy', 'inverse', 'levels', 'mechanism', 'optimal', 'smooth_binary',
    'smoothing', 'stream_noise', 'streams', 'toeplitz', 'trees'
]
