"""Private maximum likelihood by noisy gradient ascent on random batches.

The library has the method with full batches, `sgml.Descent`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.sampling import PoissonSampler
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric.estimator import Draw
from dpjax.theory.parametric.exponential_families import Family
from dpjax.theory.parametric.likelihood import records
from dpjax.typing import Array, PRNGKey


@functools.cache
def _poisson_draw(family: Family) -> Draw:
  """Returns the sampler whose steps use Poisson batches."""
  def draw(key: PRNGKey, data: Array, steps: sgml.Steps) -> Array:
    def gradient(batch_key: PRNGKey, model_mean: Array) -> Array:
      words = additive.random_words(batch_key, data.shape[:1])
      # Integer comparison: the sampling probability is exactly threshold 2^-32.
      chosen = (words < steps.threshold).astype(data.dtype)
      return (chosen @ data - chosen.sum() * model_mean) / steps.batch_size
    return sgml.run(key, gradient, data[0], steps, family)
  return draw


@functools.cache
def _replacement_draw(family: Family, batch_size: int) -> Draw:
  """Returns the sampler whose steps use batches drawn with replacement."""
  def draw(key: PRNGKey, data: Array, steps: sgml.Steps) -> Array:
    def gradient(batch_key: PRNGKey, model_mean: Array) -> Array:
      rows = jax.random.randint(batch_key, (batch_size,), 0, data.shape[0],
                                jnp.int32)
      return data[rows].mean(0) - model_mean
    return sgml.run(key, gradient, data[0], steps, family)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchDescent(sgml.Ascent):
  """Uses batches of m records on average, with the noise of the full batch.

  Guarantee: `event` under REPLACE_ONE, by composing all steps; not the
  rho-zCDP that Lalanne (2023, Fact 4.2.4) states.

  Attributes:
    batch_size: m; each record joins each batch with probability m / n.
    replacement: draw m records with replacement instead, as printed; this has
      no guarantee here.
  """
  batch_size: int
  replacement: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('batch_size', self.batch_size, 1)
    if not self.replacement and self.batch_size >= self.num_examples:
      raise ValueError('batch_size must be below num_examples = '
                       f'{self.num_examples}, got {self.batch_size}: use '
                       'Descent')

  @property
  def actual_rho(self) -> float:
    """Raises ValueError: rho-zCDP does not hold with small batches."""
    raise ValueError('rho-zCDP holds for the full batch only: one record '
                     'changes the mean of a batch of '
                     f'{self.batch_size} by 2 L / {self.batch_size}')

  @property
  def sampling_prob(self) -> float:
    """Returns the sampling probability m / n, rounded to a multiple of 2^-32.
    """
    return PoissonSampler(num_examples=self.num_examples,
                          batch_size=self.batch_size).sampling_prob

  @property
  def noise_multiplier(self) -> float:
    """Returns the noise of a step's gradient over 2 L / m, its l2 sensitivity.

    With the printed noise it is 2 m sqrt(beta / lambda) / (n sqrt(rho)).
    """
    # A step adds eta times the noise of the gradient.
    gradient_noise = self.descent.step_stddev / self.learning_rate
    return gradient_noise * self.batch_size / (2 * self.model.lipschitz)

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy cost: K Gaussian releases on Poisson subsamples.

    Raises:
      ValueError: for batches with replacement.
    """
    if self.replacement:
      raise ValueError('batches drawn with replacement have no guarantee '
                       'here: use replacement=False')
    # The event takes noise over one record's contribution L / m, not 2 L / m.
    return accounting.poisson_gaussian_event(
        sampling_prob=self.sampling_prob,
        noise_multiplier=2 * self.noise_multiplier, num_steps=self.steps)

  def statistic(self, data: Array) -> Array:
    """Returns the records [n, d], since batches use them one by one."""
    return records(data, self.model)

  @property
  def draw(self) -> Draw:
    """Returns a jittable sampler that runs the steps on batches."""
    if self.replacement:
      return _replacement_draw(self.model.family, self.batch_size)
    return _poisson_draw(self.model.family)

  @property
  def parameters(self) -> sgml.Steps:
    """Returns the public numbers of the gradient steps."""
    # Exact, because the probability is a multiple of 2^-32.
    threshold = 0 if self.replacement else round(self.sampling_prob * 2**32)
    return self._steps(threshold, self.batch_size)

  @property
  def utility(self) -> float:
    """Returns an upper bound of E ||theta_K - theta_ML||^2.

    It holds for theta_ML inside the box. It is
    9 d L^2 / (rho lambda^2 n^2) + xi^2 / (beta lambda), for the printed noise
    with replacement; xi^2 <= d / (4 m) is the variance of a batch's gradient.
    """
    model = self.model
    noise = 9 * model.dimension * model.lipschitz**2 / (
        self.rho * (model.strong_convexity * self.num_examples)**2)
    return noise + model.dimension / (4 * self.batch_size * model.smoothness
                                      * model.strong_convexity)
