"""These tests compare bounds of many hypotheses with the best private tests."""

import math

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.notions import zcdp_from_pure
from dpjax.theory.minimax import hypotheses
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import packing_bounds
from experiments.methods.theory import printed_bounds as printed
from experiments.methods.theory import testing

_SOLVED = 1e-7


def _mixtures(many, weight):
  """Returns mixtures [K, K + 1] that are as far apart as such can be."""
  return np.hstack([np.full((many, 1), 1 - weight), weight * np.eye(many)])


# G-14 lists V, n, g, epsilon, then programme, LB-14, LB-10 and LB-8.
GOLDEN = [(2, 4, .5, .5, .3081, .0752, .1345, .2082),
          (3, 5, .4, 1., .2899, .0762, .1065, .1552),
          (4, 4, .5, .7, .4434, .1710, .2126, .2352),
          (5, 3, .5, .5, .6478, .5354, .2977, .4146)]


@pytest.mark.parametrize('many, n, weight, epsilon, least, lemma, packing, '
                         'anchor', GOLDEN)
def test_mixtures_are_the_golden_ones(many, n, weight, epsilon, least, lemma,
                                      packing, anchor):
  known = dict(num_examples=n, guarantee=PureDP(epsilon=epsilon))
  best = oracles.testing_error(_mixtures(many, weight), **known).value
  assert best == pytest.approx(least, abs=6e-5)
  for function, value in ((packing_bounds.packing_lemma, lemma),
                          (packing_bounds.packing, packing),
                          (packing_bounds.mixture_anchor, anchor)):
    assert function(math.log(many), weight, **known) == pytest.approx(
        value, abs=6e-5)
  # The new bound is exact here.
  assert packing_bounds.mixture(math.log(many), weight, **known) == pytest.approx(
      best, abs=1e-6)


def _cases(count):
  generator = np.random.default_rng(2)
  for place in range(count):
    many = int(generator.integers(2, 6))
    n = int(generator.integers(1, {2: 7, 3: 6, 4: 5, 5: 4}[many]))
    weight = float(generator.choice([1.0, generator.uniform(0.05, 1)]))
    epsilon = float(generator.choice([0.05, 0.2, 0.7, 1.5, 3.0]))
    delta = float(generator.choice([1e-3, 0.02, 0.1]))
    yield many, n, weight, (
        PureDP(epsilon=epsilon), ApproxDP(epsilon=epsilon, delta=delta),
        TotalVariationPrivacy(level=delta))[place % 3]


@pytest.mark.every(2)
def test_mixtures_are_as_hard_as_the_bound_says():
  """The mixture bound equals the programme unless delta is large.

  It never exceeds the programme.
  """
  for many, n, weight, guarantee in _cases(24):
    known, size = dict(num_examples=n, guarantee=guarantee), math.log(many)
    best = oracles.testing_error(_mixtures(many, weight), **known).value
    error = packing_bounds.mixture(size, weight, **known)
    assert error <= best + _SOLVED
    assert error >= best - (0.01 if getattr(guarantee, 'delta', 0) > 0.02 else
                            1e-6)
    apart = weight * (1 - np.eye(many))
    weaker = [packing_bounds.pairs(apart, **known),
              packing_bounds.around(size, weight, **known)]
    if not isinstance(guarantee, TotalVariationPrivacy):
      weaker += [packing_bounds.packing_lemma(size, weight, **known),
                 packing_bounds.packing(size, weight, **known),
                 packing_bounds.pairwise(apart, **known)]
    if isinstance(guarantee, PureDP):
      weaker += [packing_bounds.mixture_anchor(size, weight, **known),
                 hypotheses.packing_lemma_around(size, weight, **known),
                 packing_bounds.fano(apart, **known)]
    assert max(weaker) <= error + 1e-9
    bound = packing_bounds.best_packing_error(
        **known, log_hypotheses=size, weight=weight, around_variation=weight,
        variations=apart)
    assert bound.value == pytest.approx(error)
    assert bound.name in ('mixture', 'pairs')


