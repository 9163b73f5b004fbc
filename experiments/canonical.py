"""Fixed computations whose results change when a random stream changes.

`streams` draws from every generator and primitive that experiments draw from;
`training` runs two steps of a method on eight made-up records. `fingerprints`
hashes the results: if the code draws other bits, or computes another step
from the same bits, the results differ. Compiling `streams` takes a few
seconds, and `training` a few seconds for each method.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import arrays
from dpjax.data import containers
from dpjax.data import images
from dpjax.data import splits
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import integers
from dpjax.privacy import lattice
from dpjax.privacy.local import RandomizedResponse
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.sampling import PoissonSampler
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.typing import Array, PyTree

_NUM_RECORDS, _NUM_STEPS = 8, 2


class _Batch(NamedTuple):
  """A batch under field names that stay, because names enter the fingerprint.

  Attributes:
    rows: the selected record numbers, then padding.
    count: number of selected records.
  """
  rows: Array
  count: Array


@jax.jit
def streams() -> PyTree:
  """Returns draws of every generator and primitive, from fixed keys."""
  keys = jax.random.split(jax.random.key(7), 12)
  values = {'a': jnp.array([0.5, -1.0, 2.0]), 'b': jnp.array([[3.0]])}
  split = splits.train_test_split(keys[0], 10, test_fraction=0.2)
  return {
      'generator': [jax.random.key_data(keys),
                    jax.random.bits(jax.random.fold_in(keys[1], 3), (3,))],
      'splits': [split, splits.fold(split, 1, num_folds=2),
                 splits.official_split(keys[0], num_train=6, num_test=3)],
      'training': [
          jax.random.key_data(jnp.stack(states.streams(keys[2]))),
          jax.random.key_data(run_keys.run_key(
              configuration.TrainingConfig(
                  dataset='adult', method='sgd', noise_seed=0)))],
      'batches': _Batch(*PoissonSampler(
          num_examples=20, batch_size=6.0).draw(keys[3])),
      'words': [additive.random_words(keys[4], (3,)),
                additive.random_pairs(keys[4], (3,))],
      'gaussian': [additive.standard_normal(keys[5], (3,)),
                   additive.add_gaussian_noise(
                       keys[5], values, {'a': 1.0, 'b': 2.0})],
      'lattice': lattice.add_noise(keys[6], values, *_lattice(values)),
      'integers': [integers.draw(each, keys[7], (3,)) for each in (
          integers.discrete_gaussian(3.0), integers.discrete_laplace(2.0))],
      'fine': [
          *(draw(keys[8], (3,)) for draw in (
              draws.standard_exponential, draws.standard_laplace,
              draws.standard_gumbel, draws.standard_cauchy,
              draws.standard_uniform)),
          draws.discrete_laplace(keys[8], (3,), 5.0),
          draws.standard_gamma(keys[8], 3),
          draws.standard_direction(keys[8], 3)],
      'local': RandomizedResponse(num_categories=4, epsilon=1.0).release(
          keys[9], jnp.arange(4, dtype=jnp.int32)),
  }


def _lattice(values: PyTree) -> tuple[PyTree, PyTree]:
  """Returns spacings and multipliers of lattice noise of deviation 1."""
  step = lattice.spacing(jnp.float32(1.0))
  outer = lattice.outer_multiplier(jnp.float32(1.0), step)
  return (jax.tree.map(lambda _: step, values),
          jax.tree.map(lambda _: outer, values))


def training(method: str, *, on_images: bool) -> PyTree:
  """Trains two steps; returns the parameters and the l2 sensitivities.

  Args:
    method: a name of `options.METHODS`.
    on_images: True trains a small ConvNet on images; False a perceptron on a
      table.
  """
  dataset = _images() if on_images else _table()
  config = configuration.resolve(_config(method, on_images),
                                 num_available=_NUM_RECORDS)
  model = building.make_model(config, dataset)
  trained_method = building.make_method(config, model, dataset)
  optimizer = building.make_optimizer(config)
  sampler = PoissonSampler(num_examples=_NUM_RECORDS,
                           batch_size=config.batch_size,
                           max_batch_size=_NUM_RECORDS)

  def transform_of(key):
    return steps.make_transform(
        trained_method, sampler, optimizer, key=key, noise_multiplier=1.0,
        allocation=config.allocation)

  def run(key, records, rows):
    state = steps.init_state(key, model=model, method=trained_method,
                             transform_of=transform_of)
    draws = steps.draw_ahead(state, sampler, _NUM_STEPS,
                             noise=trained_method.noise_order is None)
    step = steps.make_step(method=trained_method, sampler=sampler,
                           transform_of=transform_of)
    records = records._replace(x=model.prepare(records.x))
    return jax.lax.scan(lambda state, drawn: step(state, records, rows, drawn),
                        state, draws)

  state, info = jax.jit(run)(
      run_keys.run_key(config), dataset.records,
      jnp.arange(_NUM_RECORDS, dtype=jnp.int32))
  # Fingerprints reject infinite numbers: -1 stands for no finite sensitivity.
  sensitivity = jnp.where(jnp.isfinite(info.l2_sensitivity),
                          info.l2_sensitivity, -1.0)
  return state.params, sensitivity


def _config(method: str,
            on_images: bool) -> configuration.TrainingConfig:
  """Returns the configuration of a method, with a tiny network and batch."""
  size = dict(channels=(8,), kernel_size=2) if on_images else {}
  return configuration.TrainingConfig(
      dataset='mnist' if on_images else 'breast_cancer', method=method,
      num_steps=_NUM_STEPS, batch_size=4.0, width=2, noise_seed=0,
      depth=0 if method == 'bassily' else 1,
      # The default count noise for batches this small is too low: adaptive
      # clipping radii would cost more privacy than the noise of the step has.
      count_noise=0.5, allow_unsound=method == 'lip_printed', **size)


def _table() -> arrays.Dataset:
  """Returns eight made-up records with three features and two classes."""
  rng = np.random.default_rng(3)
  return arrays.from_arrays(rng.uniform(-1, 1, (_NUM_RECORDS, 3)),
                            np.arange(_NUM_RECORDS) % 2, num_classes=2)


def _images() -> images.ImageDataset:
  """Returns eight made-up grey images of 4 x 4 pixels and two classes."""
  rng = np.random.default_rng(3)
  part = containers.Images(
      rng.integers(0, 256, (_NUM_RECORDS, 4, 4, 1), np.uint8),
      np.arange(_NUM_RECORDS, dtype=np.int32) % 2)
  return images.ImageDataset('made_up', part, part, ('a', 'b'), 255)
