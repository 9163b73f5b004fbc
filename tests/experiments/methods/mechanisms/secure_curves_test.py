"""These tests check protocols in one process: opened numbers and sent bits."""

import fractions

import numpy as np
import pytest

from dpjax.mpc import costs
from dpjax.mpc import joint_noise
from dpjax.mpc import nodes
from dpjax.mpc import noise
from dpjax.mpc import prg
from dpjax.mpc import schemes
from dpjax.stats.ecdf_methods import dyadic
from experiments.methods.mechanisms import protocol_costs
from experiments.methods.mechanisms import secure_curves as evaluation

_BANK = 45211  # records of the Bank data set


def _source():
  return prg.Stream(bytes(32))


def _dense(num_rows, root):
  """Returns a matrix of rows by nodes: 1 where the row lies in the node."""
  levels = [np.arange(num_rows)[:, np.newaxis] >> level == np.arange(size)
            for level, size in enumerate(nodes.dyadic_sizes(num_rows,
                                                            root=root))]
  return np.concatenate(levels, 1).astype(int)


@pytest.mark.parametrize('num_rows', [1, 5, 8])
@pytest.mark.parametrize('root', [True, False])
def test_rows_get_the_noise_of_their_nodes(num_rows, root):
  if num_rows == 1 and not root:
    return
  eta = np.arange(2 * sum(nodes.dyadic_sizes(num_rows, root=root))).reshape(
      2, -1)**2
  points = np.arange(num_rows)[::-1]
  np.testing.assert_array_equal(
      nodes.dyadic_rows(eta, points, num_rows, root=root),
      (eta @ _dense(num_rows, root).T)[:, points])
  with pytest.raises(ValueError, match='there is no noise'):
    nodes.dyadic_rows(eta, np.array([num_rows]), num_rows, root=root)


@pytest.mark.slow
@pytest.mark.parametrize('root', [True, False])
def test_nodes_are_those_of_the_curator(root):
  layout = dyadic.Layout(num_rows=11, root=root)
  assert nodes.dyadic_sizes(11, root=root) == list(layout.level_sizes)
  eta = np.arange(sum(layout.level_sizes), dtype=np.float32)**2
  np.testing.assert_array_equal(
      nodes.dyadic_rows(eta, np.arange(11), 11, root=root), layout.rows(eta))


def test_a_full_tree_has_2_n_minus_1_nodes():
  assert sum(nodes.dyadic_sizes(1024, root=True)) == 2047


@pytest.mark.parametrize('scheme', [
    schemes.ComparisonScheme(num_thresholds=11),
    schemes.ComparisonScheme(num_thresholds=11, value_bits=64),
    schemes.OuterProductScheme(num_thresholds=11, num_servers=3)], ids=repr)
def test_counts_of_a_tree_come_from_shares_of_ranks(scheme):
  bins = np.arange(40)**2 % 11
  sent = scheme.shares(bins, source=_source())
  opened = scheme.combine({
      server: nodes.tree_counts(scheme.aggregate(server, payloads), (3, 2, 2),
                                scheme)
      for server, payloads in enumerate(sent)})
  padded = np.bincount(bins, minlength=12)
  wanted = np.concatenate([padded.reshape(3, 4).sum(1),
                           padded.reshape(6, 2).sum(1), padded[:11]])
  np.testing.assert_array_equal(opened, wanted[np.newaxis])
  assert nodes.tree_sizes(11, (3, 2, 2)) == [3, 6, 11]


@pytest.mark.parametrize('name,servers', [('comparison', 2), ('additive', 3),
                                          ('outer_product', 3)])
def test_a_curve_opens_as_the_curator_would_say_it_again_and_again(
    name, servers):
  scheme = schemes.SCHEMES[name](num_thresholds=16, num_servers=servers)
  bins = np.random.default_rng(0).integers(0, 16, 300)
  added = noise.Contributions(scale=fractions.Fraction(4), num_parties=1,
                              num_colluding=0)
  drawn = added.draw(bytes(range(32)), 31)[np.newaxis]
  curve = evaluation.collect(scheme, bins, drawn, num_rows=16,
                             source=_source())
  ranks = np.cumsum(np.bincount(bins, minlength=16))
  wanted = ranks + _dense(16, True) @ drawn[0]
  points = np.arange(16)
  whole = curve.ask(points)
  np.testing.assert_array_equal(whole.totals[0], wanted)
  for point in (3, 3, 15):
    assert curve.ask(np.array([point])).totals[0, 0] == wanted[point]
  assert curve.bits == costs.collecting(scheme, 300)
  assert whole.bits == costs.answering(scheme, 16)
  assert costs.answering(scheme, 1) == servers * (4 + scheme.answer_bits)
  same = evaluation.SecureCurve(scheme=scheme, payloads=curve.payloads,
                                noise=curve.noise, num_rows=16)
  np.testing.assert_array_equal(same.ask(points).totals, whole.totals)


@pytest.mark.every(1)
@pytest.mark.parametrize('backend', [
    evaluation.TrustedCurator(), evaluation.AdditiveShares(num_servers=3),
    evaluation.ShamirShares(num_servers=4, num_colluding=1)], ids=repr)
