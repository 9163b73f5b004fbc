"""Stores exact errors of catalogue item EC-49, in the units of its table.

`ERRORS` maps notion and method to triples: N, then the mean squared error under
add_or_remove_one and under replace_one; None where none is stored.
"""

ERRORS = {
    'pure': {
        'paper': ((2**10, 792, 2662), (2**15, 2048, 8192)),
        'histogram': ((2**10, 1025, 1365), (2**15, 32769, 43690)),
        'plain_binary': ((2**10, 1000, 4002), (2**15, 3375, 13500)),
        'honaker_binary': ((2**10, 581, 2322), (2**15, 1868, 7473)),
        'plain': ((2**10, 244, 975), (2**15, 798, 3190)),
        'signed': ((2**10, 171, 512), (2**15, 510, 1718)),
        'signed_honaker': ((2**10, 161, 504), (2**15, 487, 1625)),
        'binary': ((2**10, 281, 855), (2**15, 818, 2673)),
        'tree': ((2**10, 118, 326), (2**15, 348, 1028))},
    'zcdp': {
        'paper': ((2**10, 66, 121), (2**15, 128, 256)),
        'plain_binary': ((2**10, 50.0, 100), (2**15, 112.5, 225)),
        'plain': ((2**10, 37.0, 74.1), (2**15, 83.9, 167.8)),
        'honaker_binary': ((2**10, 29.0, 58.1), (2**15, 62.3, 124.6)),
        'smooth_binary': ((2**10, 42, None), (2**15, 81, None)),
        'binary': ((2**10, 14.02, 21.37), (2**15, 27.28, 44.55)),
        'tuned_binary': ((2**10, 12.96, 19.15), (2**15, 25.43, 41.19)),
        'square_root': ((2**10, 9.67, 15.09), (2**15, 17.76, 29.96))}}

# (notion, N) -> method -> ratios of the error of its monotone curve to that of
# `paper` before projection, at the budgets of `sweep.BUDGETS`.
MONOTONE = {
    ('pure', 2**10): {
        'paper': (0.021, 0.160, 0.202, 0.415, 0.735),
        'dyadic': (0.019, 0.139, 0.175, 0.352, 0.621),
        'tree': (0.010, 0.045, 0.059, 0.086, 0.116)},
    ('pure', 2**15): {
        'paper': (0.120, 0.306, 0.373, 0.535, 0.765),
        'dyadic': (0.110, 0.274, 0.332, 0.474, 0.679),
        'tree': (0.027, 0.056, 0.079, 0.090, 0.108)},
    ('zcdp', 2**10): {
        'paper': (0.047, 0.115, 0.202, 0.355, 0.636),
        'dyadic': (0.019, 0.033, 0.071, 0.099, 0.259),
        'binary': (0.019, 0.043, 0.074, 0.099, 0.195),
        'square_root': (0.023, 0.037, 0.063, 0.082, 0.132)}}
