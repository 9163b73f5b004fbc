"""Repetitions of private estimates, each on its own records.

A step estimates `REPETITIONS` given data sets of `size` records, each with its
own noise and a confidence interval. Other libraries get the same data sets, one
after the other, and return no intervals.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import inverse
from dpjax.privacy import selection
from dpjax.privacy import smooth
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats import means as mean
from dpjax.theory.parametric import proportions
from dpjax.typing import Array, PRNGKey, PyTree
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import polls
from experiments.methods.statistics import support_queries

_EPSILON = 0.5
_CELLS = 10
_REPLACE = Adjacency.REPLACE_ONE


def _poll(size: int) -> Callable:
  """Returns the estimate of a poll by randomised response."""
  return lambda key, data: polls.proportion(jnp.sum(data), size,
                                            truth_prob=0.75)


def _local(size: int) -> Callable:
  """Returns the estimate of a support under local privacy."""
  del size
  answers = support_queries.local_answers(epsilon=_EPSILON)
  return lambda key, data: support_queries.local_doubled_mean(
      answers.release(key, data - 0.5), epsilon=_EPSILON)


def _histogram(size: int) -> Callable:
  """Returns the release of frequencies of ten categories."""
  mechanism = frequencies.laplace(num_categories=_CELLS, num_examples=size,
                                  epsilon=_EPSILON, adjacency=_REPLACE)
  # Numbers in [0, 1) stand for categories.
  return lambda key, data: mechanism.release(
      key, (data * _CELLS).astype(jnp.int32))


def _selection(kind: Callable) -> Callable:
  """Returns a selection among as many candidates as there are records."""
  return lambda size: kind(sensitivity=1.0, epsilon=_EPSILON,
                           adjacency=_REPLACE).release


_RANGE = dict(lower=0.0, upper=1.0, epsilon=_EPSILON)
_OURS: dict[str, Callable[[int], Callable]] = {
    'proportion': lambda size: proportions.proportion(
        num_examples=size, epsilon=_EPSILON).release,
    'mean': lambda size: mean.BoundedMean(
        num_examples=size, interval='wald', **_RANGE).release,
    'private_size_mean': lambda size: mean.PrivateSizeMean(**_RANGE).release,
    'histogram': _histogram,
    'poll': _poll,
    'support': lambda size: doubled_means.DoubledMean(
        num_examples=size, epsilon=_EPSILON).release,
    'local_support': _local,
    'exponential': _selection(selection.ExponentialMechanism),
    'permute_and_flip': _selection(selection.PermuteAndFlip),
    'inverse_median': lambda size: inverse.InverseSensitivityQuantile(
        num_examples=size, **_RANGE).release,
    'smooth_median': lambda size: smooth.SmoothSensitivityQuantile(
        num_examples=size, smoothing=_EPSILON / 2, **_RANGE).release,
}


def make(spec: Spec) -> Program:
  """Returns a program of `REPETITIONS` estimates from `size` records each."""
  data = np.random.default_rng(0).random(
      (methods.REPETITIONS, spec.size), np.float32)
  name, _ = methods.split(spec.method)
  if name != 'ours':
    once = {'numpy': _numpy, 'diffprivlib': _diffprivlib,
            'opendp': _opendp}[name](spec.model, spec.size)
    return Program(step=lambda: [once(records) for records in data], info={})
  return _compile(_OURS[spec.model](spec.size), jnp.asarray(data))


def _compile(release: Callable, data: jax.Array) -> Program:
  """Returns a program that estimates all data sets by `vmap`."""
  def following(key: PRNGKey, data: Array) -> tuple[PRNGKey, PyTree]:
    key, own = jax.random.split(key)
    keys = jax.random.split(own, methods.REPETITIONS)
    return key, jax.vmap(release)(keys, data)

  key = jax.random.key(0)
  compiled, info = programs.compiled(jax.jit(following), key, data)
  state = [key]

  def step() -> None:
    state[0], estimates = compiled(state[0], data)
    jax.block_until_ready(estimates)

  return Program(step=step, info=info)


def _numpy(model: str, size: int) -> Callable[[np.ndarray], object]:
  """Returns an estimate with a normal interval, as usual NumPy code has it."""
  rng = np.random.default_rng(1)
  medians = {'inverse_median': _numpy_inverse, 'smooth_median': _numpy_smooth}
  if model in medians:
    return medians[model](rng, size)

  def histogram(records):
    counts = np.bincount((records * _CELLS).astype(int), minlength=_CELLS)
    scale = 2 / (size * _EPSILON)
    return _with_interval(counts / size + rng.laplace(
        scale=scale, size=_CELLS), scale, size)

  def noisy_quotient(records):
    total = (records - 0.5).sum() + rng.laplace(scale=1 / _EPSILON)
    people = max(1, records.size + rng.laplace(scale=2 / _EPSILON))
    return _with_interval(total / people + 0.5, 2 / (people * _EPSILON), people)

  scale = 1 / (size * _EPSILON)
  noisy_mean = lambda records: _with_interval(
      records.mean() + rng.laplace(scale=scale), scale, size)
  return {
      'proportion': noisy_mean, 'mean': noisy_mean, 'support': noisy_mean,
      'private_size_mean': noisy_quotient, 'histogram': histogram,
      'poll': lambda records: _with_interval(
          (records.mean() - 0.25) / 0.5, 0, size),
      'local_support': lambda records: _with_interval((records + rng.laplace(
          scale=1 / _EPSILON, size=size)).mean(), 0, size),
      'exponential': lambda records: np.argmax(
          _EPSILON / 2 * records + rng.gumbel(size=size)),
      'permute_and_flip': lambda records: np.argmax(
          _EPSILON / 2 * records + rng.exponential(size=size)),
  }[model]


def _with_interval(value: Any, scale: float, size: float) -> tuple:
  """Returns a proportion with its normal interval."""
  inner = np.clip(value, 0, 1)
  half = 1.959964 * np.sqrt(inner * (1 - inner) / size + 2 * scale**2)
  return value, value - half, value + half


def _numpy_inverse(rng: np.random.Generator, size: int) -> Callable:
  """Returns the median by the inverse sensitivity mechanism."""
  ranks = np.arange(size + 1) - (size + 1) // 2

  def median(records):
    edges = np.concatenate([[0.0], np.sort(records), [1.0]])
    widths = np.diff(edges)
    with np.errstate(divide='ignore'):
      logs = np.log(widths) - _EPSILON / 2 * np.where(
          ranks < 0, -ranks, ranks + 1)
    chosen = np.argmax(logs + rng.gumbel(size=size + 1))
    return edges[chosen] + widths[chosen] * rng.random()

  return median


def _numpy_smooth(rng: np.random.Generator, size: int) -> Callable:
  """Returns the median with noise of its smooth sensitivity."""
  rate = _EPSILON / 2
  steps = int(20 * np.log(2) / rate) + 1
  middle = steps + (size + 1) // 2 - 1
  places = np.arange(steps + 1)
  weights = np.exp(-rate * np.maximum(np.add.outer(places, places) - 1, 0))

  def median(records):
    line = np.concatenate([np.zeros(steps), np.sort(records), np.ones(steps)])
    gaps = np.subtract.outer(line[middle + places], line[middle - places])
    return line[middle] + np.max(
        weights * gaps) / rate * rng.standard_cauchy()

  return median


def _diffprivlib(model: str, size: int) -> Callable[[np.ndarray], object]:
  """Returns the estimate of diffprivlib."""
  del size
  from diffprivlib import tools
  shared = dict(epsilon=_EPSILON, random_state=np.random.RandomState(0))
  if model == 'histogram':
    return lambda records: tools.histogram(
        records, bins=_CELLS, range=(0, 1), **shared)
  function = tools.median if model == 'inverse_median' else tools.mean
  return lambda records: function(records, bounds=(0, 1), **shared)


def _opendp(model: str, size: int) -> Callable[[np.ndarray], object]:
  """Returns the estimate of OpenDP."""
  import opendp.prelude as dp
  dp.enable_features('contrib', 'idealized-numerics')
  distance = dp.symmetric_distance()
  if model == 'histogram':
    space = dp.vector_domain(dp.atom_domain(T='i32'), size=size), distance
    release = (space >> dp.t.then_count_by_categories(
        list(range(_CELLS)), null_category=False)
               >> dp.m.then_laplace(scale=2 / _EPSILON))
    return lambda records: release((records * _CELLS).astype(np.int32))
  space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False),
                           size=size), distance
  release = (space >> dp.t.then_mean()
             >> dp.m.then_laplace(scale=1 / (size * _EPSILON)))
  return lambda records: release(records.astype(np.float64))
