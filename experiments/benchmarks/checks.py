"""Checks the results of timed methods: sums, noise and step.

The reference is a loop over records with `jax.grad`, added up in float64.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from dpjax import tree
from dpjax.typing import Array, Batch, Params
from experiments.benchmarks import architectures
from experiments.benchmarks import butterflies
from experiments.benchmarks import clients
from experiments.benchmarks import curve_checks
from experiments.benchmarks import density_checks
from experiments.benchmarks import jax_nets
from experiments.benchmarks import jax_steps
from experiments.benchmarks import methods
from experiments.benchmarks import network_checks
from experiments.benchmarks import norms
from experiments.benchmarks import parametric
from experiments.benchmarks import quantile_checks
from experiments.benchmarks.program import Spec

_TOLERANCE = 2e-3

_Loss = Callable[[Params, Array, Array], Array]


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    method: name of the method.
    model: name of the network.
    error: relative error of the sums, of the worst parameter.
    step_error: error of the parameters after a step without noise, or with
      known noise, divided by the length of the step.
    noise_multiplier: measured noise multiplier; 0 without noise.
    passed: whether errors and noise are within the tolerances.
  """
  method: str
  model: str
  error: float
  step_error: float
  noise_multiplier: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    return (f'{self.error:.1e}', f'{self.step_error:.1e}',
            f'{self.noise_multiplier:.2f}')


COLUMNS = {'step': ('error of sums', 'of the step', 'noise (1.50)'),
           'norms': ('error of norms', 'of the sum'),
           'quantiles': ('rank error over n', 'least p-value'),
           'curves': ('error', 'least p-value'),
           'densities': ('error', 'least p-value'),
           'parametric': ('least p-value',),
           'butterfly': ('error',), 'models': ('error of sums',)}
"""Columns of the printed table by suite; other suites have no checks."""