def test_no_private_test_of_any_laws_errs_less():
  """No private test of random distributions beats the bounds."""
  generator = np.random.default_rng(5)
  sharper = 0
  for place in range(24):
    many, n = int(generator.integers(2, 5)), int(generator.integers(1, 5))
    probs = generator.dirichlet(np.full(3, 0.5), many)
    epsilon = float(generator.choice([0.1, 0.5, 1.5]))
    guarantee = (PureDP(epsilon=epsilon) if place % 2 else
                 ApproxDP(epsilon=epsilon, delta=0.02))
    known = dict(num_examples=n, guarantee=guarantee)
    best = oracles.testing_error(probs, **known).value
    t = testing.variations(probs, np.ones(3))
    base = probs.mean(0)
    around = np.max(np.abs(probs - base).sum(1)) / 2
    errors = [packing_bounds.pairs(t, **known),
              packing_bounds.pairwise(t, **known),
              packing_bounds.around(math.log(many), around, **known)]
    if place % 2:
      errors += [packing_bounds.fano(t, **known),
                 hypotheses.packing_lemma_around(math.log(many), around,
                                                 **known)
                 ]
      as_printed = testing.fano_pure(t, num_records=n, epsilon=epsilon)
      assert as_printed <= packing_bounds.fano(t, **known) + 1e-12
    assert max(errors) <= best + _SOLVED
    assert errors[1] <= errors[0]
    # The joint forms use total variations of all records.
    states = oracles.histograms(n, 3)
    masses = np.stack([oracles.multinomial(states, row) for row in probs])
    whole = np.minimum(testing.variations(masses, np.ones(len(states))), 1)
    for function in (packing_bounds.pairs, packing_bounds.pairwise):
      assert function(whole, **known, joint=True) <= best + _SOLVED
    best_bound = packing_bounds.best_packing_error(
        **known, log_hypotheses=math.log(many), variations=t,
        around_variation=around)
    assert best_bound.value == pytest.approx(max(0, *errors))
    sharper += best_bound.value > 1.2 * max(errors[1], 1e-3)
  assert sharper > 8


def test_bounds_of_two_laws_are_in_order():
  """Bounds keep the order LB-12 >= LB-3b >= LB-3 and LB-13 >= LB-4.

  None exceeds the error of guessing.
  """
  generator = np.random.default_rng(8)
  for _ in range(40):
    n, t = int(generator.integers(1, 200)), float(generator.uniform(0, 1))
    epsilon, rho = np.exp(generator.uniform(-9, 1.5, 2))
    delta = float(generator.choice([0.0, 1e-4, 0.03]))
    d = np.arange(n + 1)
    half = np.ceil(d / 2)
    midpoint = stats.binom.pmf(d, n, t) @ np.maximum(0, np.exp(
        -epsilon * half) / 2 - math.exp(-epsilon) * delta * half)
    path = two_points.product_error(t, num_examples=n, guarantee=ApproxDP(
        epsilon=epsilon, delta=delta))
    le_cam = testing.le_cam_pure(t, num_records=n, epsilon=epsilon, delta=delta)
    assert le_cam - 1e-12 <= midpoint <= path + 1e-12 <= 0.5 + 2e-12
    concentrated = two_points.product_error(t, num_examples=n,
                                            guarantee=ZCDP(rho=rho))
    assert testing.le_cam_zcdp(t, num_records=n, rho=rho) <= (
        concentrated + 1e-12) <= 0.5 + 2e-12


def test_pairs_of_two_laws_are_two_points():
  t = np.array([[0, 0.3], [0.3, 0]])
  for guarantee in (PureDP(epsilon=0.4), ApproxDP(epsilon=0.4, delta=1e-3),
                    ZCDP(rho=0.02), TotalVariationPrivacy(level=0.05),
                    KullbackLeiblerPrivacy(level=0.01)):
    known = dict(num_examples=20, guarantee=guarantee)
    wanted = two_points.product_error(0.3, **known)
    assert packing_bounds.pairs(t, **known) >= wanted - 1e-12
    error = packing_bounds.mixture(math.log(2), 0.3, **known)
    if isinstance(guarantee, ZCDP):
      # A data set between the two is one more anchor.
      assert wanted - 1e-12 <= error < 1.01 * wanted
    else:
      assert error == pytest.approx(float(wanted), abs=1e-9)


def test_packings_of_any_size_stay_below_one_half():
  for size in (math.log(2), 30.0, 5000.0):
    for epsilon in (1e-3, 0.5, 40.0):
      error = packing_bounds.packing(size, 0.5, num_examples=80,
                                 guarantee=PureDP(epsilon=epsilon))
      assert 0 <= error <= 0.5
      assert packing_bounds.mixture(size, 0.5, num_examples=80,
                                guarantee=PureDP(epsilon=epsilon)) >= error
  assert packing_bounds.packing(math.log(4), 0.5, num_examples=4, guarantee=(
      ApproxDP(epsilon=0.5, delta=0.01))) == pytest.approx(
          3 * (math.exp(-1) / 2 - 0.01 * (1 - math.exp(-1))
               / (1 - math.exp(-0.5))) / (1 + 3 * math.exp(-1)))


