"""Stores errors that a separate program computed.

They belong to the catalogue items DEN-B8, DEN-B9 and DEN-8.4.
"""

# Post-processing -> geometric means of error(printed) / error(method), over
# settings with n epsilon at least 100, and at most 100.
GAINS = {'fix_mass': (1.02, 1.14), 'clip': (1.04, 1.32),
         'simplex': (1.04, 1.33), 'james_stein': (1.08, 1.66)}

# (density, n, epsilon) -> mean errors over 60 repetitions, one for each method.
METHODS = ('printed', 'james_stein', 'tuned', 'polygon', 'oracle')
TABLE = {
    ('tent2', 1e3, 0.1): (1.04e-1, 6.19e-2, 3.61e-2, 1.70e-2, 3.59e-2),
    ('tent2', 1e4, 0.1): (6.17e-3, 5.83e-3, 4.13e-3, 1.78e-3, 4.63e-3),
    ('tent2', 1e5, 0.1): (7.90e-4, 7.84e-4, 7.00e-4, 3.38e-4, 7.05e-4),
    ('beta22', 1e4, 0.1): (8.33e-3, 7.96e-3, 8.97e-3, 4.84e-3, 7.25e-3),
    ('linear1.5', 1e4, 0.02): (5.10e-2, 4.22e-2, 1.24e-2, 4.65e-3, 1.22e-2),
    ('linear1.5', 1e5, 0.1): (7.32e-4, 7.25e-4, 5.81e-4, 2.82e-4, 5.78e-4),
    ('beta25', 1e5, 0.1): (2.74e-3, 2.74e-3, 2.43e-3, 1.31e-3, 1.99e-3)}