def check(suite: str, model: str, method: str, *, size: int,
          timeout: float
          ) -> (Finding | norms.Finding | quantile_checks.Finding
                | curve_checks.Finding | density_checks.Finding
                | parametric.Finding | butterflies.Finding
                | network_checks.Finding):
  """Checks a method in a process of its own.

  Args:
    suite: one of `COLUMNS`.
    model: name of the network or layer.
    method: name of the method.
    size: batch size, where half of the records are clipped; in quantiles and
      densities the number of records, in curves of thresholds or keys, in
      butterfly the length of a vector.
    timeout: seconds for each answer of the process.

  Raises:
    clients.WorkerFailed: if the method cannot be run.
  """
  maker, judged = {
      'norms': (norms.make_spec, norms.judge),
      'quantiles': (quantile_checks.make_spec, quantile_checks.judge),
      'curves': (curve_checks.make_spec, curve_checks.judge),
      'densities': (density_checks.make_spec, density_checks.judge),
      'parametric': (parametric.make_spec, parametric.judge),
      'butterfly': (butterflies.make_spec, butterflies.judge),
      'models': (network_checks.make_spec, network_checks.judge),
  }.get(suite, (make_spec, judge))
  spec = maker(model, method, size=size)
  with clients.Worker(spec, timeout, audited=True) as worker:
    return judged(spec, worker.audit())


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check, which clips at the median norm."""
  return Spec(suite='step', model=model, size=size, method=method,
              clip_norm=float(np.median(_norms(_plain_gradients(model, size)))),
              noise_multiplier=1.5)


def _plain(model: str, size: int) -> tuple[_Loss, Params, Batch]:
  """Returns (loss of one record, parameters, batch) of ordinary training."""
  architecture = architectures.MODELS[model]
  apply = functools.partial(jax_nets.apply, architecture)
  loss = lambda p, x, y: jax_steps.cross_entropy(apply(p, x), y)[0]
  return (loss, jax_nets.init(architecture, jax.random.key(0)),
          jax_nets.batch(architecture, size, jax.random.key(1)))


def _gradients(loss: _Loss, params: Params, batch: Batch) -> list[Params]:
  """Returns the gradient of each record by itself, in float64."""
  one = jax.jit(jax.grad(loss))
  return [jax.tree.map(lambda leaf: np.asarray(leaf, np.float64),
                       one(params, batch.x[i:i + 1], batch.y[i:i + 1]))
          for i in range(len(batch.y))]


@functools.cache
def _plain_gradients(model: str, size: int) -> list[Params]:
  """Returns the gradients of ordinary training, which most methods share."""
  return _gradients(*_plain(model, size))


def _norm(values: Any) -> float:
  """Returns the l2 norm of all leaves."""
  return math.sqrt(sum(float(np.sum(leaf**2))
                       for leaf in jax.tree.leaves(values)))


def _norms(gradients: Sequence[Params]) -> list[float]:
  """Returns the l2 norm of each gradient."""
  return [_norm(gradient) for gradient in gradients]


def _clip(gradient: Any, bound: float) -> Any:
  """Returns the gradient clipped to an l2 norm."""
  return tree.scale(min(1.0, bound / _norm(gradient)), gradient)


def _of_views(loss: _Loss, params: Params, batch: Batch) -> list[Params]:
  """Returns the mean gradient over the views [b, views, ...] of each record."""
  count = batch.x.shape[1]
  gradients = _gradients(loss, params, Batch(
      batch.x.reshape((-1, *batch.x.shape[2:])), np.repeat(batch.y, count)))
  return [tree.scale(1 / count,
                     functools.reduce(tree.add, gradients[i:i + count]))
          for i in range(0, len(gradients), count)]


def _reference(spec: Spec, params: Params, batch: Batch | None) -> Params:
  """Returns the correct sums; for views, `batch` is that of the method."""
  name, _ = methods.split(spec.method)
  if name.startswith('lip'):
    model = jax_nets.certified(architectures.MODELS[spec.model])
    values = jax_steps.lip_loss().values
    return functools.reduce(tree.add, _gradients(
        lambda p, x, y: values(model.apply(p, x), y)[0], params,
        _plain(spec.model, spec.size)[2]))
  if name == 'ours_views':
    loss, *_ = _plain(spec.model, spec.size)
    assert batch is not None
    gradients = _of_views(loss, params, batch)
  else:
    gradients = _plain_gradients(spec.model, spec.size)
  if name in methods.PER_LAYER:
    bound = spec.clip_norm / math.sqrt(len(params))
    gradients = [{layer: _clip(part, bound) for layer, part in each.items()}
                 for each in gradients]
  elif not name.startswith('limit') and name not in methods.BASELINES:
    gradients = [_clip(each, spec.clip_norm) for each in gradients]
  return functools.reduce(tree.add, gradients)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares what a program computed with the reference.

  Args:
    spec: specification of the program, from `make_spec`.
    audit: values of the program: 'norms'; or 'sums' at the parameters 'params',
      the parameters 'moved' after a step and the correct ones 'wanted', and the
      'noise_multiplier'.
  """
  if 'norms' in audit:
    wanted = np.asarray(_norms(_plain_gradients(spec.model, spec.size)))
    error = float(np.max(np.abs(audit['norms'] - wanted) / wanted))
    return Finding(spec.method, spec.model, error, 0.0, 0.0,
                   error <= _TOLERANCE)
  reference = _reference(spec, audit['params'], audit.get('batch'))
  # A parameter whose gradients nearly cancel may be off by rounding.
  floor = 1e-3 * _norm(reference)
  error = max(_norm(ours - theirs) / (_norm(theirs) + floor)
              for ours, theirs in zip(*map(
                  jax.tree.leaves, (audit['sums'], reference)), strict=True))
  params, moved, wanted = (np.concatenate([
      leaf.ravel() for leaf in jax.tree.leaves(audit[name])])
      for name in ('params', 'moved', 'wanted'))
  # Values at an edge of the grid of the noise may be rounded either way.
  step_error = float(np.linalg.norm(moved - wanted)
                     / np.linalg.norm(wanted - params))
  noise = audit['noise_multiplier']
  passed = (error <= _TOLERANCE and step_error <= _TOLERANCE
            and _noise_is_right(spec, noise, tree.count(reference)))
  return Finding(spec.method, spec.model, error, step_error, noise, passed)


def _noise_is_right(spec: Spec, noise: float, count: int) -> bool:
  """Returns whether a measured noise multiplier is the specified one."""
  if methods.split(spec.method)[0] in methods.BASELINES:
    return noise == 0
  # Four standard errors of a standard deviation, or the rounding of a block.
  return abs(noise / spec.noise_multiplier - 1) <= max(0.02,
                                                       3 / math.sqrt(count))
