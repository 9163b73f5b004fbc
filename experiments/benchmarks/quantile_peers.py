"""Published quantile algorithms in NumPy, and those of two libraries.

The algorithms are written from their descriptions: the exponential mechanism of
one level; JointExp by tables of FFT convolutions (Gillenwater, Joseph and
Kulesza, 2021, algorithm 1; for the inverse sensitivity Lalanne, 2023, section
6.1.6); the recursion over levels (Kaplan, Schnapp and Stemmer, 2022). All are
under replace-one, at the rates of `dpjax.stats.quantile_methods`, so that their
distributions are those of dpjax. Libraries are called as their users do it.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import fft

from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

LOWER, UPPER, EPSILON = 0.0, 1.0, 1.0
CANDIDATES = 1001
"""Number of grid points among which OpenDP chooses."""

MOST_RANGE = 1e12
"""Largest ratio of interval widths that FFTs can resolve."""

Sampler = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""(generator, records [n]) -> quantiles [m], increasing."""


def probs(num_levels: int) -> np.ndarray:
  """Returns levels [m] that divide the unit interval evenly."""
  return np.arange(1, num_levels + 1) / (num_levels + 1)


def data(size: int, repetitions: int = 1) -> np.ndarray:
  """Returns uniform records [repetitions, size], unsorted."""
  return np.random.default_rng(0).random((repetitions, size))


def make(spec: Spec) -> Program:
  """Returns a program of a release from unsorted records."""
  name, _ = methods.split(spec.method)
  release = {'published': published, 'published_tight': _tight,
             'diffprivlib': _diffprivlib, 'opendp': _opendp}[name](
                 spec.model, spec.size)
  rng, (records,) = np.random.default_rng(1), data(spec.size)

  def audit() -> dict[str, np.ndarray]:
    return {'draws': np.stack([np.ravel(release(rng, records))
                               for _ in range(methods.CHECKED_DRAWS)])}

  return Program(step=lambda: release(rng, records), info={}, audit=audit)


def published(model: str, size: int, *, tight: bool = False) -> Sampler:
  """Returns the published algorithm of a model for `size` records.

  Args:
    model: see `methods.QUANTILE_MODELS`.
    size: number n of records.
    tight: True to leave out the half of JointExp's tables that is zero, for
      which its authors' program computes sums and draws noise.
  """
  family, num_levels = methods.quantile_model(model)
  levels = probs(num_levels)
  if family in ('joint', 'inverse'):
    costs = (joint_costs if family == 'joint' else inverse_costs)(levels, size)
    return lambda rng, records: _joint(rng, records, costs, tight)
  if family == 'recursive':
    return lambda rng, records: _recursive(rng, records, levels)
  return lambda rng, records: _independent(rng, records, levels)


def _tight(model: str, size: int) -> Sampler:
  """Returns the algorithm without the zeros in its tables."""
  return published(model, size, tight=True)


def _edges(records: np.ndarray) -> np.ndarray:
  """Returns the bounds and the sorted records between them."""
  return np.concatenate([[LOWER], np.sort(np.clip(records, LOWER, UPPER)),
                         [UPPER]])


def log_widths(edges: np.ndarray) -> np.ndarray:
  """Returns logarithms of the widths of intervals, -inf between ties."""
  with np.errstate(divide='ignore'):
    return np.log(np.diff(edges))


def _point(rng: np.random.Generator, edges: np.ndarray, prob: float,
           rate: float) -> float:
  """Draws a quantile by the exponential mechanism with cost |rank - n p|."""
  ranks = np.arange(len(edges) - 1)
  logs = log_widths(edges) - rate * np.abs(ranks - prob * (len(edges) - 2))
  chosen = np.argmax(logs + rng.gumbel(size=len(logs)))
  return rng.uniform(edges[chosen], edges[chosen + 1])


def _independent(rng: np.random.Generator, records: np.ndarray,
                 levels: np.ndarray) -> np.ndarray:
  """Draws each quantile by itself, and sorts them."""
  edges = _edges(records)
  rate = EPSILON / (2 * len(levels))
  return np.sort([_point(rng, edges, prob, rate) for prob in levels])


def _recursive(rng: np.random.Generator, records: np.ndarray,
               levels: np.ndarray) -> np.ndarray:
  """Draws the middle quantile first, then those on either side of it."""
  rate = EPSILON / (2 * math.ceil(math.log2(len(levels) + 1)))

  def between(inner: np.ndarray, lower: float, upper: float,
              levels: np.ndarray) -> list[float]:
    if not levels.size:
      return []
    middle = len(levels) // 2
    prob = levels[middle]
    point = _point(rng, np.concatenate([[lower], inner, [upper]]), prob, rate)
    cut = np.searchsorted(inner, point)
    return [*between(inner[:cut], lower, point, levels[:middle] / prob), point,
            *between(inner[cut:], point, upper,
                     (levels[middle + 1:] - prob) / (1 - prob))]

  edges = _edges(records)
  return np.array(between(edges[1:-1], LOWER, UPPER, levels))


def joint_costs(levels: np.ndarray, size: int) -> np.ndarray:
  """Returns log phi_j(d) [m + 1, n + 1] of d records in bin j, for JointExp."""
  targets = size * np.diff(levels, prepend=0.0, append=1.0)
  return -EPSILON / 4 * np.abs(np.arange(size + 1) - targets[:, None])


