"""Lower bounds for private estimates of a proportion, in squared error.

Under REPLACE_ONE, n public. The risk is the largest over all proportions p in
[0, 1]. Source: Lalanne (2023, sections 0.5 and 4.1.1) (item MOD-BERN).
"""

import functools

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import proportions_exact
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import separations
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee


def trivial() -> float:
  """Returns the largest risk of the constant 1/2."""
  return 0.25


def non_private(num_examples: int) -> float:
  """Returns the minimax risk without privacy.

  It is `proportions_exact.non_private_risk`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  return proportions_exact.non_private_risk(num_examples)


@functools.lru_cache(maxsize=256)
def solved(num_examples: int, epsilon: float) -> proportions_exact.Solution:
  """Returns `proportions_exact.solve`, cached: it takes seconds for large n."""
  return proportions_exact.solve(num_examples=num_examples, epsilon=epsilon)


def solution(num_examples: int, guarantee: Guarantee
             ) -> proportions_exact.Solution | None:
  """Returns the minimax risk itself where it can be computed, else None."""
  if (isinstance(guarantee, notions.PureDP) and num_examples <= 200_000
      and guarantee.epsilon >= 1e-6):
    return solved(num_examples, guarantee.epsilon)
  return None


def lower(*, num_examples: int, guarantee: Guarantee) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee."""
  # Each holds by itself; `Study.best_lower` takes the largest.
  bounds = [
      Bound(non_private(num_examples), 'minimax without privacy'),
      Bound(separations.squared(lambda t: t, num_examples=num_examples,
                                guarantee=guarantee), 'two proportions'),
      Bound(scores.proportion(num_examples=num_examples, guarantee=guarantee),
            'scores')]
  exact = solution(num_examples, guarantee)
  if exact is not None:
    bounds.append(Bound(exact.lower, 'minimax, solved'))
  return tuple(bounds)
