"""Peers of the mechanisms of quantiles, in NumPy, and two libraries.

The published algorithms, written from their descriptions: exponential
mechanisms of one order; JointExp by tables of FFT convolutions (Gillenwater,
Joseph, Kulesza 2021, Algorithm 1; Lalanne (2023), section 6.1.6, for the
inverse sensitivity); the recursion over orders (Kaplan, Schnapp, Stemmer 2022).
All under replace-one, at the rates of `dpjax.stats.quantile_methods`, so that
their distributions are those of dpjax. Each library is called as its users call
it.
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
"""Of OpenDP, which chooses among points of a grid."""

MOST_RANGE = 1e12
"""Of widths of intervals, the largest over the least, that FFTs can tell."""

Sampler = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""(generator, records [n]) -> quantiles [m], increasing."""


def probs(num_orders: int) -> np.ndarray:
  """Orders [m] that part the unit interval evenly."""
  return np.arange(1, num_orders + 1) / (num_orders + 1)


def data(size: int, repetitions: int = 1) -> np.ndarray:
  """Records [repetitions, size], uniform, in no order."""
  return np.random.default_rng(0).random((repetitions, size))


def make(spec: Spec) -> Program:
  """A release of one kind, from records that are not sorted yet."""
  name, _ = methods.split(spec.method)
  release = {'published': published, 'published_tight': _tight,
             'diffprivlib': _diffprivlib, 'opendp': _opendp}[name](
                 spec.model, spec.size)
  rng, (records,) = np.random.default_rng(1), data(spec.size)

  def audit():
    return {'draws': np.stack([np.ravel(release(rng, records))
                               for _ in range(methods.CHECKED_DRAWS)])}

  return Program(step=lambda: release(rng, records), info={}, audit=audit)


def published(model: str, size: int, *, tight: bool = False) -> Sampler:
  """The published algorithm of a model, for data sets of `size` records.

  Args:
    model: see `methods.QUANTILE_MODELS`.
    size: n.
    tight: JointExp leaves out the half of its tables that is zero, which its
      authors' program adds up and draws noise for.
  """
  family, num_orders = methods.quantile_model(model)
  orders = probs(num_orders)
  if family in ('joint', 'inverse'):
    costs = (joint_costs if family == 'joint' else inverse_costs)(orders, size)
    return lambda rng, records: _joint(rng, records, costs, tight)
  if family == 'recursive':
    return lambda rng, records: _recursive(rng, records, orders)
  return lambda rng, records: _independent(rng, records, orders)


def _tight(model: str, size: int) -> Sampler:
  return published(model, size, tight=True)


def _edges(records: np.ndarray) -> np.ndarray:
  """The bounds and the sorted records between them."""
  return np.concatenate([[LOWER], np.sort(np.clip(records, LOWER, UPPER)),
                         [UPPER]])


def log_widths(edges: np.ndarray) -> np.ndarray:
  """Logarithms of the widths of intervals, -inf between ties."""
  with np.errstate(divide='ignore'):
    return np.log(np.diff(edges))


def _point(rng: np.random.Generator, edges: np.ndarray, prob: float,
           rate: float) -> float:
  """The exponential mechanism: cost |rank - n p|, noise of Gumbel."""
  ranks = np.arange(len(edges) - 1)
  logs = log_widths(edges) - rate * np.abs(ranks - prob * (len(edges) - 2))
  chosen = np.argmax(logs + rng.gumbel(size=len(logs)))
  return rng.uniform(edges[chosen], edges[chosen + 1])


def _independent(rng: np.random.Generator, records: np.ndarray,
                 orders: np.ndarray) -> np.ndarray:
  edges = _edges(records)
  rate = EPSILON / (2 * len(orders))
  return np.sort([_point(rng, edges, prob, rate) for prob in orders])


def _recursive(rng: np.random.Generator, records: np.ndarray,
               orders: np.ndarray) -> np.ndarray:
  """The middle order first, then either side of its answer by itself."""
  rate = EPSILON / (2 * math.ceil(math.log2(len(orders) + 1)))

  def between(inner: np.ndarray, lower: float, upper: float,
              orders: np.ndarray) -> list[float]:
    if not orders.size:
      return []
    middle = len(orders) // 2
    prob = orders[middle]
    found = _point(rng, np.concatenate([[lower], inner, [upper]]), prob, rate)
    cut = np.searchsorted(inner, found)
    return [*between(inner[:cut], lower, found, orders[:middle] / prob), found,
            *between(inner[cut:], found, upper,
                     (orders[middle + 1:] - prob) / (1 - prob))]

  edges = _edges(records)
  return np.array(between(edges[1:-1], LOWER, UPPER, orders))


def joint_costs(orders: np.ndarray, size: int) -> np.ndarray:
  """Logarithms [m + 1, n + 1] of phi_j of d records in bin j: JointExp."""
  targets = size * np.diff(orders, prepend=0.0, append=1.0)
  return -EPSILON / 4 * np.abs(np.arange(size + 1) - targets[:, None])


