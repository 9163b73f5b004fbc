"""Stores errors that a separate program computed (catalogue item DEN-8.4).

`TABLES` maps (boundary, notion) to (density, n, epsilon) to the errors of the
methods in `COLUMNS`. Errors of adaptive estimators are means over 60 to 100
simulated releases.
"""

_ZCDP = ('printed', 'oracle', 'exact', 'linear', 'default')
_PURE = ('printed', 'oracle', 'exact', 'spectral', 'histogram', 'single',
         'two_stages')
_INTERVAL = ('printed', 'tuned', 'histogram', 'cosine')

COLUMNS = {('circle', 'zcdp'): _ZCDP, ('circle', 'pure'): _PURE,
           ('interval', 'pure'): _INTERVAL}
# Methods whose stored errors are those after projection to a density.
PROPER = ('two_stages', 'cosine', 'default')

TABLES = {
    ('circle', 'zcdp'): {
        ('tent2', 1e4, .1): (6.43e-3, 1.18e-3, 8.87e-4, 5.73e-4, 1.06e-3),
        ('sobrand1', 1e4, .1): (8.45e-3, 7.66e-3, 5.45e-3, 4.57e-3, 6.94e-3),
        ('sobrand2', 1e4, .1): (1.82e-3, 1.72e-3, 1.25e-3, 1.08e-3, 1.67e-3),
        ('sobrand3', 1e4, .1): (8.27e-4, 8.27e-4, 6.77e-4, 5.55e-4, 7.87e-4),
        ('wrapmix', 1e4, .1): (6.13e-2, 3.00e-3, 1.89e-3, 1.74e-3, 2.59e-3),
        ('tent2', 1e5, .02): (3.42e-3, 3.49e-4, 2.27e-4, 1.39e-4, 3.06e-4),
        ('sobrand1', 1e5, .02): (4.14e-3, 3.22e-3, 1.96e-3, 1.70e-3, 2.80e-3),
        ('sobrand2', 1e5, .02): (4.88e-4, 4.88e-4, 2.88e-4, 2.54e-4, 4.19e-4),
        ('wrapmix', 1e5, .1): (3.58e-3, 1.80e-4, 1.63e-4, 1.56e-4, 1.93e-4)},
    ('circle', 'pure'): {
        ('tent2', 1e4, .1): (8.02e-2, 1.83e-3, 1.47e-3, 1.45e-3, 4.40e-3,
                             2.14e-3, 2.48e-3),
        ('sobrand1', 1e4, .1): (8.40e-2, 2.59e-2, 1.47e-2, 9.26e-3, 1.64e-2,
                                1.26e-2, 1.52e-2),
        ('sobrand2', 1e4, .1): (6.92e-3, 5.58e-3, 2.56e-3, 2.12e-3, 1.05e-2,
                                4.52e-3, 3.88e-3),
        ('sobrand3', 1e4, .1): (2.63e-3, 2.63e-3, 1.01e-3, 9.73e-4, 9.46e-3,
                                3.07e-3, 2.24e-3),
        ('wrapmix', 1e4, .1): (6.64e-2, 2.57e-2, 9.05e-3, 3.87e-3, 2.62e-2,
                               7.37e-3, 8.44e-3),
        ('sobrand1', 1e5, .1): (1.21e-2, 4.17e-3, 2.49e-3, 1.32e-3, 2.54e-3,
                                1.59e-3, 1.63e-3),
        ('sobrand2', 1e5, .1): (4.59e-4, 4.59e-4, 2.71e-4, 2.26e-4, 1.50e-3,
                                3.83e-4, 2.78e-4),
        ('sobrand3', 1e5, .1): (3.34e-4, 1.51e-4, 1.07e-4, 1.03e-4, 1.36e-3,
                                2.08e-4, 1.35e-4),
        ('wrapmix', 1e5, .02): (2.20e-2, 8.90e-3, 2.60e-3, 8.74e-4, 1.19e-2,
                                2.24e-3, 1.87e-3)},
    # The errors of 'tuned' are simulated here too.
    ('interval', 'pure'): {
        ('tent2', 1e4, .1): (6.17e-3, 4.13e-3, 4.63e-3, 2.21e-3),
        ('tent2', 1e5, .1): (7.90e-4, 7.00e-4, 7.05e-4, 3.08e-4),
        ('beta22', 1e4, .1): (8.33e-3, 8.97e-3, 7.25e-3, 4.75e-3),
        ('linear1.5', 1e4, .02): (5.10e-2, 1.24e-2, 1.22e-2, 8.35e-3),
        ('linear1.5', 1e5, .1): (7.32e-4, 5.81e-4, 5.78e-4, 2.41e-4),
        ('beta25', 1e5, .1): (2.74e-3, 2.43e-3, 1.99e-3, 9.11e-4)}}

# Slopes of ln(error) in ln(n) of `single`, at smoothness 1, 2 and 3.
RATES = (-0.973, -1.141, -1.209)
