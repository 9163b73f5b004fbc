"""Computes the rows of the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import numpy as np
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.minimax import two_points
from experiments import records
from experiments import rows
from experiments.methods.theory import compared_notions
from experiments.methods.theory import conversions
from experiments.methods.theory import definitions
from experiments.price_definitions import sweep

_PRIORS = np.linspace(0, 1, 4001)
_BINARY = np.array([0.01, 0.99]), np.array([0.1, 0.9])
_CANDIDATES = 8


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  kinds = {'conditional': _conditional, 'approximate': _approximate,
           'release': _release, 'beside': _beside}
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.kind} {setting.method} '
             f'{setting.amount:g}')
    yield setting, rows.exact(setting, kinds[setting.kind](setting))


def pair(method: str, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns the output distributions [m] of a mechanism on two neighbours."""
  match method:
    case 'response' | 'parity':
      return _answers(epsilon, 2)
    case 'five_answers':
      return _answers(epsilon, 5)
    case 'laplace':
      edges = np.linspace(-2, 3, 21)
      cells = [np.append(edges, np.inf), np.append(-np.inf, edges)]
      noise = stats.laplace(scale=1 / epsilon)
      p, q = (noise.cdf(cells[0] - at) - noise.cdf(cells[1] - at)
              for at in (0, 1))
      return p, q
    case 'choice':
      # The exponential mechanism; a record raises the score of one candidate.
      scores = epsilon * np.eye(_CANDIDATES)[0]
      return (np.full(_CANDIDATES, 1 / _CANDIDATES),
              np.exp(scores) / np.exp(scores).sum())
  raise ValueError(f'no mechanism {method!r}')


def _answers(epsilon, size):
  row = np.exp(epsilon * np.eye(size))
  return tuple((row / row.sum(1, keepdims=True))[:2])


def _conditional(setting: sweep.Setting) -> dict[str, float]:
  p, q = pair(setting.method, setting.amount)
  guarantee = notions.PureDP(epsilon=setting.amount)
  values = dict(
      found=definitions.conditional(p, q, mass=sweep.MASS),
      range=definitions.conditional(p, q),
      sharp=conversions.convert(
          guarantee, compared_notions.ConditionalTesting).level,
      printed=conversions.printed_conditional(
          notions.ApproxDP(epsilon=setting.amount, delta=0.0)).level,
      linear=4 * setting.amount)
  if setting.method == 'parity':
    # A noisy parity of two bits, one of which is 1: the posterior of the other
    # bit given the output, and as if the first record had been replaced.
    with_record, replaced = q, p
    values['posterior'] = float(np.max(definitions.tilted(
        with_record, replaced, np.stack([_PRIORS, 1 - _PRIORS], 1))))
    values['posterior_printed'] = math.expm1(setting.amount)
  return values


def _approximate(setting: sweep.Setting) -> dict[str, float]:
  guarantee = notions.ApproxDP(epsilon=setting.amount, delta=setting.delta)
  printed = conversions.printed_conditional(guarantee)
  p, q = definitions.extremal(guarantee)
  return dict(
      found=definitions.conditional(p, q, mass=printed.mass),
      sharp=conversions.conditional(guarantee, mass=printed.mass).level,
      printed=printed.level, mass=printed.mass,
      errors=definitions.weighted_errors(p, q, weight=1.0),
      errors_bound=2 * float(two_points.path_error(1, guarantee)),
      errors_printed=definitions.printed_errors(guarantee))


def _release(setting: sweep.Setting) -> dict[str, float]:
  size = int(setting.amount)
  if setting.method == 'one_at_random':
    p, q = (np.bincount(data, minlength=size + 1) / size
            for data in (np.arange(size), np.arange(size) + 1))
  else:
    p, q = _answers(2 * math.atanh(1 / size), 2)
  return dict(
      variation=definitions.level(p, q, notions.TotalVariationPrivacy),
      found=definitions.conditional(p, q, mass=1 / size))


def _beside(setting: sweep.Setting) -> dict[str, float]:
  number = int(setting.amount)
  probs = [np.repeat(row, number) / number for row in _BINARY]
  return dict(found=definitions.conditional_of_events(*probs),
              range=definitions.conditional(*_BINARY))
