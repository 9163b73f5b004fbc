"""Provides separately computed tables of reference errors.

Numbers of functions come before errors, where there are both.
"""

# Columns: beta, n, epsilon; then printed, oracle, exact l1, and relaxed oracle
# at delta = n^-2 (8.2).
ALTERNATING_PURE = """
1 1e3 1 11 3.266e-2 5 1.283e-2 7 1.063e-2 3 2.805e-2
1 1e4 .1 17 8.082e-2 5 9.325e-3 7 5.323e-3 3 2.899e-2
1 1e4 1 23 4.476e-3 13 2.600e-3 15 2.307e-3 11 3.891e-3
1 1e5 .01 17 7.939e-2 5 8.974e-3 9 4.770e-3 3 3.147e-2
1 1e5 .1 41 1.153e-2 15 1.475e-3 19 9.264e-4 11 3.358e-3
1 1e6 .01 41 1.117e-2 15 1.350e-3 19 7.654e-4 11 3.625e-3
2 1e3 1 5 7.162e-3 5 7.162e-3 5 5.547e-3 3 1.894e-2
2 1e4 .1 7 6.453e-3 5 3.794e-3 7 2.097e-3 3 2.002e-2
2 1e4 1 7 1.020e-3 7 1.020e-3 9 9.455e-4 7 1.542e-3
2 1e5 .01 7 5.936e-3 5 3.457e-3 7 1.580e-3 3 2.251e-2
2 1e5 .1 11 3.769e-4 9 3.405e-4 11 2.105e-4 7 1.170e-3
2 1e6 .01 15 5.732e-4 9 2.709e-4 11 1.228e-4 7 1.263e-3
3 1e3 1 3 5.078e-3 3 5.078e-3 5 4.216e-3 3 1.260e-2
3 1e4 .1 5 2.557e-3 5 2.557e-3 5 9.420e-4 3 1.378e-2
3 1e4 1 5 5.770e-4 5 5.770e-4 5 5.608e-4 5 8.517e-4
3 1e5 .01 5 2.230e-3 5 2.230e-3 5 6.147e-4 3 1.629e-2
3 1e5 .1 5 2.496e-4 7 1.399e-4 7 9.632e-5 5 5.980e-4
3 1e6 .01 7 8.915e-5 7 8.915e-5 9 3.925e-5 5 6.390e-4
"""

# Columns at rho = epsilon^2 / 2: printed, oracle, exact l2.
ALTERNATING_ZCDP = """
1 1e3 1 11 1.234e-2 7 9.889e-3 7 9.601e-3
1 1e4 .1 23 6.761e-3 11 3.433e-3 13 2.629e-3
1 1e4 1 23 2.571e-3 15 2.204e-3 15 2.191e-3
1 1e5 .01 27 6.337e-3 13 2.530e-3 17 1.443e-3
1 1e5 .1 47 7.171e-4 29 5.600e-4 31 5.087e-4
1 1e6 .01 85 6.868e-4 37 2.768e-4 47 1.800e-4
2 1e3 1 5 5.362e-3 5 5.362e-3 5 5.212e-3
2 1e4 .1 7 1.357e-3 7 1.357e-3 7 1.068e-3
2 1e4 1 7 9.687e-4 9 9.271e-4 9 9.223e-4
2 1e5 .01 9 8.719e-4 7 8.400e-4 9 4.005e-4
2 1e5 .1 11 1.736e-4 13 1.653e-4 13 1.556e-4
2 1e6 .01 17 5.070e-5 17 5.070e-5 19 3.368e-5
3 1e3 1 3 4.718e-3 5 4.030e-3 5 3.880e-3
3 1e4 .1 5 7.570e-4 5 7.570e-4 5 6.070e-4
3 1e4 1 5 5.590e-4 5 5.590e-4 5 5.575e-4
3 1e5 .01 5 4.296e-4 5 4.296e-4 7 1.886e-4
3 1e5 .1 5 2.316e-4 7 8.892e-5 9 8.479e-5
3 1e6 .01 7 3.819e-5 9 2.078e-5 11 1.438e-5
"""

# Columns: beta, n alpha; then pure printed, oracle, exact l1, zCDP printed,
# exact l2, for random phases without sampling errors (8.3).
LADDER = """
1 1e3 8.24e-2 2.51e-2 1.37e-2 5.37e-3 2.28e-3
1 1e4 1.17e-2 3.98e-3 2.22e-3 5.16e-4 2.31e-4
2 1e3 6.38e-3 5.24e-3 2.02e-3 6.36e-4 2.69e-4
2 1e4 5.84e-4 3.65e-4 1.57e-4 2.93e-5 1.28e-5
2 1e6 2.67e-6 1.91e-6 8.38e-7 6.27e-8 2.82e-8
3 1e3 2.28e-3 2.28e-3 6.64e-4 2.37e-4 9.31e-5
3 1e4 1.26e-4 9.62e-5 3.46e-5 7.80e-6 3.01e-6
3 1e6 2.32e-7 2.12e-7 8.02e-8 8.62e-9 3.07e-9
"""

# Columns: density, n, epsilon; then the best linear estimator at rho =
# epsilon^2 / 2 (8.4).
WIENER = """
tent2 1e4 .1 5.73e-4
sobrand1 1e4 .1 4.57e-3
sobrand2 1e4 .1 1.08e-3
sobrand3 1e4 .1 5.55e-4
wrapmix 1e4 .1 1.74e-3
tent2 1e5 .02 1.39e-4
sobrand1 1e5 .02 1.70e-3
sobrand2 1e5 .02 2.54e-4
wrapmix 1e5 .1 1.56e-4
"""


def lines(text):
  """Returns lists of words, with numbers as floats."""
  return [[_number(word) for word in line.split()]
          for line in text.strip().splitlines()]


def _number(word):
  try:
    return float(word)
  except ValueError:
    return word
