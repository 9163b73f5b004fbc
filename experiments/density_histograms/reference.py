"""Stores errors that a separate program computed.

Closed forms are those of catalogue item DEN-8.1, simulations those of DEN-8.5.
"""

# (density, n, epsilon or rho): printed bins and error, oracle bins and error.
TABLE = {
    ('tent1', 1e3, 0.1): (10, 8.981e-2, 3, 1.613e-2),
    ('tent1', 1e5, 0.01): (32, 8.583e-3, 9, 1.671e-3),
    ('tent2', 1e3, 1.0): (10, 1.305e-2, 9, 1.234e-2),
    ('tent2', 1e3, 0.1): (10, 9.225e-2, 5, 3.526e-2),
    ('tent2', 1e4, 1.0): (22, 2.819e-3, 19, 2.708e-3),
    ('tent2', 1e4, 0.1): (22, 6.652e-3, 13, 4.402e-3),
    ('tent2', 1e4, 0.01): (10, 8.423e-2, 5, 3.173e-2),
    ('tent2', 1e5, 0.1): (47, 7.844e-4, 35, 7.034e-4),
    ('tent2', 1e6, 0.01): (100, 9.323e-4, 41, 3.691e-4),
    ('beta22', 1e4, 0.1): (22, 8.015e-3, 17, 7.343e-3),
    ('beta22', 1e6, 0.01): (100, 9.988e-4, 58, 6.231e-4)}
CONCENTRATED = {
    ('tent2', 1e4, 1e-2): (22, 3.264e-3, 17, 2.983e-3),
    ('tent2', 1e4, 1e-4): (10, 1.423e-2, 7, 1.157e-2),
    ('tent2', 1e6, 1e-6): (32, 1.380e-3, 23, 1.160e-3)}

# Means of the squared largest error. Without noise they are multiplied by
# n^(2/3), for n = 10^3, 10^4, ...; with noise by n alpha, for n alpha = 10^2,
# 10^3, ....
LARGEST = {'none': (5.41, 7.40, 9.06, 10.96, 12.69, 14.37),
           'pure': (46, 82, 121, 182, 247),
           'zcdp': (5.9, 8.5, 10.8, 13.1, 15.6)}