def test_golden_mixtures_of_one_record():
  """The mixture of LB-14 has golden errors at K = 16, g = .9, n = 1."""
  for epsilon, least, lemma in ((.5, .9046, .9033), (2., .697, .601)):
    known = dict(num_examples=1, guarantee=PureDP(epsilon=epsilon))
    assert packing_bounds.packing_lemma(math.log(16), .9 * 15 / 16, **known) == (
        pytest.approx(lemma, abs=6e-4))
    assert packing_bounds.mixture(math.log(16), .9, **known) == pytest.approx(
        least, abs=4e-4)


def test_means_forgive_one_outlier():
  t = np.full((1000, 1000), 0.01)
  t[0], t[:, 0] = 1.0, 1.0
  np.fill_diagonal(t, 0)
  guarantee = PureDP(epsilon=0.1)
  as_printed = testing.fano_pure(t, num_records=100, epsilon=0.1)
  assert as_printed == pytest.approx(0.824, abs=1e-3)
  fano = packing_bounds.fano(t, num_examples=100, guarantee=guarantee)
  pairs = packing_bounds.pairs(t, num_examples=100, guarantee=guarantee)
  assert as_printed < fano < pairs < 1 - 1e-3
  assert printed.printed_many(1000, 100.0, epsilon=0.1) < 1e-39


def test_response_obeys_the_corrected_pairs_and_not_the_printed_ones():
  """Randomised response refutes the printed pairs bound (E-05).

  The corrected bound holds.
  """
  for many, epsilon, reached, claimed in (
      (2, 1., .2689, .3420), (2, 3., .0474, .2624), (2, 5., .0067, .2517),
      (4, 5., .0198, .1275)):
    apart = 1.0 - np.eye(many)
    known = dict(num_examples=1, guarantee=PureDP(epsilon=epsilon))
    response = (many - 1) / (many - 1 + math.exp(epsilon))
    assert response == pytest.approx(reached, abs=6e-5)
    assert packing_bounds.pairwise(apart, **known) <= response
    assert packing_bounds.pairs(apart, **known) == pytest.approx(response)
    for joint in (False, True):
      assert printed.printed_pairwise(apart, **known, joint=joint) == (
          pytest.approx(claimed, abs=6e-5)) and claimed > response
  for many, n, weight, epsilon, least, claimed, corrected in (
      (2, 4, .5, .5, .3081, .3240, .1481), (3, 3, .9, 3., .0145, .1670, .0005)):
    apart = weight * (1 - np.eye(many))
    known = dict(num_examples=n, guarantee=PureDP(epsilon=epsilon))
    best = oracles.testing_error(_mixtures(many, weight), **known).value
    assert best == pytest.approx(least, abs=6e-5)
    assert printed.printed_pairwise(apart, **known) == pytest.approx(
        claimed, abs=6e-5) and claimed > best
    assert packing_bounds.pairwise(apart, **known) == pytest.approx(
        corrected, abs=6e-5)


def test_pairs_of_corrected_theorem_stay_below_one_half_and_vanish():
  apart = 1.0 - np.eye(5)
  assert packing_bounds.pairwise(0 * apart, num_examples=9,
                             guarantee=PureDP(epsilon=1.0)) == 0.5
  assert packing_bounds.pairwise(apart, num_examples=9,
                             guarantee=PureDP(epsilon=30.0)) < 1e-12
  error = packing_bounds.pairwise(
      0.3 * apart, num_examples=4,
      guarantee=ApproxDP(epsilon=0.5, delta=0.01))
  moved = 0.6 / 1.3
  assert error == pytest.approx(
      ((1 + math.expm1(-0.5) * moved)**4 - 8 * math.exp(-0.5) * 0.01 * moved)
      / 2)


def test_total_variations_contract_by_n_times_the_level():
  """Total variation contracts by n times the level, not twice that (E-06)."""
  for n, probs, level, reached in ((10, (.4, .6), .05, .1),
                                   (100, (.5, .6), .005, .05)):
    guarantee = TotalVariationPrivacy(level=level)
    pairs = np.array([[1 - p, p] for p in probs])
    best = oracles.testing_error(pairs, num_examples=n, guarantee=guarantee)
    gaps = np.full(n, probs[1] - probs[0])
    contracted = packing_bounds.contraction(gaps, guarantee=guarantee)
    assert 1 - 2 * best.value == pytest.approx(reached, abs=1e-6)
    assert contracted == pytest.approx(reached)
    assert printed.printed_contraction(gaps, level=level) == 2 * contracted
  counts = stats.binom.pmf(np.arange(3), 2, np.array([[0.4], [0.6]]))
  joint = float(np.abs(counts[0] - counts[1]).sum() / 2)
  assert packing_bounds.contraction(np.full(2, 0.2), joint=joint,
                                guarantee=PureDP(epsilon=20.0)) == joint