def inverse_costs(levels: np.ndarray, size: int) -> np.ndarray:
  """Returns log phi_j(d) [m + 1, n + 1] for the inverse sensitivity.

  `joint_costs` has the same shape. The formula printed in Lalanne (2023,
  section 6.1.6) lacks a parenthesis, which is added here.

  It has the parenthesis that the printed formula lacks.
  """
  ranks = np.ceil(size * levels - 1e-9)
  excess = np.arange(size + 1) - np.diff(
      ranks, prepend=0.0, append=float(size))[:, None]
  inner = np.arange(len(excess))[:, None] < len(levels)
  return -EPSILON / 2 * (np.abs(excess) / 2 + ((excess >= 0) & inner))


def check_range(widths: np.ndarray) -> None:
  """Rejects logarithms of widths that FFTs would round away.

  Raises:
    ValueError: if the largest width exceeds `MOST_RANGE` times the least.
  """
  finite = widths[np.isfinite(widths)]
  decades = (finite.max() - finite.min()) / math.log(10)
  if decades > math.log10(MOST_RANGE):
    raise ValueError(f'widths of intervals span {decades:.1f} decades; FFTs '
                     f'resolve at most {math.log10(MOST_RANGE):g}')


def _joint(rng: np.random.Generator, records: np.ndarray,
           costs: np.ndarray, tight: bool) -> np.ndarray:
  """Draws all quantiles jointly."""
  edges = _edges(records)
  widths = log_widths(edges)
  check_range(widths)
  tables = joint_tables(widths, costs, tight=tight)
  chosen = joint_path(rng, tables, costs, tight=tight)
  return np.sort(rng.uniform(edges[chosen], edges[chosen + 1]))


def joint_tables(widths: np.ndarray, costs: np.ndarray, *,
                 tight: bool = False) -> np.ndarray:
  """Returns log alpha [m, n + 1, m], by one FFT convolution for each level.

  Entry (j, i, k) is the total weight of all choices of intervals for levels up
  to the j-th that end in interval i and have k earlier levels in it.
  """
  num_levels, size = len(costs) - 1, len(widths)
  tables = np.full((num_levels, size, num_levels), -np.inf)
  tables[0, :, 0] = costs[0] + widths
  for j in range(1, num_levels):
    before = tables[j - 1, :, :j]
    reached = _log_sums(before if tight else tables[j - 1])
    tables[j, :, 0] = widths + convolved(costs[j], reached)
    shared = costs[j, 0] + widths
    tables[j, :, 1:j + 1] = (before + shared[:, None]
                             - np.log(np.arange(2, j + 2)))
  return tables


def _log_sums(logs: np.ndarray) -> np.ndarray:
  """Returns log(sum(exp(logs))) over the last axis."""
  top = logs.max(-1)
  shift = np.where(np.isfinite(top), top, 0.0)
  with np.errstate(divide='ignore'):
    return shift + np.log(np.exp(logs - shift[:, None]).sum(-1))


def convolved(log_kernel: np.ndarray, logs: np.ndarray) -> np.ndarray:
  """Returns the log of sum_{d >= 1} kernel(d) value(i - d), by FFT.

  Errors have the size of rounding of the *largest* sum: an entry that is 1e-16
  of it is noise.
  """
  length = fft.next_fast_len(2 * len(logs) - 1, real=True)
  tops = log_kernel[1:].max(), logs.max()
  kernel = np.exp(log_kernel - tops[0])
  kernel[0] = 0.0  # Shared intervals are treated separately.
  product = (fft.rfft(kernel, length)
             * fft.rfft(np.exp(logs - tops[1]), length))
  sums = fft.irfft(product, length)[:len(logs)]
  sums[0] = 0.0
  with np.errstate(divide='ignore'):
    return np.log(np.maximum(sums, 0.0)) + sum(tops)


def joint_path(rng: np.random.Generator, tables: np.ndarray,
               costs: np.ndarray, *, tight: bool = False) -> np.ndarray:
  """Draws intervals [m], increasing, from the last one to the first."""
  num_levels, size, _ = tables.shape
  intervals = np.empty([num_levels], np.int64)
  left, last = num_levels, size - 1
  while left:
    # Levels that share the interval of the next level are drawn with it.
    num_earlier = last + 1 if left == num_levels else last
    logs = (tables[left - 1, :num_earlier, :left if tight else num_levels]
            + costs[left, last - np.arange(num_earlier)][:, None])
    chosen, others = divmod(int(np.argmax(
        logs + rng.gumbel(size=logs.shape))), logs.shape[1])
    intervals[left - others - 1:left] = chosen
    left, last = left - others - 1, chosen
  return intervals


def _diffprivlib(model: str, size: int) -> Sampler:
  """Returns the exponential mechanism of diffprivlib for each level."""
  del size
  from diffprivlib import tools
  levels = probs(methods.quantile_model(model)[1])
  state = np.random.RandomState(0)
  return lambda rng, records: np.sort(np.atleast_1d(tools.quantile(
      records, levels, epsilon=EPSILON, bounds=(LOWER, UPPER),
      random_state=state)))


def _opendp(model: str, size: int) -> Sampler:
  """Returns OpenDP's noisy maximum over candidates for one level; n is public.
  """
  import opendp.prelude as dp
  dp.enable_features('contrib')
  prob, = probs(methods.quantile_model(model)[1])
  space = (dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size),
           dp.symmetric_distance())
  measurement = lambda scale: dp.m.make_private_quantile(
      *space, dp.max_divergence(), np.linspace(
          LOWER, UPPER, CANDIDATES).tolist(), prob, scale)
  # Replacing a record is one removal and one addition.
  release = dp.binary_search_chain(measurement, d_in=2, d_out=EPSILON)
  return lambda rng, records: release(records)
