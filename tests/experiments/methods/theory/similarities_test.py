"""These tests compare similarities with the best private tests."""

import math

import numpy as np
import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.privacy.notions import zcdp_from_pure
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import printed_bounds as printed
from experiments.methods.theory import similarities
from experiments.methods.theory import testing

_SOLVED = 1e-7
_OF_PURE = ('projection_anchor', 'pairwise_anchor', 'fano', 'decoding', 'pairs')


def _tuples(count, seed=0):
  """Yields data sets [K, n] over m symbols, with at most 81 data sets."""
  generator = np.random.default_rng(seed)
  for _ in range(count):
    num_symbols, n = [(2, 5), (3, 3), (4, 3), (2, 3), (3, 4), (5, 2)][
        generator.integers(6)]
    many = int(generator.integers(2, 5))
    chosen = generator.integers(0, num_symbols, (many, n))
    yield num_symbols, chosen, float(generator.choice([0.05, 0.4, 1.0, 2.5]))


def _distances(chosen):
  return np.sum(chosen[:, None] != chosen[None], -1)


@pytest.mark.every(2)
def test_no_pure_test_errs_less_than_a_similarity():
  """No pure test errs less than a similarity says (LB-MASTER).

  Random tuples are compared with all private mechanisms.
  """
  tight, beaten = 0, 0
  for num_symbols, chosen, epsilon in _tuples(36):
    guarantee, far = PureDP(epsilon=epsilon), _distances(chosen)
    least = oracles.data_sets_error(chosen, num_symbols=num_symbols,
                                    guarantee=guarantee).value
    names = _OF_PURE + ('midpoint_anchor',) * (len(chosen) == 2)
    errors = {name: similarities.SIMILARITIES[name](far, guarantee)
              for name in names}
    assert max(errors.values()) <= least + _SOLVED, errors
    # A zCDP bound of that level also bounds pure tests.
    concentrated = zcdp_from_pure(guarantee)
    for name in ('fano', 'decoding', 'pairs') + ('le_cam',) * (
        len(chosen) == 2):
      assert similarities.SIMILARITIES[name](far, concentrated) <= (
          least + _SOLVED)
    tight += errors['pairs'] > least - 1e-6
    # Lemma 3.3.8 as printed claims a larger error than the least one.
    beaten += printed.printed_pairwise_anchor(far, guarantee) > least + 1e-3
    assert errors['pairwise_anchor'] <= errors['pairs'] + 1e-12
    assert errors['fano'] <= errors['decoding'] + 1e-12
  assert tight > 7 and beaten > 12


def test_no_approximate_test_errs_less_than_a_similarity():
  for place, (num_symbols, chosen, epsilon) in enumerate(_tuples(16, seed=1)):
    delta = (1e-3, 0.02, 0.1)[place % 3]
    guarantee = (ApproxDP(epsilon=epsilon, delta=delta) if place % 4 else
                 TotalVariationPrivacy(level=delta))
    far = _distances(chosen)
    least = oracles.data_sets_error(chosen, num_symbols=num_symbols,
                                    guarantee=guarantee).value
    assert similarities.pairs(far, guarantee) <= least + _SOLVED
    if place % 4:
      assert similarities.pairwise_anchor(far, guarantee) <= least + _SOLVED
      assert similarities.projection_anchor(far, guarantee) <= least + _SOLVED


def test_an_anchor_at_its_best_is_exact_where_it_alone_joins():
  """The best anchor is exact where legs only meet at the anchor."""
  for epsilon, legs in ((0.5, (1, 2, 3)), (1.5, (0, 2)), (0.2, (4, 4, 4, 1)),
                        (0.7, (1, 1, 1, 1, 1))):
    edges, ends = [], []
    states = 1
    for leg in legs:
      path = [0, *range(states, states + leg)]
      edges += list(zip(path, path[1:]))
      ends.append(path[-1])
      states += leg
    costs = np.zeros((1, states, len(legs)))
    for k, end in enumerate(ends):
      costs[0, end] += 1 / len(legs)
      costs[0, end, k] -= 1 / len(legs)
    guarantee = PureDP(epsilon=epsilon)
    best = oracles.least(costs, np.array(edges), guarantee).value
    error = similarities.star(np.array(legs), guarantee)
    assert error == pytest.approx(best, abs=1e-6)
    assert similarities.global_anchor(np.array(legs), guarantee) <= error


def test_randomised_response_is_best_for_data_sets_one_record_apart():
  for many in (2, 3, 16):
    apart = 1 - np.eye(many)
    for epsilon in (0.1, 2.0, 6.0):
      assert similarities.pairs(apart, PureDP(epsilon=epsilon)) == (
          pytest.approx((many - 1) / (many - 1 + math.exp(epsilon))))


def test_formulas_of_the_thesis():
  far = np.array([[0, 3], [3, 0]])
  guarantee = ApproxDP(epsilon=0.5, delta=0.01)
  wanted = math.exp(-1) / 2 - math.exp(-0.5) * 0.01 * 2
  assert similarities.midpoint_anchor(far, guarantee) == pytest.approx(wanted)
  assert similarities.pairwise_anchor(far, guarantee) == pytest.approx(wanted)
  assert similarities.global_anchor(np.array([1, 3, 2]), guarantee) == (
      pytest.approx(2 / 3 * math.exp(-1.5) - math.exp(-0.5) * 0.03))
  # The middle one of three is the best anchor.
  assert similarities.projection_anchor(
      np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]]), guarantee) == pytest.approx(
          2 / 3 * math.exp(-1) - math.exp(-0.5) * 0.02)
  assert similarities.le_cam(far, ZCDP(rho=0.02)) == pytest.approx(0.35)
  assert similarities.fano(far, ZCDP(rho=0.02)) == pytest.approx(
      1 - (1 + 0.09) / math.log(2))
  assert similarities.fano(far, PureDP(epsilon=0.5)) == pytest.approx(
      1 - (1 + 0.75) / math.log(2))


def test_decoding_is_the_root_of_fanos_inequality():
  for size in (2, 7, 10**6):
    e = np.linspace(0.01, 1 - 1 / size, 5)
    left = np.maximum(1 - e, 1e-300)
    information = (left * np.log(left * size)
                   + e * np.log(e / (1 - 1 / size)))
    error = testing.decoding(information, math.log(size))
    # At the last value, without information, the root is double.
    assert error == pytest.approx(e, abs=1e-7)
    assert (error >= 1 - (1 + information) / math.log(size) - 1e-9).all()
  assert testing.decoding(3.0, math.log(4)) == 0


@pytest.mark.every(1)
@pytest.mark.parametrize('call', [
    lambda: similarities.midpoint_anchor(np.zeros((3, 3)), PureDP(epsilon=1.)),
    lambda: similarities.le_cam(np.zeros((2, 2)), PureDP(epsilon=1.0)),
    lambda: similarities.le_cam(np.zeros((3, 3)), ZCDP(rho=1.0)),
    lambda: similarities.fano(np.zeros((3, 3)), None),
    lambda: similarities.pairs(np.zeros(3), PureDP(epsilon=1.0)),
    lambda: similarities.global_anchor(np.zeros(3), ZCDP(rho=1.0)),
    lambda: testing.decoding(0.1, 0.0)])
def test_bad_input_is_named(call):
  with pytest.raises(ValueError):
    call()
