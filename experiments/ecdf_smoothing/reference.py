"""Stores ratios of squared errors from other solvers (items EC-12, EC-31).

A ratio is the error after smoothing over that before, with noise of the printed
scale. Keys are (norm, N, epsilon, lambda). For p = 1 the ratios belong to one
of many solutions (item C16).
"""

_AT_EPSILON = {
    0.01: (0.086, 0.061), 0.1: (0.296, 0.204), 0.2: (0.315, 0.244),
    0.5: (0.441, 0.357), 1.0: (0.507, 0.427), 2.0: (0.705, 0.524),
    5.0: (0.956, 0.640), 10.0: (1.03, 0.779), 50.0: (1.15, 0.941)}
_AT_RATE = {
    0.01: (0.028, 0.020), 0.1: (0.160, 0.162), 1.0: (0.428, 0.327),
    10.0: (0.84, 0.55), 30.0: (0.98, 0.76), 100.0: (1.26, 0.96),
    1000.0: (1.54, 1.00)}
_LARGE = {
    'p2': (0.120, 0.306, 0.373, 0.535, 0.765),
    'pava': (0.277, 0.538, 0.596, 0.745, 0.934)}


def cells() -> dict[tuple[str, float, float, float], float]:
  """Returns (norm, N, epsilon, lambda) -> stored ratio."""
  small = {(name, 4096.0, epsilon, 3.0): pair[place]
           for epsilon, pair in _AT_EPSILON.items()
           for place, name in enumerate(('p1', 'p2'))}
  small |= {(name, 4096.0, 1.0, rate): pair[place]
            for rate, pair in _AT_RATE.items()
            for place, name in enumerate(('p1', 'p2'))}
  return small | {(name, 32768.0, epsilon, 3.0): ratio
                  for name, ratios in _LARGE.items()
                  for epsilon, ratio in zip((0.01, 0.1, 0.2, 1.0, 10.0),
                                            ratios, strict=True)}
