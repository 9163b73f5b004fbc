"""Private distribution functions: a whole curve on a public grid, at once.

Curves are kept in counts: ranks S_j = #{x <= t_j} of n records at thresholds
t_1 < ... < t_N. Source: thesis 003, chapter 6 (spec ecdf.md).

<<<<<<< HEAD
<<<<<<< HEAD
Modules, in import order: grids, mechanism, smoothing, flows, hierarchy,
digits, trees, toeplitz, dyadic_calibration, dyadic, stream_noise, streams.
=======
Modules, in import order: grids, mechanism, smoothing, flows,
hierarchy, digits, trees, toeplitz, smooth_binary, optimal, dyadic_calibration,
dyadic, stream_noise, streams.
>>>>>>> 17a9981d7709e566685cc61c026bf6f0ccef9e7b
=======
Modules, in import order: grids, mechanism, dyadic_calibration, smoothing,
flows, dyadic, stream_noise, streams, hierarchy, digits, trees, toeplitz,
smooth_binary, optimal.
>>>>>>> 20f6507a2010a605ae7aed78c2083d4b3595cffa
"""

__all__ = [
    'digits', 'dyadic', 'dyadic_calibration', 'flows', 'grids', 'hierarchy',
    'mechanism', 'optimal', 'smooth_binary', 'smoothing', 'stream_noise',
    'streams', 'toeplitz', 'trees'
]
