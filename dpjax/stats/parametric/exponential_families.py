"""Products of bounded one-parameter exponential families, on a box.

A record has d coordinates T_j in [0, 1], independent, of density e^(theta_j T -
A(theta_j)) with respect to a fixed law; theta is in [-b, b]^d. Bounded T and a
bounded box are what the constants of maximum likelihood need: L = sup ||T -
E_theta T|| is infinite for the Gaussian mean, and the smallest curvature is 0
without a box (item MOD-EXPFAM, erratum E-24).

Log-likelihoods are concave and separable: n of them are maximal where every
mean A'(theta_j) is that of the records, or at the nearer end of the box.
Source: thesis 000, Section 4.2.2.
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
from dpjax.typing import Array

_HALVINGS = 60


class Family(NamedTuple):
  """One coordinate: laws of T in [0, 1] that mirror each other at theta = 0.

  T under theta is 1 - T under -theta, and the variance falls with |theta|.

  Attributes:
    name: of the laws.
    mean: A', elementwise.
    variance: A'', elementwise: the Fisher information too.
  """
  name: str
  mean: Callable[[Array], Array]
  variance: Callable[[Array], Array]


def _bernoulli_variance(theta: Array) -> Array:
  return jax.nn.sigmoid(theta) * jax.nn.sigmoid(-theta)


def _exponential_mean(theta: Array) -> Array:
  small = jnp.abs(theta) < 1e-2
  safe = jnp.where(small, 1.0, theta)
  return 0.5 + jnp.where(small, theta / 12 - theta**3 / 720,
                         0.5 / jnp.tanh(safe / 2) - 1 / safe)


def _exponential_variance(theta: Array) -> Array:
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
  """d coordinates of one family, each with its theta in [-b, b].

  Attributes:
    dimension: d.
    radius: b.
    family: of each coordinate.
  """
  dimension: int
  radius: float
  family: Family = BERNOULLI

  def __post_init__(self):
    errors.check_at_least('dimension', self.dimension, 1)
    errors.check_positive('radius', self.radius)

  @property
  def diameter(self) -> float:
    """sqrt(d), what T of two records can differ by in the l2 norm.

    And so what their gradients differ by: 2 L or less.
    """
    return math.sqrt(self.dimension)

  @property
  def lipschitz(self) -> float:
    """L, the largest norm of a record's gradient T - E_theta T."""
    return self.diameter * float(self.mean(self.radius))

  @property
  def smoothness(self) -> float:
    """beta, the largest curvature: at theta = 0."""
    return float(self.variance(0.0))

  @property
  def strong_convexity(self) -> float:
    """lambda, the smallest curvature: at a corner of the box."""
    return float(self.variance(self.radius))

  def mean(self, theta: np.ndarray | float) -> np.ndarray:
    """E T of coordinates of these parameters; on the host."""
    return _on_host(self.family.mean, theta)

  def variance(self, theta: np.ndarray | float) -> np.ndarray:
    """Var T of coordinates of these parameters; on the host."""
    return _on_host(self.family.variance, theta)

  def fit(self, means: np.ndarray) -> np.ndarray:
    """`maximum` of means of any shape; on the host."""
    return _on_host(functools.partial(_fit, self.family), means, self.radius)

  def steepest(self, share: float) -> float:
    """How far a mean that moves by `share` moves a maximum, at most.

    The curve from mean to maximum is the steepest at the ends of the box.
    """
    top = float(self.mean(self.radius))
    return float(self.radius - self.fit(np.float64(top - share)))


@precision.in_float64
def _on_host(function: Callable[..., Array],
             *numbers: np.ndarray | float) -> np.ndarray:
  """At public numbers, and at once where a release is traced."""
  with jax.ensure_compile_time_eval():
    return np.asarray(function(*map(precision.double, numbers)))


def maximum(family: Family, means: Array, radius: Array) -> Array:
  """The parameters in the box under which these means are likeliest.

  Args:
    family: of each coordinate.
    means: of T over records, any numbers; any shape.
    radius: b.
  """
  if family is BERNOULLI:
    cut = jnp.clip(means, jax.nn.sigmoid(-radius), jax.nn.sigmoid(radius))
    return jnp.clip(jnp.log(cut) - jnp.log1p(-cut), -radius, radius)

  def halve(_, ends):
    low, high = ends
    middle = (low + high) / 2
    below = family.mean(middle) < means
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  low = jnp.full_like(means, -1.0) * radius
  low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, -low))
  return (low + high) / 2


_fit = jax.jit(maximum, static_argnums=0)
