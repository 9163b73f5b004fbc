"""Fingerprints of all that decides on the random streams behind a row.

A fingerprint is eight hexadecimal digits, in the last column of each row. It is
a hash of
  - what `canonical.streams` draws: generators, noise, batches, splits;
  - for a setting that trains (`config` in its `run.py`): what two steps of its
    method do to made-up records (`canonical.training`), and its resolved
    configuration, that is with all values that a recipe fills in.
It is computed from what code does, not from how it is written: a fingerprint
stays what it is while code is moved, renamed or made faster, and becomes
another one when other bits are drawn, when a step computes something else or
when a recipe changes. Numbers are hashed by three weighted sums rounded to a
hundredth, so that the last digits, which processors differ in, do not count.

A fingerprint does not see the rest: the arithmetic of a statistic, an
activation that no recipe uses, accounting. That is what making rows anew sees:
`python -m launch.reproduce --sample` compares them with the committed ones.

A row without a fingerprint was made by code that had none, and has not been
compared with what the present code makes since.
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
    experiment: of the setting.
    setting: any.
    num_examples: n of its rows, on which the values of recipes depend.
  """
  config = experiment.config(setting)
  if config is None:
    return streams()
  return _hash('\n'.join([streams(), *_of_training(config, num_examples)]))


@functools.cache
def streams() -> str:
  """Returns the fingerprint of rows that no training decides on."""
  # Imported here, so that to list or to run what draws nothing needs no JAX.
  from experiments import canonical
  return _hash(_text(canonical.streams()))


@functools.cache
def _training(method: str, on_images: bool) -> str:
  from experiments import canonical
  return _hash(_text(canonical.training(method, on_images=on_images)))


def _of_training(config: Any, num_examples: int) -> list[str]:
  from dpjax.data import registry as datasets
  from experiments import configuration
  resolved = configuration.resolve(config, num_available=num_examples)
  return [_training(resolved.method, resolved.dataset in datasets.IMAGES),
          _describe(resolved)]


def _describe(config: Any) -> str:
  """Returns the fields of a configuration in words, without seeds.

  Seeds stand in the ids of settings. Fields that came later count once they
  are not at their default, as in `run_keys.run_key`.
  """
  return ','.join(
      f'{field.name}={getattr(config, field.name)!r}'
      for field in dataclasses.fields(config) if field.name not in _SEEDS and (
          not field.metadata.get('later') or
          getattr(config, field.name) != field.default))


def _hash(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _text(results: Any) -> str:
  """Returns the leaves of a tree in words: shapes, integers, rounded sums."""
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
  """Returns the scale of some numbers and three sums that tell them apart.

  The scale is a power of two, at least the largest number. Sums are in
  hundredths of it: what differs by a few percent has other sums, what differs
  in its last digits, by 1e-6, has the same ones but for one time in 1,000.
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
