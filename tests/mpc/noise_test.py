"""Tests jointly drawn noise by tables and enumeration."""

import decimal
import fractions
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import additive
from dpjax.mpc import comparison
from dpjax.mpc import joint_noise
from dpjax.mpc import nodes
from dpjax.mpc import noise
from dpjax.mpc import prg

Fraction = fractions.Fraction


def _laplace(scale, bound):
  """Returns the discrete Laplace probabilities of -bound, ..., bound."""
  ratio = np.exp(-1 / float(scale))
  return (1 - ratio) / (1 + ratio) * ratio**np.abs(
      np.arange(-bound, bound + 1))


def _difference(probs, bound):
  """Returns the distribution of X - Y on -bound, ..., bound, both from `probs`.
  """
  padded = np.zeros(bound + 1)
  padded[:min(len(probs), bound + 1)] = probs[:bound + 1]
  return np.convolve(padded, padded[::-1])


def _chi_square(draws, scale):
  """Returns the p-value of draws as discrete Laplace numbers."""
  bound = int(np.ceil(3 * scale))
  probs = _laplace(scale, bound)
  counts = np.bincount(np.clip(draws, -bound, bound) + bound,
                       minlength=2 * bound + 1)
  probs[[0, -1]] = (1 - probs[1:-1].sum()) / 2
  return stats.chisquare(counts, probs * len(draws)).pvalue


@pytest.mark.parametrize('scale', [Fraction(1, 3), Fraction(7, 2)])
@pytest.mark.parametrize('honest', [1, 2, 3])
def test_what_honest_parties_draw_adds_up_to_discrete_laplace(scale, honest):
  table = noise.polya_table(scale, Fraction(1, honest))
  part = np.diff(np.append(table, 2.0**64).astype(np.float64) / 2**64,
                 prepend=0)
  ratio = np.exp(-1 / float(scale))
  np.testing.assert_allclose(
      part, stats.nbinom.pmf(np.arange(len(part)), 1 / honest, 1 - ratio),
      rtol=0, atol=1e-14)
  geometric = np.ones(1)
  for _ in range(honest):
    geometric = np.convolve(geometric, part)
  bound = len(geometric) - 1
  np.testing.assert_allclose(_difference(geometric, bound),
                             _laplace(scale, bound), rtol=0, atol=1e-13)


def _decimals(scale):
  """Returns e^(-1 / scale) to 90 digits."""
  with decimal.localcontext(prec=90):
    return (-decimal.Decimal(scale.denominator) / scale.numerator).exp()


@pytest.mark.every(1)
@pytest.mark.parametrize('scale', [Fraction(1, 3), Fraction(7, 2), Fraction(60)])
@pytest.mark.parametrize('honest', [1, 3])
def test_tables_are_right_to_the_last_bit(scale, honest):
  """Entries match 90-digit decimals, and the omitted tail is below 2^-70."""
  table = noise.polya_table(scale, Fraction(1, honest))
  with decimal.localcontext(prec=90):
    weight, weights = decimal.Decimal(1), []
    for x in range(len(table) + 1 + int(60 * scale)):
      weights.append(weight)
      weight *= _decimals(scale) * (1 + x * honest) / ((x + 1) * honest)
    sums = list(itertools.accumulate(weights))
    exact = [int(part * 2**64 / sums[-1]) for part in sums[:len(table)]]
    left_out = [1 - sums[index] / sums[-1]
                for index in (len(table), len(table) - 5 - int(2 * scale))]
  gaps = [abs(int(entry) - value)
          for entry, value in zip(table, exact, strict=True)]
  assert max(gaps) <= 1
  assert left_out[0] < 2**-70 < left_out[1]
  assert not table.flags.writeable


@pytest.mark.every(1)
@pytest.mark.parametrize('scale', [Fraction(1, 50), Fraction(1), Fraction(40)])
def test_thresholds_of_digits_are_right_to_the_last_bit(scale):
  """Thresholds are 2^w (A^g - A^B) / (1 - A^B), rounded,
  for ratio A of a digit."""
  joint = joint_noise.JointNoise(scale=scale, count=1, coin_bits=62)
  assert joint.thresholds.shape == (joint.num_digits, joint.base - 1)
  with decimal.localcontext(prec=90):
    for digit, limits in enumerate(joint.thresholds):
      ratio = _decimals(scale)**(joint.base**digit)
      for power, limit in enumerate(limits, 1):
        prob = (ratio**power - ratio**joint.base) / (1 - ratio**joint.base)
        assert abs(int(limit) - prob * 2**62) < decimal.Decimal('0.5001')


