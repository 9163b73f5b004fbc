"""The best private estimates of a proportion, by linear programmes.

This checks `proportions_exact` without assumptions on the mechanism, for any
linear guarantee. It minimises the largest risk on a grid of proportions over
channels from counts to a grid of estimates. Fewer proportions make the value
smaller, fewer estimates larger: it is a few per cent off the minimax risk.
Catalogue item ORC-2.
"""

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.theory.minimax.bounds import Guarantee
from experiments.methods.theory import best_channels as oracles


def proportion(*, num_examples: int, guarantee: Guarantee,
               num_estimates: int = 41,
               num_proportions: int = 31) -> oracles.Channel:
  """Returns the least largest squared error, and its channel.

  The channel maps counts to estimates.

  Args:
    num_examples: n, at most about 40.
    guarantee: guarantee as in `best_channels.least`.
    num_estimates: number of equally spaced estimates in [0, 1], with both ends.
    num_proportions: number of equally spaced proportions in [0, 1].
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_at_least('num_estimates', num_estimates, 2)
  errors.check_at_least('num_proportions', num_proportions, 2)
  estimates = np.linspace(0, 1, num_estimates)
  thetas = np.linspace(0, 1, num_proportions)
  masses = stats.binom.pmf(np.arange(num_examples + 1), num_examples,
                           thetas[:, None])
  squares = np.square(estimates - thetas[:, None])
  return oracles.least(masses[:, :, None] * squares[:, None],
                       oracles.chain(num_examples + 1), guarantee)
