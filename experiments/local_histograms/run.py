"""Simulates the settings in `sweep.py`, and computes their closed forms."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.local import RandomizedResponse
from dpjax.stats import frequencies
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.local_histograms import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'n = {setting.num_examples}')
    yield setting, rows.released(
        setting, _risks(setting), n=setting.num_examples,
        epsilon=setting.epsilon)


def _risks(setting: sweep.Setting) -> dict[str, float]:
  """Returns errors summed over the K frequencies."""
  k, size = setting.num_categories, setting.num_examples
  response = RandomizedResponse(num_categories=k, epsilon=setting.epsilon)
  central = frequencies.laplace(
      num_categories=k, num_examples=size, epsilon=setting.epsilon,
      adjacency=Adjacency.REPLACE_ONE)
  of_counts = frequencies.laplace(
      num_categories=k, epsilon=setting.epsilon,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE).counts
  truths = jnp.arange(size, dtype=jnp.int32) % k

  def costs(key, data):
    for_local, for_central = jax.random.split(key)
    answers = response.release(for_local, data)
    result = (frequencies.local(response, answers).value,
             central.release(for_central, data).value)
    return jnp.stack([jnp.sum(jnp.square(each - 1 / k)) for each in result])

  (local, curator), errors = simulation.means(
      simulation.key_of(setting), costs, lambda key: truths,
      num_repetitions=setting.repetitions, size=2 * size)
  return dict(
      local=local, local_se=errors[0], central=curator, central_se=errors[1],
      local_exact=frequencies.local_risk(response, np.full(k, 1 / k), size),
      local_printed=k * response.variance_printed(size),
      central_exact=central.risk(k),
      central_add_remove=of_counts.risk(k) / size**2,
      central_printed=k * 8 / (size * setting.epsilon**2)**2)