def test_cubes_sum_what_their_bits_lose():
  t = np.array([0.1, 0.3])
  error = packing_bounds.cube(0.2, t, num_examples=12, guarantee=ZCDP(rho=0.01))
  errors = two_points.product_error(t, num_examples=12,
                                    guarantee=ZCDP(rho=0.01))
  assert error == pytest.approx(0.2 / 4 * 2 * errors.sum())
  # The bound has tau / 4 and the whole sum; print has tau / 16 and half of it.
  linear = testing.le_cam_zcdp(t.mean(), num_records=12, rho=0.01)
  assert error >= 0.2 / 4 * 2 * 2 * linear
  assert testing.assouad(0.2, 2, linear, statement='thesis') == (
      pytest.approx(0.2 / 32 * 2 * 2 * linear))


def test_cubes_bound_the_risk_of_private_estimates():
  """Assouad's cube bounds the risk of all
  channels on two proportions (E-21)."""
  low, high, epsilon = 0.3, 0.7, 0.8
  words = oracles.data_sets(2, 2)
  chances = np.where(words, high, low)[:, None]
  masses = np.prod(np.where(words[None], chances, 1 - chances), -1)
  actions = np.stack(np.meshgrid(*[np.linspace(low, high, 9)] * 2),
                     -1).reshape(-1, 2)
  thetas = np.where(words, high, low)
  losses = np.sum((thetas[:, None] - actions[None])**2, -1)
  costs = np.einsum('ws,wa->sa', masses, losses)[None] / 4
  risk = oracles.least(costs, oracles.replaced(words),
                       PureDP(epsilon=epsilon)).value
  # A bit moves the distribution of one of the two records, by .4.
  tau = (high - low)**2 / 2
  error = two_points.product_error(high - low, num_examples=1,
                                   guarantee=PureDP(epsilon=epsilon))
  bound = testing.assouad(tau, 2, float(error))
  assert bound <= risk + _SOLVED
  assert bound > risk / 5


@pytest.mark.parametrize('guarantee', (
    PureDP(epsilon=1e-9), ApproxDP(epsilon=1e-9, delta=1e-9), ZCDP(rho=1e-12),
    TotalVariationPrivacy(level=1e-9), PureDP(epsilon=0.3), ZCDP(rho=0.01),
    PureDP(epsilon=8.0), None))
def test_bounds_stay_below_guessing_and_fall_with_records(guarantee):
  for size in (math.log(2), 3.0, 800.0):
    errors = [packing_bounds.best_packing_error(
        num_examples=n, guarantee=guarantee, log_hypotheses=size, weight=0.2,
        around_variation=0.3).value for n in (1, 5, 40, 3000)]
    assert all(0 <= e <= -math.expm1(-size) for e in errors)
    assert (np.diff(errors) <= 1e-9).all()
  if guarantee == PureDP(epsilon=1e-9):
    assert errors == pytest.approx(4 * [1.0])


def test_packings_under_zcdp_are_hard_up_to_their_logarithm():
  """Under zCDP mixtures stay hard almost up to
  the logarithm of their number."""
  size, n = 400.0, 60
  for part, error in ((0.25, 0.9999), (0.6, 0.97), (0.8, 0.75)):
    rho = part * size / n**2
    assert packing_bounds.mixture(size, 1.0, num_examples=n,
                              guarantee=ZCDP(rho=rho)) > error
    assert testing.fano(np.full(3, part * size)) < 1 - part
  # Pure tests are zCDP as well, so the bound applies to them.
  known = dict(num_examples=3, guarantee=PureDP(epsilon=0.6))
  best = oracles.testing_error(_mixtures(4, 0.7), **known).value
  assert packing_bounds.mixture(math.log(4), 0.7, num_examples=3,
                            guarantee=zcdp_from_pure(known['guarantee'])
                            ) <= best


@pytest.mark.every(1)
@pytest.mark.parametrize('call, message', [
    (lambda **k: packing_bounds.mixture(0.1, 0.5, **k), '2 hypotheses'),
    (lambda **k: packing_bounds.mixture(1.0, 1.5, **k), 'must lie in'),
    (lambda **k: packing_bounds.pairs(np.full((2, 2), 2.0), **k), 'must lie in'),
    (lambda **k: packing_bounds.pairs(np.zeros(3), **k), 'K at least 2'),
    (lambda **k: packing_bounds.best_packing_error(log_hypotheses=1.0, **k),
     'one of weight')])
def test_bad_input_is_named(call, message):
  with pytest.raises(ValueError, match=message):
    call(num_examples=3, guarantee=PureDP(epsilon=1.0))
