"""Fingerprints of the code that determines the random streams behind a row.

A fingerprint is eight hexadecimal digits, in the last column of each row. It is
a hash of
  - the draws of `canonical.streams`: generators, noise, batches, splits;
  - for a setting that trains (`config` in its `run.py`): the results of two
    steps of its method on made-up records (`canonical.training`), and its
    resolved configuration, with all values that a recipe fills in.
It is computed from results, not from source text. Moving, renaming or speeding
up code keeps a fingerprint; drawing other bits, computing another step or
changing a recipe changes it. Numbers enter the hash as three weighted sums
rounded to a hundredth, so that last digits, which differ between processors,
do not count.

A fingerprint does not cover the arithmetic of a statistic or of features, an
activation that no recipe uses, or accounting. Changes there show when rows are
made again: `python -m launch.reproduce --sample` compares new rows with the
committed ones.

A row without a fingerprint was made before fingerprints existed, and has not
been compared with a result of the present code since.
"""

import dataclasses
import functools
import hashlib
from typing import Any

from experiments import registry
from experiments import selection

LENGTH = 8
_SEEDS = ('seed', 'split_seed', 'canary_seed', 'noise_seed')


def of(experiment: registry.Experiment, setting: selection.Setting, *,
       num_examples: int) -> str:
  """Returns the fingerprint of the present code for rows of a setting.

  Args:
    experiment: experiment that the setting belongs to.
    setting: any setting of it.
    num_examples: n of its rows; recipes depend on it.
  """
  config = experiment.config(setting)
  if config is None:
    return streams()
  return _hash('\n'.join([streams(), *_of_training(config, num_examples)]))


@functools.cache
def streams() -> str:
  """Returns the fingerprint of rows that involve no training."""
  # Imported here, so that listing settings needs no JAX.
  from experiments import canonical
  return _hash(_text(canonical.streams()))


@functools.cache
def _training(method: str, on_images: bool) -> str:
  """Returns the hash of two training steps of a method."""
  from experiments import canonical
  return _hash(_text(canonical.training(method, on_images=on_images)))


def _of_training(config: Any, num_examples: int) -> list[str]:
  """Returns the texts that the fingerprint of a training setting hashes."""
  from dpjax.data import registry as datasets
  from dpjax.runs import configuration
  resolved = configuration.resolve(config, num_available=num_examples)
  return [_training(resolved.method, resolved.dataset in datasets.IMAGES),
          _describe(resolved)]


def _describe(config: Any) -> str:
  """Returns the fields of a configuration as text, without seeds.

  The ids of settings hold the seeds. Fields added to `TrainingConfig` later
  count only if they differ from their default, as in `run_keys.run_key`, so
  that adding a field keeps old fingerprints.
  """
  return ','.join(
      f'{field.name}={getattr(config, field.name)!r}'
      for field in dataclasses.fields(config) if field.name not in _SEEDS and (
          not field.metadata.get('later') or
          getattr(config, field.name) != field.default))


def _hash(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _text(results: Any) -> str:
  """Returns the leaves of a tree as text: shapes, integers, rounded sums."""
  import jax
  import numpy as np
  words = []
  for path, leaf in jax.tree_util.tree_flatten_with_path(results)[0]:
    array = np.asarray(leaf)
    if array.dtype.kind in 'iub':
      numbers = array.ravel().tolist()
    else:
      numbers = _rounded_sums(array.astype(np.float64).ravel())
    words.append(f'{jax.tree_util.keystr(path)} {array.shape} {numbers}')
  return '\n'.join(words)


def _rounded_sums(values: Any) -> list[int]:
  """Returns the scale of some numbers and three weighted sums of them.

  The scale is the exponent of a power of two, at least the largest number.
  Sums are rounded to hundredths of that power: arrays that differ by a few
  percent have different sums. Arrays that differ by 1e-6 have equal sums,
  except about once in 1,000 times.
  """
  import numpy as np
  largest = float(np.max(np.abs(values), initial=0.0))
  if not np.isfinite(largest):
    raise ValueError('a canonical computation gave a number that is not '
                     f'finite: {values}')
  exponent = int(np.frexp(largest)[1])
  places = np.arange(1, values.size + 1)
  return [exponent] + [
      round(100 * float(np.sum(np.cos(weight * places) * values)
                        * 2.0**-exponent)) for weight in (1, 2, 3)]
