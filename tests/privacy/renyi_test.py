"""Tests dpjax.privacy.renyi: quadrature, golden numbers, exact pairs."""

import math

from dp_accounting import dp_event as dp_events
from dp_accounting import rdp
import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.theory import printed_guarantees

ADD = Adjacency.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize('rare', [1e-4, 1e-20, 1e-100])
def test_one_order_gives_no_concentrated_privacy(rare):
  """RDP at order 2 bounds no rho (Lalanne 2023, section 2.2.2).

  The pair has an outcome of probability sqrt(rare) under P and `rare` under Q.
  """
  p, q = (np.array([1 - x, x]) for x in (math.sqrt(rare), rare))
  assert divergences.renyi(p, q, order=2.0) <= math.log(2)
  # rho-zCDP would need rho >= D_6 / 6.
  assert divergences.renyi(p, q, order=6.0) / 6 > 0.06 * math.log(1 / rare)


@pytest.mark.parametrize('z', [.7, 1., 3.])
@pytest.mark.parametrize('order', [1.5, 2., 10.])
def test_gaussian_is_exact(z, order):
  """The Gaussian divergence equals the integral of E_Q[(P/Q)^a] (DP-05)."""
  def integrand(x):
    return math.exp(order * stats.norm.logpdf(x, 1, z) +
                    (1 - order) * stats.norm.logpdf(x, 0, z))

  # The integrand is a bell around `order`.
  value = integrate.quad(integrand, order - 12 * z, order + 12 * z,
                         points=[order])[0]
  got = renyi_steps.gaussian(noise_multiplier=z, order=order)
  assert got.divergence == pytest.approx(math.log(value) / (order - 1),
                                         rel=1e-7)


def test_composition_adds():
  """Renyi costs add: T Gaussians are one with z / sqrt(T) (item DP-06)."""
  many = renyi_steps.compose([renyi_steps.gaussian(noise_multiplier=3., order=4.)] * 9)
  one = renyi_steps.gaussian(noise_multiplier=1., order=4.)
  assert many.divergence == pytest.approx(one.divergence) and many.order == 4.
  # It is exact for products of finite pairs.
  rng = np.random.default_rng(0)
  pairs = [(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3)))
           for _ in range(3)]
  product = [np.einsum('i,j,k', *side).ravel() for side in zip(*pairs)]
  parts = [renyi.RenyiDP(order=2.5, divergence=divergences.renyi(
      p, q, order=2.5)) for p, q in pairs]
  assert renyi_steps.compose(parts).divergence == pytest.approx(
      divergences.renyi(*product, order=2.5))


@pytest.mark.parametrize('order', [4., 9.])
def test_groups_of_records(order):
  """Group costs cover chains of three distributions and Gaussians (ALG-06)."""
  rng = np.random.default_rng(3)
  for _ in range(100):
    first, middle, last = rng.dirichlet(np.ones(3) * .8, 3)
    most = max(divergences.renyi(*pair, order=order) for pair in (
        (first, middle), (middle, first), (middle, last), (last, middle)))
    claim = renyi_steps.group(renyi.RenyiDP(order=order, divergence=most),
                        doublings=1)
    assert claim.order == order / 2
    assert divergences.renyi(first, last, order=claim.order) <= (
        claim.divergence)
  for doublings in (0, 1):
    one = renyi_steps.gaussian(noise_multiplier=3., order=order)
    claim = renyi_steps.group(one, doublings=doublings)
    exact = renyi_steps.gaussian(noise_multiplier=3. / 2**doublings,
                           order=claim.order)
    assert claim.divergence == pytest.approx(
        1.5**doublings * exact.divergence)


# (noise multiplier, sampling probability) -> order -> divergence.
SAMPLED = {
  (1., .01): {2: 1.7181e-4, 4: 3.6315e-4, 8: 8.9364e-4, 16: 3.08785},
  (.8, .05): {2: 9.38268e-3, 4: 5.399092e-2},
  (2., .1): {2: 2.83623e-3, 16: 4.529184e-2},
}


def sampled(q, sigma, order):
  return renyi_steps.sampled_gaussian(noise_multiplier=sigma, sampling_prob=q,
                                order=order)


@pytest.mark.parametrize('sigma, q', SAMPLED)
def test_a_sampled_gaussian_is_the_integral_and_the_librarys(sigma, q):
  """Sampled Gaussians match the integral and dp_accounting (item OPT-03)."""
  x, step = np.linspace(-40, 60, 400_001, retstep=True)
  few = stats.norm.pdf(x, 0, sigma)
  many = (1 - q) * few + q * stats.norm.pdf(x, 1, sigma)
  orders = list(SAMPLED[sigma, q])
  ledger = rdp.RdpAccountant(orders)
  ledger.compose(dp_events.PoissonSampledDpEvent(
      q, dp_events.GaussianDpEvent(sigma)))
  for order, library in zip(orders, ledger.rdp, strict=True):
    got = sampled(q, sigma, order).divergence
    assert got == pytest.approx(SAMPLED[sigma, q][order], rel=5e-5)
    assert got == pytest.approx(library, rel=1e-7)
    with np.errstate(invalid='ignore', divide='ignore'):
      moments = [np.nansum(q_ * (p_ / q_)**order) * step
                 for p_, q_ in ((many, few), (few, many))]
    removed, added = np.log(moments) / (order - 1)
    assert got == pytest.approx(removed, rel=1e-6)
    assert added < removed
  assert sampled(q, sigma, 2).divergence == pytest.approx(
      math.log1p(q**2 * math.expm1(1 / sigma**2)), rel=1e-9)


