"""A bound of the norm of any linear map that fails with a known probability.

Cheaper than an exact bound where only products with the map are at hand. What
it may fail with belongs to delta: `certificate_failure_delta`.
"""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array, PRNGKey

# Of the result, relative: its logarithm is of size 100 at most.
_FINAL_ROUNDING = 1 + 2.0**-14
# What a zero map is bounded by, about.
_LEAST_NORM = 1e-37


def randomised_upper_bound(apply: Callable[[Array], Array], key: PRNGKey,
                           shape: tuple[int, ...], *, num_iterations: int,
                           failure_prob: float, num_starts: int = 16,
                           turn_rounding: float = 1e-6) -> Array:
  """An upper bound of ||A||_2 that fails with probability <= `failure_prob`.

  Guarantee: let v_1..v_s be independent and uniform on the sphere of R^n,
  u_i = (A^T A)^t v_i and a = failure_prob^(1/s) sqrt(pi / (2 n)). The leading
  singular vector has |<v_i, .>| <= a with probability at most
  failure_prob^(1/s), so but for `failure_prob` some ||u_i|| exceeds
  a ||A||^(2t). If each turn v -> A^T A v is rounded by at most e ||A||^2 ||v||
  then u_i moves by at most ((1 + e)^t - 1) ||A||^(2t), hence

    ||A||_2 <= (max_i ||u_i|| / (a - (1 + e)^t + 1))^(1 / (2 t)).

  Starts beyond the first are worth their price: with one, a is far below the
  rounding of float32 for the probabilities that privacy needs, and the log of
  1 / a, which t has to beat, is s times larger. Source: item SPEC-07 (s = 1,
  e = 0) and 13.1, P5.

  The starts are drawn here, from a key, and cannot be given: a vector warmed
  up on earlier weights is not independent of the map, and voids the guarantee.

  Args:
    apply: linear, arrays of `shape` to arrays; accelerators need products of
      precision HIGHEST for the default rounding.
    key: independent of the map, used once.
    shape: of the inputs; n is their number of entries, at least 2.
    num_iterations: t; costs 2 t s products.
    failure_prob: for this map; see `certificate_failure_delta`.
    num_starts: s.
    turn_rounding: e. For a matrix and sums of k terms 2^-23 k ||A||_F / ||A||_2
      is safe; a float32 turn of a Gaussian 512 x 512 matrix has 1e-7.

  Returns:
    NaN if the map is not finite; at least 1e-37, also for zero.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  errors.check_at_least('num_starts', num_starts, 1)
  errors.check_open_unit('failure_prob', failure_prob)
  errors.check_non_negative('turn_rounding', turn_rounding)
  size = errors.check_at_least('number of inputs', math.prod(shape), 2)
  share = _least_share(size, num_iterations, failure_prob, num_starts,
                       turn_rounding)
  logs = jax.vmap(lambda start: _log_growth(apply, start, num_iterations))(
      jax.random.normal(key, (num_starts,) + tuple(shape)))
  slack = -math.log(share) / (2 * num_iterations)
  return _FINAL_ROUNDING * jnp.exp(jnp.max(logs) + slack)


def certificate_failure_delta(epsilon: float, *, num_steps: int,
                              num_layers: int, failure_prob: float) -> float:
  """What to add to delta for certificates that may fail: (1 + e^eps) T K b.

  But for probability T K b, on either of two adjacent data sets, the run is
  one whose certificates all hold; that one is (epsilon, delta)-private, and
  each direction of the comparison pays once on either side. Source: item
  SPEC-07 and 13.1, P6.

  Args:
    epsilon: of the run, in nats.
    num_steps: T, releases that used certificates.
    num_layers: K, certificates for each of them.
    failure_prob: b, of one certificate.
  """
  errors.check_non_negative('epsilon', epsilon)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_at_least('num_layers', num_layers, 1)
  errors.check_open_unit('failure_prob', failure_prob)
  return (1 + math.exp(epsilon)) * num_steps * num_layers * failure_prob


def _least_share(size: int, num_iterations: int, failure_prob: float,
                 num_starts: int, turn_rounding: float) -> float:
  """Of ||A||^(2t), what the longest computed image has at least."""
  component = failure_prob**(1 / num_starts) * math.sqrt(math.pi / (2 * size))
  drift = math.expm1(num_iterations * math.log1p(turn_rounding))
  if drift >= component:
    raise ValueError(
        f'{num_iterations} turns may round by {drift:.1e}, which is above the '
        f'least component {component:.1e}: take more than {num_starts} starts '
        'or fewer turns')
  return component - drift


def _log_growth(apply: Callable[[Array], Array], start: Array,
                num_iterations: int) -> Array:
  """log ||(A^T A)^t v|| / (2 t) for v = start / ||start||."""
  transpose = jax.linear_transpose(apply, start)

  def turn(_, carry):
    vector, total, lost = carry
    image, norm = norms.unit_and_norm(apply(vector))
    vector, again = norms.unit_and_norm(transpose(image)[0])
    # A compensated sum: a plain one would lose digits with every turn.
    term = jnp.log(_not_zero(norm)) + jnp.log(_not_zero(again)) - lost
    longer = total + term
    return vector, longer, (longer - total) - term

  carry = (norms.unit_and_norm(start)[0], jnp.float32(0), jnp.float32(0))
  total = jax.lax.fori_loop(0, num_iterations, turn, carry)[1]
  return total / (2 * num_iterations)


def _not_zero(norm: Array) -> Array:
  return jnp.maximum(norm, _LEAST_NORM)
