"""Products of bounded one-parameter exponential families, on a box.

A record has d independent coordinates T_j in [0, 1], of density e^(theta_j T -
A(theta_j)) with respect to a fixed distribution; theta is in [-b, b]^d. The
constants of maximum likelihood need bounded T and a bounded box: L = sup ||T -
E_theta T|| is infinite for the Gaussian mean, and the least curvature is 0
without a box (item MOD-EXPFAM, erratum E-24).

Log-likelihoods are concave and separable. The sum over n records is maximal
where every mean A'(theta_j) equals that of the records, or at the nearer end of
the box. Source: Lalanne (2023, section 4.2.2).
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import precision
from dpjax.typing import Array, ArrayLike

# Bisections to find theta from a mean: more than float64 resolves.
_HALVINGS = 60


class Family(NamedTuple):
  """Distributions of one coordinate T in [0, 1], mirrored at theta = 0.

  T under theta is distributed as 1 - T under -theta, and the variance falls
  with |theta|.

  Attributes:
    name: name of the family.
    mean: A', elementwise.
    variance: A'', elementwise; it is also the Fisher information.
  """
  name: str
  mean: Callable[[Array], Array]
  variance: Callable[[Array], Array]


def _bernoulli_variance(theta: Array) -> Array:
  """Returns A'' = p (1 - p) of the Bernoulli family."""
  return jax.nn.sigmoid(theta) * jax.nn.sigmoid(-theta)


def _exponential_mean(theta: Array) -> Array:
  """Returns A' of the truncated exponential family."""
  # Near 0 the formula cancels: use the Taylor series there.
  small = jnp.abs(theta) < 1e-2
  safe = jnp.where(small, 1.0, theta)
  return 0.5 + jnp.where(small, theta / 12 - theta**3 / 720,
                         0.5 / jnp.tanh(safe / 2) - 1 / safe)


def _exponential_variance(theta: Array) -> Array:
  """Returns A'' of the truncated exponential family."""
  small = jnp.abs(theta) < 0.1
  safe = jnp.where(small, 1.0, theta)
  return jnp.where(small, 1 / 12 - theta**2 / 240 + theta**4 / 6048,
                   1 / safe**2 - 0.25 / jnp.sinh(safe / 2)**2)


BERNOULLI = Family('bernoulli', jax.nn.sigmoid, _bernoulli_variance)
"""T in {0, 1}, theta the log-odds."""

TRUNCATED_EXPONENTIAL = Family('truncated_exponential', _exponential_mean,
                               _exponential_variance)
"""Density proportional to e^(theta T) on [0, 1]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """d independent coordinates of one family, each with its theta in [-b, b].

  Attributes:
    dimension: d.
    radius: b.
    family: family of each coordinate.
  """
  dimension: int
  radius: float
  family: Family = BERNOULLI

  def __post_init__(self) -> None:
    errors.check_at_least('dimension', self.dimension, 1)
    errors.check_positive('radius', self.radius)

  @property
  def diameter(self) -> float:
    """Largest l2 distance of T between two records, sqrt(d).

    Their gradients differ by as much, which is at most 2 L.
    """
    return math.sqrt(self.dimension)

  @property
  def lipschitz(self) -> float:
    """Largest norm L of a record's gradient T - E_theta T."""
    return self.diameter * float(self.mean(self.radius))

  @property
  def smoothness(self) -> float:
    """Largest curvature beta, at theta = 0."""
    return float(self.variance(0.0))

  @property
  def strong_convexity(self) -> float:
    """Least curvature lambda, at a corner of the box."""
    return float(self.variance(self.radius))

  def mean(self, theta: np.ndarray | float) -> np.ndarray:
    """Returns E T for coordinates with these parameters; on the host."""
    return _on_host(self.family.mean, theta)

  def variance(self, theta: np.ndarray | float) -> np.ndarray:
    """Returns Var T for coordinates with these parameters; on the host."""
    return _on_host(self.family.variance, theta)

  def fit(self, means: np.ndarray | float) -> np.ndarray:
    """Returns the parameters of largest likelihood, `maximum`; on the host."""
    return _on_host(functools.partial(_fit, self.family), means, self.radius)

  def steepest(self, share: float) -> float:
    """Returns the largest change of `fit` when a mean changes by `share`.

    `fit` is steepest at the ends of the box.
    """
    top = float(self.mean(self.radius))
    return float(self.radius - self.fit(np.float64(top - share)))


@precision.in_float64
def _on_host(function: Callable[..., Array],
             *numbers: np.ndarray | float) -> np.ndarray:
  """Evaluates a function of public numbers, also while a release is traced."""
  # A plan needs these public numbers as constants, even inside a trace.
  with jax.ensure_compile_time_eval():
    return np.asarray(function(*map(precision.double, numbers)))


def maximum(family: Family, means: Array, radius: Array) -> Array:
  """Returns the parameters in the box with the largest likelihood.

  Args:
    family: family of each coordinate.
    means: mean of T over records, any numbers, any shape.
    radius: b.
  """
  if family is BERNOULLI:
    # Closed form: clip the mean to the box's range, then take its log-odds.
    cut = jnp.clip(means, jax.nn.sigmoid(-radius), jax.nn.sigmoid(radius))
    return jnp.clip(jnp.log(cut) - jnp.log1p(-cut), -radius, radius)

  def halve(_: ArrayLike, interval: tuple[Array, Array]
            ) -> tuple[Array, Array]:
    low, high = interval
    middle = (low + high) / 2
    below = family.mean(middle) < means
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  low = jnp.full_like(means, -1.0) * radius
  low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, -low))
  return (low + high) / 2


_fit = jax.jit(maximum, static_argnums=0)