def test_a_sample_of_everything_is_the_plain_gaussian():
  assert sampled(1., 3., 7) == renyi_steps.gaussian(noise_multiplier=3., order=7)
  near = sampled(1 - 1e-12, 3., 7).divergence
  assert near == pytest.approx(7 / 18, rel=1e-9)


@pytest.mark.every(2)
def test_golden_conversions():
  """Conversions give 2.53798 printed, 2.10137 improved,
  1.82824 by PLD (DP-07)."""
  runs = [renyi_steps.compose([sampled(.01, 1., order)] * 1000)
          for order in range(2, 25)]
  best = lambda convert: min(convert(run, delta=1e-5).epsilon for run in runs)
  # Only whole orders are used; the printed minimum includes fractions.
  assert best(printed_guarantees.approx_from_renyi_printed) == pytest.approx(2.53798,
                                                                rel=5e-3)
  assert best(renyi_steps.approx_from_renyi) == pytest.approx(2.10137, rel=5e-3)
  assert best(printed_guarantees.approx_from_renyi_printed) >= 2.53798 - 1e-5
  assert best(renyi_steps.approx_from_renyi) >= 2.10137 - 1e-5
  event = accounting.poisson_gaussian_event(
      sampling_prob=.01, noise_multiplier=1., num_steps=1000)
  spent = lambda by: accounting.epsilon(event, delta=1e-5, adjacency=ADD,
                                        accountant=by)
  assert spent('rdp') == pytest.approx(2.10137, abs=2e-5)
  assert spent('pld') == pytest.approx(1.82824, abs=2e-5)


@pytest.mark.parametrize('order', [1.2, 2., 8.])
@pytest.mark.parametrize('delta', [1e-6, 1e-2, .3])
def test_conversions_hold_and_the_improved_is_tighter(order, delta):
  """Conversions cover exact divergences, and the improved one is tighter."""
  rng = np.random.default_rng(1)
  for _ in range(100):
    p, q = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))
    guarantee = renyi.RenyiDP(
        order=order, divergence=divergences.renyi(p, q, order=order))
    improved = renyi_steps.approx_from_renyi(guarantee, delta=delta)
    printed = printed_guarantees.approx_from_renyi_printed(guarantee, delta=delta)
    for claim in (improved, printed):
      assert divergences.hockey_stick(
          p, q, epsilon=claim.epsilon) <= delta + 1e-12
    assert improved.epsilon <= printed.epsilon


def test_the_improved_conversion_is_attained():
  """For some pairs (p, q) the converted epsilon is within
  1 % of the exact one."""
  order, delta = 3., 1e-2
  worst = 0.
  for epsilon in np.linspace(.5, 4., 60):
    # The losses are `epsilon` + ln(a / (a - 1)) with some mass, else near 0.
    loss = epsilon + math.log(order / (order - 1))
    mass = delta * order
    q = np.array([mass * math.exp(-loss), 1 - mass * math.exp(-loss)])
    p = np.array([mass, 1 - mass])
    exact = divergences.hockey_stick(p, q, epsilon=epsilon)
    assert exact == pytest.approx(delta)
    guarantee = renyi.RenyiDP(
        order=order, divergence=divergences.renyi(p, q, order=order))
    claim = renyi_steps.approx_from_renyi(guarantee, delta=delta).epsilon
    assert claim >= epsilon - 1e-12
    worst = max(worst, epsilon / claim)
  assert worst > .99


@pytest.mark.parametrize('call, message', [
  (lambda: renyi.RenyiDP(order=1., divergence=1.), 'order must be a number > 1'),
  (lambda: renyi.RenyiDP(order=2., divergence=-1.), 'divergence must be a num'),
  (lambda: renyi_steps.gaussian(noise_multiplier=0., order=2.), 'noise_multiplier m'),
  (lambda: sampled(.1, 1., 1), 'order must be an integer >= 2'),
  (lambda: sampled(0., 1., 2), 'sampling_prob must lie in'),
  (lambda: renyi_steps.compose([]), r'composing needs .* of one order, got \[\]'),
  (lambda: renyi_steps.compose([renyi_steps.gaussian(noise_multiplier=1., order=o)
                          for o in (2., 3.)]), r'composing .* \[2.0, 3.0\]'),
  (lambda: renyi_steps.group(renyi_steps.gaussian(noise_multiplier=1., order=3.),
                       doublings=1), 'groups of 2 need an order of at least'),
  (lambda: renyi_steps.approx_from_renyi(
      renyi_steps.gaussian(noise_multiplier=1., order=2.), delta=0.),
   'delta must lie strictly between 0 and 1'),
  (lambda: printed_guarantees.approx_from_renyi_printed(
      renyi_steps.gaussian(noise_multiplier=1., order=2.), delta=1.),
   'delta must lie strictly between 0 and 1'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call()