def test_digits_are_as_few_and_of_a_base_as_small_as_can_be():
  """Numbers reach the tail of 2^-64, with the fewest
  digits of base up to 32."""
  for scale in [Fraction(1, 50), Fraction(1, 7), *map(Fraction, range(1, 200)),
                Fraction(2**14)]:
    joint = joint_noise.JointNoise(scale=scale, count=3)
    end, digits, base = joint.output_bound, joint.num_digits, joint.base
    assert math.exp(-end / scale) <= 2.0**-64 < math.exp(-(end - 2) / scale)
    assert 32**digits >= end > 32**(digits - 1)
    assert base**digits >= end and (base == 2 or (base - 1)**digits < end)
    assert 2 <= base <= 32 and joint.num_keys == 3 * 2 * digits
    # Half a step is charged for each threshold of each digit, and the end.
    assert joint.total_variation == pytest.approx(
        6 * (digits * (base - 1) * 2.0**-65 + 2.0**-64), rel=1e-12)


def test_the_distance_of_contributions_is_that_of_their_tables():
  """The distance covers rounded entries and the tail, twice for each party."""
  added = noise.Contributions(scale=Fraction(3), num_parties=5, num_colluding=2)
  assert added.shape == Fraction(1, 3)
  entries = len(noise.polya_table(added.scale, added.shape)) + 1
  assert added.total_variation == pytest.approx(
      10 * (entries * 2.0**-64 + 2.0**-70), rel=1e-12)


@pytest.mark.parametrize('colluding', [0, 1])
def test_contributions_have_the_law_and_those_who_may_collude_add_to_it(
    colluding):
  """The sum of all but T parties' noise passes a chi-square test at 10^-6."""
  added = noise.Contributions(scale=Fraction(4), num_parties=3,
                              num_colluding=colluding)
  parts = np.stack([added.draw(bytes([party]) * 32, 40000)
                    for party in range(3)])
  honest = parts[colluding:].sum(0)
  assert _chi_square(honest, 4) > 1e-6
  assert added.variance == pytest.approx(
      3 / (3 - colluding) * noise.variance(Fraction(4)))
  # A sample variance with kurtosis near 6 has a variance below 9 / n.
  assert parts.sum(0).var() == pytest.approx(added.variance, rel=5 * 3 / 200)
  assert added.total_variation < 1e-15


def test_a_key_is_asked_twice_and_says_the_same():
  added = noise.Contributions(scale=Fraction(4), num_parties=2, num_colluding=1)
  key = bytes(range(32))
  np.testing.assert_array_equal(added.draw(key, 50), added.draw(key, 50))
  assert (added.draw(key, 50) != added.draw(bytes(32), 50)).any()


def test_digits_of_joint_noise_for_all_secrets_and_coins():
  """Shares add up to the number of limits above coin - secret modulo 2^w."""
  width = 3
  secrets, coins = (values.ravel() for values in np.meshgrid(
      np.arange(2**width), np.arange(2**width)))
  limits = np.broadcast_to(np.arange(2**width, dtype=np.uint64),
                           (secrets.size, 2**width))
  pair = comparison.generate(secrets, np.ones_like(secrets), depth=width,
                             value_bits=16, source=prg.Stream(bytes(32)))
  shares = [joint_noise.counts_below(keys, coins.astype(np.uint64), limits)
            for keys in pair]
  uniform = (coins - secrets) % 2**width
  np.testing.assert_array_equal(
      additive.combine(np.stack(shares), value_bits=16),
      (uniform[:, np.newaxis] < limits).sum(1))


@pytest.mark.every(2)
@pytest.mark.parametrize('scale', [Fraction(1, 2), Fraction(3), Fraction(40)])
def test_joint_noise_has_the_law_of_the_curator(scale):
  """The exact distribution over 2^16 coins is within the stated distance."""
  joint = joint_noise.JointNoise(scale=scale, count=1, coin_bits=16)
  number = np.ones(1)
  for digit, limits in enumerate(joint.thresholds.astype(int)):
    drawn = (np.arange(2**16)[:, np.newaxis] < limits).sum(1)
    digit_probs = np.zeros((joint.base - 1) * joint.base**digit + 1)
    digit_probs[::joint.base**digit] = np.bincount(drawn,
                                                   minlength=joint.base) / 2**16
    number = np.convolve(number, digit_probs)
  bound = len(number) - 1
  distance = np.abs(_difference(number, bound) - _laplace(scale, bound)).sum()
  assert distance / 2 < joint.total_variation < 0.004
  assert distance > 0
  assert joint_noise.JointNoise(scale=scale, count=2047,
                                coin_bits=64).total_variation < 1e-14


