"""Norm bounds of linear maps that fail with a known small probability.

They are cheaper than certain bounds when only products with the map are
available. The failure probability is part of delta: see
`certificate_failure_delta`.
"""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array, PRNGKey

# Covers the relative rounding of exp, whose argument is at most 100 in size.
_FINAL_ROUNDING = 1 + 2.0**-14
# Approximate bound of a zero map, whose logarithm would be -infinity.
_LEAST_NORM = 1e-37


def randomised_upper_bound(apply: Callable[[Array], Array], key: PRNGKey,
                           shape: tuple[int, ...], *, num_iterations: int,
                           failure_prob: float, num_starts: int = 16,
                           turn_rounding: float = 1e-6) -> Array:
  """Returns a bound of ||A||_2 that fails with probability <= `failure_prob`.

  Guarantee. Let v_1..v_s be independent and uniform on the sphere of R^n, let
  u_i = (A^T A)^t v_i, a = failure_prob^(1/s) sqrt(pi / (2 n)), and let w be the
  leading right singular vector of A.

  1. P(|<v_i, w>| <= a) <= failure_prob^(1/s) for each i.
  2. So, except with probability `failure_prob`, some ||u_i|| > a ||A||^(2t).
  3. If each turn v -> A^T A v has rounding error at most e ||A||^2 ||v||, the
     computed u_i is off by at most ((1 + e)^t - 1) ||A||^(2t).
  4. Hence ||A||_2 <= (max_i ||u_i|| / (a - (1 + e)^t + 1))^(1 / (2 t)).

  Several starts are worth their cost. With one start, and the probabilities
  that privacy needs, a is far below float32 rounding, and log(1 / a), which t
  must make up for, is s times larger. Extends item SPEC-07 (s = 1, e = 0).

  The starts are drawn here from a key and cannot be passed in: a vector from
  earlier weights depends on the map and voids the guarantee.

  Args:
    apply: linear map from arrays of `shape` to arrays. On accelerators its
      products need precision HIGHEST for the default rounding.
    key: random key, independent of the map and used once.
    shape: shape of the inputs; n is their number of entries, at least 2.
    num_iterations: t; costs 2 t s products.
    failure_prob: for this map, in (0, 1); see `certificate_failure_delta`.
    num_starts: s, at least 1.
    turn_rounding: e. For a matrix and sums of k terms 2^-23 k ||A||_F / ||A||_2
      is safe; a float32 turn of a Gaussian 512 x 512 matrix has 1e-7.

  Returns:
    The bound, at least 1e-37; NaN if the map is not finite.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  errors.check_at_least('num_starts', num_starts, 1)
  errors.check_open_unit('failure_prob', failure_prob)
  errors.check_non_negative('turn_rounding', turn_rounding)
  size = errors.check_at_least('number of inputs', math.prod(shape), 2)
  fraction = _least_fraction(size, num_iterations, failure_prob, num_starts,
                             turn_rounding)
  logs = jax.vmap(lambda start: _log_growth(apply, start, num_iterations))(
      jax.random.normal(key, (num_starts,) + tuple(shape)))
  slack = -math.log(fraction) / (2 * num_iterations)
  return _FINAL_ROUNDING * jnp.exp(jnp.max(logs) + slack)


def certificate_failure_delta(epsilon: float, *, num_steps: int,
                              num_layers: int, failure_prob: float) -> float:
  """Returns the delta to add if certificates may fail: (1 + e^eps) T K b.

  Proof. On each of two neighbouring data sets, all certificates hold except
  with probability T K b (union bound). A run in which all hold is
  (epsilon, delta)-private. Replacing both runs by such runs costs T K b on one
  side and e^eps T K b on the other. Item SPEC-07.

  Args:
    epsilon: privacy loss bound of the run, in nats.
    num_steps: T, number of releases that used certificates.
    num_layers: K, certificates per release.
    failure_prob: b, failure probability of one certificate.
  """
  errors.check_non_negative('epsilon', epsilon)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_at_least('num_layers', num_layers, 1)
  errors.check_open_unit('failure_prob', failure_prob)
  return (1 + math.exp(epsilon)) * num_steps * num_layers * failure_prob


def _least_fraction(size: int, num_iterations: int, failure_prob: float,
                    num_starts: int, turn_rounding: float) -> float:
  """Returns a - (1 + e)^t + 1 of the guarantee; raises if it is not positive.
  """
  component = failure_prob**(1 / num_starts) * math.sqrt(math.pi / (2 * size))
  drift = math.expm1(num_iterations * math.log1p(turn_rounding))
  if drift >= component:
    raise ValueError(
        f'{num_iterations} turns may round by {drift:.1e}, which is above the '
        f'least component {component:.1e}: use more than {num_starts} starts '
        'or fewer iterations')
  return component - drift


def _log_growth(apply: Callable[[Array], Array], start: Array,
                num_iterations: int) -> Array:
  """Returns log ||(A^T A)^t v|| / (2 t) for v = start / ||start||."""
  transpose = jax.linear_transpose(apply, start)

  def turn(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
    vector, total, lost = carry
    image, norm = norms.unit_and_norm(apply(vector))
    vector, again = norms.unit_and_norm(transpose(image)[0])
    # Kahan summation: a plain sum would lose digits with every turn.
    term = jnp.log(_not_zero(norm)) + jnp.log(_not_zero(again)) - lost
    longer = total + term
    return vector, longer, (longer - total) - term

  carry = (norms.unit_and_norm(start)[0], jnp.float32(0), jnp.float32(0))
  total = jax.lax.fori_loop(0, num_iterations, turn, carry)[1]
  return total / (2 * num_iterations)


def _not_zero(norm: Array) -> Array:
  return jnp.maximum(norm, _LEAST_NORM)
