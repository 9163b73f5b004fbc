"""These tests compare noise magnitudes with goldens and real draws."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from experiments.methods.statistics import noise_magnitudes as utility

SIZES = (1, 2, 10, 100)


def test_golden_laplace_utility():
  """Laplace bounds have golden values at k = 10, g = 0.05 (MECH-01, T-E10)."""
  bound = utility.laplace_sup_bound(1., 10, failure_prob=.05)
  assert bound == pytest.approx(5.2983, abs=5e-5)
  assert 1 - stats.expon.cdf(bound)**10 == pytest.approx(.04889, abs=5e-6)
  assert stats.gamma(10).sf(bound) == pytest.approx(.956, abs=5e-4)
  assert stats.gamma(2).sf(
    utility.laplace_sup_bound(1., 2, failure_prob=.5)) == pytest.approx(
      .597, abs=5e-4)
  assert utility.laplace_l1_quantile(1., 10, failure_prob=.05) == (
    pytest.approx(15.7052, abs=5e-5))


def test_golden_gaussian_utility():
  """Gaussian bounds have golden values; print lost a root of 2 (L-E10).

  This covers MECH-03 and MECH-04.
  """
  for size, printed in ((1, .0835), (10, .194)):
    level = math.sqrt(math.log(size / .05))
    assert 1 - stats.chi(1).cdf(level)**size == pytest.approx(printed, abs=5e-4)
    right = utility.gaussian_sup_bound(1., size, failure_prob=.05)
    assert 1 - stats.chi(1).cdf(right)**size < .05
  bound = utility.gaussian_l2_bound(1., 10, failure_prob=.05)
  assert stats.chi(10).sf(bound) == pytest.approx(.00266, abs=5e-6)
  for size, mean in ((1, .7979), (10, 3.0843), (100, 9.9750)):
    assert utility.gaussian_mean_norm(1., size) == pytest.approx(mean, abs=5e-5)


@pytest.mark.parametrize('failure', [.5, .05, 1e-6])
@pytest.mark.parametrize('size', SIZES)
def test_quantiles_are_exact_and_below_the_bounds(size, failure):
  q = lambda name: getattr(utility, name)(2., size, failure_prob=failure)
  log_in_all = math.log1p(-failure)
  laplace, gauss = q('laplace_sup_quantile'), q('gaussian_sup_quantile')
  assert size * math.log(-math.expm1(-laplace / 2)) == pytest.approx(
    log_in_all, rel=1e-9)
  assert size * math.log1p(-2 * special.ndtr(-gauss / 2)) == pytest.approx(
    log_in_all, rel=1e-9)
  assert stats.gamma(size).sf(q('laplace_l1_quantile') / 2) == pytest.approx(
    failure)
  assert stats.chi(size).sf(q('gaussian_l2_quantile') / 2) == pytest.approx(
    failure)
  assert laplace <= q('laplace_sup_bound') * (1 + 1e-12)
  assert gauss <= q('gaussian_sup_bound')
  assert q('gaussian_l2_quantile') <= q('gaussian_l2_bound')
  # These bounds take the tail of one coordinate times their number.
  assert size * math.exp(-(q('gaussian_sup_bound') / 2)**2 / 2) == (
    pytest.approx(failure))
  assert size * math.exp(-q('laplace_sup_bound') / 2) == pytest.approx(failure)


def test_quantiles_of_draws():
  """Quantiles of noise match 20,000 draws within four standard errors."""
  rng = np.random.default_rng(0)
  noise = {'laplace': np.abs(rng.laplace(size=(20_000, 3))),
           'gaussian': np.abs(rng.normal(size=(20_000, 3)))}
  norms = {'sup': lambda v: v.max(1), 'l1': lambda v: v.sum(1),
           'l2': lambda v: np.sqrt((v * v).sum(1))}
  for name in ('laplace_sup', 'laplace_l1', 'gaussian_sup', 'gaussian_l2'):
    distribution, norm = name.split('_')
    level = getattr(utility, f'{name}_quantile')(1., 3, failure_prob=.1)
    share = np.mean(norms[norm](noise[distribution]) > level)
    assert abs(share - .1) < 4 * math.sqrt(.09 / 20_000), name


@pytest.mark.parametrize('call, message', [
  (lambda: utility.laplace_sup_bound(1., 0, failure_prob=.1), 'size must be'),
  (lambda: utility.gaussian_l2_quantile(1., 2, failure_prob=1.),
   'failure_prob must lie'),
  (lambda: utility.gaussian_mean_norm(1., 0), 'size must be')])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=message):
    call()
