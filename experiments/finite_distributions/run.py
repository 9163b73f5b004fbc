"""Simulates the settings in `sweep.py`; a group shares its data."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.finite_distributions import sweep


def probabilities(dataset: str, num_categories: int) -> np.ndarray:
  """Returns the probabilities of the population, [k] in float64."""
  weights = np.ones(num_categories)
  if dataset == 'zipf':
    weights /= np.arange(1, num_categories + 1)
  return weights / weights.sum()


def _sampler(probs: np.ndarray, size: int):
  """Returns a sampler key -> categories [size] int32 of the probabilities."""
  levels = jnp.asarray(np.cumsum(probs)[:-1], jnp.float32)
  return lambda key: jnp.searchsorted(
      levels, jax.random.uniform(key, (size,)), side='right').astype(jnp.int32)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  first = settings[0]
  progress(0, f'k = {first.num_categories}, n = {first.num_examples}')
  probs = probabilities(first.dataset, first.num_categories)
  mechanisms = [frequencies.laplace(
      num_categories=first.num_categories, num_examples=first.num_examples,
      epsilon=setting.epsilon, adjacency=Adjacency.REPLACE_ONE)
                for setting in settings]
  sampler = _sampler(probs, first.num_examples)
  wanted = jnp.asarray(probs, jnp.float32)

  def costs(key, data):
    keys = jax.random.split(key, len(mechanisms))
    raw = [mechanism.release(k, data).value
           for mechanism, k in zip(mechanisms, keys)]
    both = raw + [frequencies.project_on_simplex(value) for value in raw]
    # The third value is the largest excess error of the projection in any
    # repetition.
    each = jnp.stack([jnp.sum(jnp.square(value - wanted)) for value in both])
    farther = each[len(raw):] > each[:len(raw)] * (1 + 1e-5) + 1e-9
    return jnp.concatenate([each, farther.astype(jnp.float32)])

  means, errors = simulation.means(
      simulation.key_of(first), costs, sampler,
      num_repetitions=first.repetitions,
      size=first.num_examples + 4 * first.num_categories)
  count = len(settings)
  for index, (setting, mechanism) in enumerate(zip(settings, mechanisms)):
    metrics = dict(
        raw=means[index], raw_se=errors[index],
        projected=means[count + index], projected_se=errors[count + index],
        farther=means[2 * count + index],
        closed_form=mechanism.population_risk(probs),
        bound=1 / setting.num_examples + mechanism.risk(
            setting.num_categories))
    yield setting, rows.released(setting, metrics, n=setting.num_examples,
                                 epsilon=setting.epsilon)