def test_servers_draw_joint_noise_that_neither_of_them_knows():
  """The noise and each share of it pass chi-square tests at level 10^-6."""
  joint = joint_noise.JointNoise(scale=Fraction(1), count=1500, value_bits=16)
  dealt = joint.deal(source=prg.Stream(bytes(32)))
  assert joint.bits == joint.num_keys * comparison.key_bits(64, 16)
  assert all(part.size == joint.bits // 8 for part in dealt)
  seeds = [bytes([server]) * 32 for server in range(2)]
  toss = joint_noise.coin(seeds, [joint_noise.commitment(seed, server)
                                  for server, seed in enumerate(seeds)])
  shares = [joint.share(server, dealt[server], toss) for server in range(2)]
  drawn = additive.centred(additive.combine(np.stack(shares), value_bits=16),
                           value_bits=16)
  assert _chi_square(drawn, 1) > 1e-6
  assert (drawn[:750] != drawn[750:]).any()
  for share in shares:
    top = np.bincount((share >> np.uint64(12)).astype(int), minlength=16)
    assert stats.chisquare(top).pvalue > 1e-6
    assert abs(np.corrcoef(share.astype(float), drawn)[0, 1]) < 5 / 1500**.5
  with pytest.raises(ValueError, match='as the dealer sent them'):
    joint.share(0, dealt[0][1:], toss)


@pytest.mark.every(2)
def test_joint_noise_depends_on_the_dealer_and_on_the_toss():
  """Other dealers or tosses give uncorrelated noise,
  within 5 standard errors."""
  joint = joint_noise.JointNoise(scale=Fraction(2), count=400, value_bits=16)
  deals = [joint.deal(source=prg.Stream(bytes([number]) * 32))
           for number in range(2)]

  def drawn(dealt, toss):
    shares = np.stack([joint.share(server, dealt[server], toss)
                       for server in range(2)])
    return additive.centred(additive.combine(shares, value_bits=16),
                            value_bits=16)

  first = drawn(deals[0], bytes(32))
  np.testing.assert_array_equal(first, drawn(deals[0], bytes(32)))
  for other in (drawn(deals[1], bytes(32)), drawn(deals[0], bytes([1]) * 32)):
    assert abs(np.corrcoef(first, other)[0, 1]) < 5 / 20


def test_who_tells_another_seed_is_named():
  seeds = [bytes(32), bytes(range(32))]
  commitments = [joint_noise.commitment(seed, server)
                 for server, seed in enumerate(seeds)]
  tossed = joint_noise.coin(seeds, commitments)
  assert len(tossed) == 32 and tossed != joint_noise.coin(
      seeds[::-1], [joint_noise.commitment(seed, server)
                    for server, seed in enumerate(seeds[::-1])])
  with pytest.raises(ValueError, match='server 1 revealed another'):
    joint_noise.coin([seeds[0], seeds[0]], commitments)
  # A server cannot return the other's commitment as its own.
  with pytest.raises(ValueError, match='server 1'):
    joint_noise.coin([seeds[0], seeds[0]], [commitments[0], commitments[0]])


def test_scales_out_of_range_are_refused():
  for make in (lambda scale: noise.Contributions(
      scale=scale, num_parties=2, num_colluding=1),
               lambda scale: joint_noise.JointNoise(scale=scale, count=1)):
    for scale in (Fraction(0), Fraction(2**14 + 1)):
      with pytest.raises(ValueError, match='scale must lie in'):
        make(scale)
  with pytest.raises(ValueError, match='num_parties'):
    noise.Contributions(scale=Fraction(1), num_parties=2, num_colluding=2)


def test_every_rank_has_a_node_with_noise():
  """Every rank has a noisy node; a single row without a root is refused."""
  assert nodes.dyadic_sizes(1, root=True) == [1]
  assert nodes.dyadic_sizes(2, root=False) == [2]
  assert nodes.dyadic_sizes(5, root=True) == [5, 3, 2, 1]
  with pytest.raises(ValueError, match='num_rows'):
    nodes.dyadic_sizes(1, root=False)