def test_pointwise_evaluation_of_many_owners(backend):
  """Totals are the same whole numbers for every backend (EC-01, EC-13).

  This is Equation 6.4.1.
  """
  rng = np.random.default_rng(0)
  bins, points = rng.integers(0, 64, 10**4), np.arange(64)
  eta = rng.integers(-50, 50, 127)
  dense = _dense(64, True)
  statistic = evaluation.UStat(backend=backend, source=_source(),
                               noise=backend.share(eta, _source()))
  below = (bins[:, np.newaxis] <= points).astype(int)
  opened = statistic.totals(below, [np.flatnonzero(row) for row in dense])
  np.testing.assert_array_equal(opened.totals, below.sum(0) + dense @ eta)
  np.testing.assert_array_equal(
      statistic(below[:, :1], [np.flatnonzero(dense[0])]),
      opened.totals[:1] / 10**4)
  servers = len(statistic.noise)
  of_owner = {'TrustedCurator': 32, 'AdditiveShares': 3 * 32,
              'ShamirShares': 4 * 31}[type(backend).__name__]
  assert opened.bits == 10**4 * 64 * of_owner == protocol_costs.pointwise(
      10**4, 64, num_servers=servers, bits=backend.bits_per_value // servers,
      masked=False)


def test_what_is_not_given():
  """Arguments left out have the documented defaults."""
  assert evaluation.TrustedCurator() == evaluation.TrustedCurator(bits=32)
  assert evaluation.AdditiveShares(num_servers=2) == evaluation.AdditiveShares(
      num_servers=2, bits=32)
  assert schemes.ComparisonScheme(num_thresholds=4) == schemes.ComparisonScheme(
      num_thresholds=4, num_servers=2, num_classes=1, value_bits=32)
  assert schemes.AdditiveScheme(num_thresholds=4, num_servers=2) == (
      schemes.AdditiveScheme(num_thresholds=4, num_servers=2, num_classes=1,
                             value_bits=32))
  assert schemes.OuterProductScheme(num_thresholds=4, num_servers=3) == (
      schemes.OuterProductScheme(num_thresholds=4, num_servers=3, num_classes=1,
                                 num_colluding=1))
  joint = joint_noise.JointNoise(scale=fractions.Fraction(2), count=3)
  assert (joint.value_bits, joint.coin_bits) == (32, 64)


def test_statistics_of_pairs_are_those_of_the_definition():
  data = np.random.default_rng(0).normal(size=30)
  gaps = np.abs(data[:, np.newaxis] - data)
  assert evaluation.u_statistic(lambda x, y: abs(x - y), data, 2) == (
      pytest.approx(gaps.sum() / (30 * 29)))
  assert evaluation.u_statistic(lambda x: x, data, 1) == pytest.approx(
      data.mean())


def test_costs_are_those_of_the_corrected_model():
  scheme = schemes.ComparisonScheme(num_thresholds=1024)
  assert costs.collecting(scheme, _BANK) == 2 * _BANK * 1780
  assert round((costs.collecting(scheme, _BANK) +
                costs.answering(scheme, 1)) / 1e6, 1) == 161.0
  asked = [protocol_costs.pointwise(_BANK, points, num_servers=2, bits=32,
                                    masked=False) / 1e6
           for points in (10, 100, 1000)]
  np.testing.assert_allclose(asked, [28.9, 289, 2893], rtol=2e-3)
  sizes = [[protocol_costs.break_even(depth, 32, against=against)
            for against in ('shares', 'masked', 'one_shot')]
           for depth in (10, 15)]
  np.testing.assert_allclose(sizes, [[55.6, 111, 107], [80.9, 162, 158]],
                             rtol=5e-3)
  # Keys cost less from 56 points on, and not before.
  for points, cheaper in ((55, False), (56, True)):
    assert (costs.collecting(scheme, _BANK) < protocol_costs.pointwise(
        _BANK, points, num_servers=2, bits=32, masked=False)) is cheaper
  for points, cheaper in ((107, False), (108, True)):
    assert (costs.collecting(scheme, _BANK) < protocol_costs.one_shot(
        _BANK, points, num_servers=2, bits=32)) is cheaper
  assert protocol_costs.one_shot(_BANK, 64, num_servers=3, bits=32) == (
      costs.collecting(schemes.AdditiveScheme(num_thresholds=64, num_servers=3),
                       _BANK))
  assert [protocol_costs.earlier_key_bits(depth, 32)
          for depth in (10, 15)] == [5608, 8348]


def test_masked_numbers_are_sent_once():
  masked, shared = (protocol_costs.pointwise(
      100, 7, num_servers=3, bits=32, masked=masked)
                    for masked in (True, False))
  assert (masked, shared) == (100 * 7 * 32, 100 * 7 * 32 * 3)


def test_numbers_that_could_wrap_are_refused():
  assert costs.value_bits(1000, 2) == 11 and costs.value_bits(1024, 1) == 12
  scheme = schemes.ComparisonScheme(num_thresholds=4, value_bits=11)
  costs.check_width(scheme, 1000, 2.0)
  with pytest.raises(ValueError, match='numbers of 12 bits'):
    costs.check_width(scheme, 1000, 3.0)
  three = schemes.OuterProductScheme(num_thresholds=4, num_servers=3)
  costs.check_width(three, 2**29 - 1, 0.0)
  with pytest.raises(ValueError, match='numbers of 31 bits'):
    costs.check_width(three, 2**29, 1.0)
