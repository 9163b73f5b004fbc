"""Simulates the settings in `sweep.py`, and computes closed forms."""

from collections.abc import Callable, Iterator, Sequence
import math

import jax
import jax.numpy as jnp

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.intervals import Estimate
from dpjax.theory.parametric import supports
from dpjax.typing import Array, PRNGKey
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import support_queries
from experiments.support_estimators import sweep

_THETA = sweep.THETA


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.method)
    yield setting, rows.released(setting, _risks(setting),
                                 n=setting.num_examples,
                                 epsilon=setting.epsilon)


def estimator(setting: sweep.Setting) -> Callable[[PRNGKey, Array], Estimate]:
  """Returns (key, records [n]) -> estimate; intervals may be NaN."""
  size, epsilon = setting.num_examples, setting.epsilon

  def plain(function):
    def estimate(key, data):
      value = function(key, data)
      return Estimate(value, value * jnp.nan, value * jnp.nan)
    return estimate

  if setting.method in sweep.OPEN:
    return lambda key, data: getattr(doubled_means, setting.method)(data)
  if setting.method == 'noisy_largest':
    return plain(supports.NoisyMaximum(
        epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE).release)
  if setting.method == 'noisy_doubled_mean':
    return doubled_means.DoubledMean(num_examples=size, epsilon=epsilon).release
  if setting.method == 'top_quantile':
    quantile = doubled_means.top_quantile(num_examples=size, epsilon=epsilon)
    return plain(lambda key, data: quantile.release(key, data) / quantile.prob)
  answers = support_queries.local_answers(epsilon=epsilon)

  def local(key, data):
    noisy_records = answers.release(key, data - 0.5)
    if setting.method == 'local_largest':
      return plain(lambda _, each: support_queries.local_maximum(each))(
          key, noisy_records)
    return support_queries.local_doubled_mean(noisy_records, epsilon=epsilon)
  return local


def closed_form(setting: sweep.Setting) -> float:
  """Returns the expected squared error; asymptotic for local_largest."""
  n, epsilon = setting.num_examples, setting.epsilon
  if setting.method == 'local_largest':
    mean = support_queries.local_maximum_mean(_THETA, num_examples=n,
                                              epsilon=epsilon)
    return (mean - _THETA)**2 + math.pi**2 / (6 * epsilon**2)
  return {
      'largest': lambda: _THETA**2 / (n * (n + 2)),
      'doubled_mean': lambda: _THETA**2 / (3 * n),
      'noisy_largest': lambda: (2 * _THETA**2 / ((n + 1) * (n + 2)) +
                                2 / epsilon**2),
      'noisy_doubled_mean': lambda: doubled_means.DoubledMean(
          num_examples=n, epsilon=epsilon).population_risk(_THETA),
      'top_quantile': lambda: math.nan,
      'local_doubled_mean': lambda: support_queries.local_doubled_mean_risk(
          _THETA, num_examples=n, epsilon=epsilon),
  }[setting.method]()


def _risks(setting: sweep.Setting) -> dict[str, float]:
  """Returns simulated risks, and closed forms where they exist."""
  estimate = estimator(setting)

  def costs(key, data):
    values = estimate(key, data)
    covered = (values.low <= _THETA) & (_THETA <= values.high)
    return jnp.stack([jnp.square(values.value - _THETA), values.value - _THETA,
                      jnp.where(jnp.isnan(values.low), jnp.nan,
                                covered.astype(jnp.float32))])

  size = setting.num_examples
  means, errors = simulation.means(
      simulation.key_of(setting), costs,
      lambda key: jax.random.uniform(key, (size,), maxval=_THETA),
      num_repetitions=setting.repetitions, size=2 * size)
  values = dict(risk=means[0], risk_se=errors[0], bias=means[1],
               coverage=means[2], closed_form=closed_form(setting))
  return {name: value for name, value in values.items()
          if not math.isnan(float(value))}
