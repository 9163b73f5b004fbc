"""Tests costs of the joint mechanisms: kernels, bins, sensitivities."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from dpjax.stats.quantile_methods import columns
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import paths
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import wide
from tests.stats.quantile_methods import brute


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


@functools.partial(jax.jit, static_argnums=0)
def _compiled(make, *numbers):
  return make(*numbers)


def _bins(make, probs, size, rate):
  return _compiled(make, np.array(probs), np.int32(size), np.float64(rate))


@jax.jit
def _weights(bins, counts):
  index = jnp.broadcast_to(jnp.arange(counts.shape[-1]), counts.shape)
  return bins.log_factor(index, counts).sum(-1)


def _log_weights(bins, counts):
  """Returns log exp(-rate cost) [...] for bin counts [..., m + 1]."""
  return np.asarray(_weights(bins, counts.astype(np.int32)))


_PRODUCT = jax.jit(lambda before, bins: paths._product(before, bins, 0))
_TOTAL = jax.jit(paths.log_total)


@pytest.mark.every(2)
@pytest.mark.parametrize('make, prob, rate, expected', [
    (joint.joint_bins, .5, .5,
     (-np.inf, -.75, .544377, 1.322689, 1.833515, 2.202176)),
    (joint.inverse_bins, .4, 1.,
     (-np.inf, -.5, .458020, 1.021904, 1.413753, 1.709522))])
def test_golden_kernels(make, prob, rate, expected):
  """Kernels map weights 1 to 6 to the golden values (QF-07)."""
  layout = columns.shape(6)
  before = jax.tree.map(lambda x: columns.laid_out(x, layout),
                        wide.exp(jnp.log(jnp.arange(1.0, 7.0))))
  logs = np.asarray(wide.log(_PRODUCT(before, _bins(make, [prob], 5, rate))))
  np.testing.assert_allclose(logs.T.reshape(-1)[:6], expected, atol=6e-7)


def test_records_at_the_lower_bound_are_in_the_first_bin():
  """Records at the lower bound are in the first bin, unlike printed (QE-15)."""
  values, prob, rate = np.array([0., 0., 0., .6, .9]), .6, .8
  points, widths = np.array([.3, .75, .95]), np.array([.6, .3, .1])
  above = np.sum(values > points[:, None], 1)

  def log_total(least):
    first = np.sum((values >= least) & (values <= points[:, None]), 1)
    cost = np.abs(5 * prob - first) + np.abs(5 * (1 - prob) - above)
    return special.logsumexp(np.log(widths) - rate * cost)

  actual = float(_TOTAL(records.padded(values, 0, 1),
                        _bins(joint.joint_bins, [prob], 5, rate)))
  assert actual == pytest.approx(log_total(0), abs=1e-12)
  assert abs(actual - log_total(1e-9)) > .5


@pytest.mark.every(2)
@pytest.mark.parametrize('size', [4, 5])
def test_one_order_is_the_exponential_mechanism_of_the_real_rank(size):
  """One level is the exponential mechanism of the real rank (QE-16)."""
  data = records.padded((np.arange(size) + .3)**2 / size**2, 0, 1)
  public = dict(epsilon=1.7, adjacency=brute.REPLACE)
  bins = _bins(joint.joint_bins, [.5], size, rates.joint((.5,), **public))
  places = np.arange(size + 1)
  logs = (np.asarray(records.log_widths(data))[:size + 1]
          + _log_weights(bins, np.stack([places, size - places], -1)))
  total = special.logsumexp(logs)
  assert float(_TOTAL(data, bins)) == pytest.approx(total, abs=1e-12)
  off = {}
  for cost in ('real', 'rounded'):
    one = np.asarray(independent.log_masses(
        data, np.float64(.5), np.float64(rates.single(.5, **public)),
        cost))[:size + 1]
    off[cost] = np.max(np.abs(one - special.logsumexp(one) - logs + total))
  assert off['real'] < 1e-12
  assert (off['rounded'] < 1e-12) == (size == 4)


@pytest.mark.every(3)
@pytest.mark.parametrize('num_orders', [1, 2, 3])
def test_both_utilities_are_near_each_other(num_orders):
  """Both utilities are within (3 m + 1) / 2, less than
  remark 6.1.6's 2 (m + 1)."""
  rng, worst = np.random.default_rng(num_orders), 0.0
  for size in (3, 5, 7):
    probs = (np.arange(num_orders) + rng.random()) / num_orders
    blocks = np.pad(brute.tuples(size, num_orders), ((0, 0), (1, 0)))
    counts = np.diff(blocks, append=size)
    gaps = np.abs(
        _log_weights(_bins(joint.joint_bins, probs, size, .5), counts)
        - _log_weights(_bins(joint.inverse_bins, probs, size, 1.), counts))
    worst = max(worst, gaps.max())
  assert num_orders / 2 < worst <= (3 * num_orders + 1) / 2


@pytest.mark.parametrize('probs', [(.5,), (.2, .7), (.25, .5, .75)])
def test_what_a_record_moves_the_cost_by(probs):
  """A record moves the cost by 2, or by 2 less twice the
  smallest gap (QT-06)."""
  gaps = np.diff(probs, prepend=0, append=1)
  counts = np.array(list(itertools.product(range(5), repeat=gaps.size)))
  cost = lambda of: np.abs(of.sum(-1, keepdims=True) * gaps - of).sum(-1)
  more = np.eye(gaps.size, dtype=int)
  cost_change = lambda of, change: np.max(np.abs(cost(of + change) - cost(of)))
  added = max(cost_change(counts, one) for one in more)
  replaced = max(cost_change(counts[counts[:, j] > 0], more[i] - more[j])
                 for i in range(gaps.size) for j in range(gaps.size))
  assert added / 2 == pytest.approx(1 - gaps.min())
  assert replaced / 2 == pytest.approx(1)
  for adjacency, most in ((brute.ADD, added), (brute.REPLACE, replaced)):
    assert rates.joint(probs, epsilon=1., adjacency=adjacency) == (
        pytest.approx(1 / (2 * most)))