def inverse_costs(orders: np.ndarray, size: int) -> np.ndarray:
  """The same of the inverse sensitivity, with the parenthesis it needs."""
  ranks = np.ceil(size * orders - 1e-9)
  excess = np.arange(size + 1) - np.diff(
      ranks, prepend=0.0, append=float(size))[:, None]
  inner = np.arange(len(excess))[:, None] < len(orders)
  return -EPSILON / 2 * (np.abs(excess) / 2 + ((excess >= 0) & inner))


def check_range(widths: np.ndarray) -> None:
  """Refuses logarithms of widths that FFTs would round away.

  Raises:
    ValueError: the largest is over `MOST_RANGE` times the least.
  """
  known = widths[np.isfinite(widths)]
  decades = (known.max() - known.min()) / math.log(10)
  if decades > math.log10(MOST_RANGE):
    raise ValueError(f'widths of intervals span {decades:.1f} decades, and FFTs'
                     f' tell {math.log10(MOST_RANGE):g} apart at most')


def _joint(rng: np.random.Generator, records: np.ndarray,
           costs: np.ndarray, tight: bool) -> np.ndarray:
  edges = _edges(records)
  widths = log_widths(edges)
  check_range(widths)
  tables = joint_tables(widths, costs, tight=tight)
  chosen = joint_path(rng, tables, costs, tight=tight)
  return np.sort(rng.uniform(edges[chosen], edges[chosen + 1]))


def joint_tables(widths: np.ndarray, costs: np.ndarray, *,
                 tight: bool = False) -> np.ndarray:
  """log alpha [m, n + 1, m], by one FFT convolution for each order.

  At (j, i, k): the weight of all ways in which orders up to the j-th reach
  interval i, in which k orders before the j-th lie as well.
  """
  num_orders, size = len(costs) - 1, len(widths)
  tables = np.full((num_orders, size, num_orders), -np.inf)
  tables[0, :, 0] = costs[0] + widths
  for j in range(1, num_orders):
    before = tables[j - 1, :, :j]
    reached = _log_sums(before if tight else tables[j - 1])
    tables[j, :, 0] = widths + convolved(costs[j], reached)
    shared = costs[j, 0] + widths
    tables[j, :, 1:j + 1] = (before + shared[:, None]
                             - np.log(np.arange(2, j + 2)))
  return tables


def _log_sums(logs: np.ndarray) -> np.ndarray:
  """log(sum(exp(logs))) over the last axis."""
  top = logs.max(-1)
  shift = np.where(np.isfinite(top), top, 0.0)
  with np.errstate(divide='ignore'):
    return shift + np.log(np.exp(logs - shift[:, None]).sum(-1))


def convolved(log_kernel: np.ndarray, logs: np.ndarray) -> np.ndarray:
  """log of the sum over d >= 1 of kernel(d) value(i - d), by FFT.

  Errors are of the size of rounding of the *largest* sum: where the true one is
  1e-16 of it, what is returned is noise.
  """
  length = fft.next_fast_len(2 * len(logs) - 1, real=True)
  tops = log_kernel[1:].max(), logs.max()
  kernel = np.exp(log_kernel - tops[0])
  kernel[0] = 0.0  # sharing an interval is counted apart
  product = (fft.rfft(kernel, length)
             * fft.rfft(np.exp(logs - tops[1]), length))
  sums = fft.irfft(product, length)[:len(logs)]
  sums[0] = 0.0
  with np.errstate(divide='ignore'):
    return np.log(np.maximum(sums, 0.0)) + sum(tops)


def joint_path(rng: np.random.Generator, tables: np.ndarray,
               costs: np.ndarray, *, tight: bool = False) -> np.ndarray:
  """Intervals [m], increasing: the last first, with those that share it."""
  num_orders, size, _ = tables.shape
  found = np.empty([num_orders], np.int64)
  left, last = num_orders, size - 1
  while left:
    # Whoever shares the interval of the order after is drawn with it.
    reach = last + 1 if left == num_orders else last
    logs = (tables[left - 1, :reach, :left if tight else num_orders]
            + costs[left, last - np.arange(reach)][:, None])
    chosen, others = divmod(int(np.argmax(
        logs + rng.gumbel(size=logs.shape))), logs.shape[1])
    found[left - others - 1:left] = chosen
    left, last = left - others - 1, chosen
  return found


def _diffprivlib(model: str, size: int) -> Sampler:
  """The exponential mechanism for each order, by IBM's library."""
  del size
  from diffprivlib import tools
  orders = probs(methods.quantile_model(model)[1])
  state = np.random.RandomState(0)
  return lambda rng, records: np.sort(np.atleast_1d(tools.quantile(
      records, orders, epsilon=EPSILON, bounds=(LOWER, UPPER),
      random_state=state)))


def _opendp(model: str, size: int) -> Sampler:
  """Noisy maximum over candidates, for one order; n is public."""
  import opendp.prelude as dp
  dp.enable_features('contrib')
  prob, = probs(methods.quantile_model(model)[1])
  space = (dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size),
           dp.symmetric_distance())
  made = lambda scale: dp.m.make_private_quantile(
      *space, dp.max_divergence(), np.linspace(
          LOWER, UPPER, CANDIDATES).tolist(), prob, scale)
  # A replaced record is one taken away and one more.
  release = dp.binary_search_chain(made, d_in=2, d_out=EPSILON)
  return lambda rng, records: release(records)
