"""Private distribution functions: a whole curve on a public grid, at once.

Curves are kept in counts: ranks S_j = #{x <= t_j} of n records at thresholds
t_1 < ... < t_N. Source: thesis 003, chapter 6 (spec ecdf.md).

Modules, in import order: grids, mechanism, smoothing, flows, hierarchy,
digits, trees, smooth_binary, toeplitz, optimal, dyadic_calibration, dyadic,
stream_noise, streams.
"""

__all__ = [
    'digits', 'dyadic', 'dyadic_calibration', 'flows', 'grids', 'hierarchy',
    'mechanism', 'optimal', 'smooth_binary', 'smoothing', 'stream_noise',
    'streams', 'toeplitz', 'trees'
]
