"""Simulates the settings in `sweep.py`, and computes exact probabilities."""

from collections.abc import Iterator, Sequence
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from experiments import records
from experiments import rows
from experiments import simulation
from experiments.local_queries import sweep
from experiments.methods.statistics.local_queries import LocalOracle

# Absolute error of the quadrature that computes a probability.
_ROUNDING = 1e-11
_MOST_DRAWS = 10**7
_FEWEST_RUNS = 50


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.method)
    size = batch_size(setting)
    yield setting, rows.released(
        setting, _failures(setting, size), n=setting.num_queries * size,
        epsilon=setting.epsilon)


def oracle(setting: sweep.Setting) -> LocalOracle:
  """Returns an oracle; that of 'printed' takes more people than printed."""
  return LocalOracle(
      num_queries=setting.num_queries, tolerance=setting.tolerance,
      failure_prob=setting.failure_prob, epsilon=setting.epsilon,
      randomizer='laplace' if setting.method == 'printed' else setting.method)


def batch_size(setting: sweep.Setting) -> int:
  """Returns the number of people for one answer."""
  if setting.method == 'printed':
    return math.ceil((setting.epsilon * setting.tolerance)**-2 - 1e-9)
  return oracle(setting).batch_size


def failure_prob(setting: sweep.Setting, size: int) -> float:
  """Returns the exact probability of an error above the tolerance.

  For two-valued answers it uses the Binomial distribution; otherwise it inverts
  (Gil-Pelaez) the characteristic function of signs plus Laplace noise, and
  returns 0 below 1e-11.
  """
  if setting.method == 'bernoulli':
    gap = setting.tolerance * math.tanh(setting.epsilon / 2) / 2
    distribution = stats.binom(size, 0.5)
    # An error equal to the tolerance is not a failure.
    return float(2 * distribution.sf(math.floor(size * (0.5 + gap) + 1e-6)))
  scale = 2 / setting.epsilon
  spread = math.sqrt(size * (1 + 2 * scale**2))
  t = np.linspace(0, 60 / spread, 1_000_002)[1:]
  decay = np.cos(t)**size * np.exp(-size * np.log1p((scale * t)**2))
  inside = np.sin(size * setting.tolerance * t) / t * decay
  result = 1 - 2 / math.pi * float(np.trapezoid(
      np.insert(inside, 0, size * setting.tolerance), dx=t[0]))
  return result if result > _ROUNDING else 0.0


def _failures(setting: sweep.Setting, size: int) -> dict[str, float]:
  """Returns failure rates of one answer, and of any of T answers."""
  randomiser = oracle(setting)

  def costs(key, data):
    answer = jnp.mean(randomiser.randomize(key, data))
    return (jnp.abs(answer) > setting.tolerance).astype(jnp.float32)

  repetitions = min(setting.repetitions,
                    max(_FEWEST_RUNS, _MOST_DRAWS // size))
  mean, error = simulation.means(
      simulation.key_of(setting), costs,
      lambda key: jax.random.rademacher(key, (size,), jnp.float32),
      num_repetitions=repetitions, size=2 * size)
  exact = failure_prob(setting, size)
  return dict(
      batch_size=size, simulated=repetitions, failure=mean, failure_se=error,
      failure_exact=exact,
      any_failure=-math.expm1(setting.num_queries * math.log1p(-min(
          exact, 1 - 1e-12))))
