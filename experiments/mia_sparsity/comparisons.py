"""Computes gains of networks over others, one for each pair of networks.

A gain is an improvement in percentage points: a higher defence, or a lower rate
of an attack. The roles of a pair are averaged first, because its networks share
records and are each other's shadows. Pairs of different seeds split the same
records anew and are treated as independent. For LiRA and RMIA, whose shadows
are all other networks, that is an approximation.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

from experiments import summary
from experiments.mia_sparsity import inference
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep

ACCURACY = 'test_accuracy'


class Comparison(NamedTuple):
  """A comparison of networks with others.

  Attributes:
    name: name of the other networks.
    num_kinds: number of kinds of networks that could be compared.
    gains: mean over these kinds, one for each seed.
  """
  name: str
  num_kinds: int
  gains: tuple[float, ...]

  @property
  def interval(self) -> inference.Interval:
    """Returns the mean gain, with Student's limits over seeds."""
    return inference.t_interval(self.gains)

  @property
  def p_value(self) -> float:
    """Returns the one-sided p-value of the hypothesis that there is no gain."""
    return inference.p_value(self.gains, one_sided=True)


def scale(metric: str) -> float:
  """Returns the factor from the unit of a metric to points of gain."""
  return 1.0 if metric == 'defence' else -100.0


def gains_over_dense(networks: lookup.Networks, kind: sweep.Kind,
                     metric: str) -> dict[int, float]:
  """Returns seed -> gain over the dense network of the same split and seed."""
  ours = networks.pairs(kind, metric)
  dense = networks.pairs(lookup.DENSE, metric)
  return {seed: scale(metric) * (ours[seed] - dense[seed])
          for seed in sorted(ours.keys() & dense.keys())}


def over_dense(networks: lookup.Networks, metric: str,
               kinds: Sequence[sweep.Kind]) -> Comparison:
  """Returns the mean gain of these kinds over the dense network."""
  return _averaged('dense', [gains_over_dense(networks, kind, metric)
                             for kind in kinds if networks.has(kind, metric)])


def at_equal_accuracy(networks: lookup.Networks, metric: str,
                      kinds: Sequence[sweep.Kind], name: str,
                      others: Sequence[sweep.Kind]) -> Comparison:
  """Returns the mean gain over other networks of equal accuracy.

  The value of the other networks is interpolated between the two of nearest
  accuracy. Kinds that are more or less accurate than all others are left out.
  """
  return _averaged(name, [
      result.differences for kind in kinds
      if (result := _matched(networks, metric, kind, others)) is not None])


def over_controls(networks: lookup.Networks, metric: str) -> list[Comparison]:
  """Compares the sparse networks that claims are about with each control.

  The controls are dense networks between the dense one and the worst of a
  control, and networks with random masks.

  """
  kinds = lookup.claimed(networks)
  result = [at_equal_accuracy(networks, metric, kinds, method,
                             [lookup.DENSE, *networks.kinds(method)])
           for method in (*lookup.DENSE_CONTROLS, 'random')
           if networks.kinds(method)]
  return [comparison for comparison in result if comparison.gains]


def over_private(networks: lookup.Networks, metric: str) -> list[Comparison]:
  """Compares the claimed sparse networks with private ones of any epsilon."""
  kinds = lookup.claimed(networks)
  result = [at_equal_accuracy(networks, metric, kinds, method,
                             networks.kinds('sgd', method))
           for method in lookup.PRIVATE if networks.kinds(method)]
  return [comparison for comparison in result if comparison.gains]


class Gap(NamedTuple):
  """A comparison of butterflies with pruned networks of equal accuracy.

  Attributes:
    kind: kind of the butterflies.
    gap: defence of the butterflies minus that of the pruned networks, in
      points.
    spread: pooled standard deviation of both defences.
  """
  kind: sweep.Kind
  gap: float
  spread: float


def butterfly_gaps(networks: lookup.Networks) -> list[Gap]:
  """Returns gaps of butterflies between accuracies of pruned networks."""
  pruned = [lookup.DENSE, *networks.kinds('magnitude')]
  values = []
  for kind in networks.kinds('butterfly'):
    matched = _matched(networks, 'defence', kind, pruned)
    spread = _pooled_spread(networks, [kind, *pruned])
    if matched is not None and spread:
      values.append(Gap(kind, matched.gap, spread))
  return values


def sharpest(networks: lookup.Networks) -> str | None:
  """Returns the most accurate attack on dense networks, or None.

  The attacks are those of catalogue item AUD-10.
  """
  attacks = [attack for attack in lookup.SHARP
             if networks.has(lookup.DENSE, f'{attack}_accuracy')]
  return max(attacks, default=None, key=lambda attack: networks.mean(
      lookup.DENSE, f'{attack}_accuracy'))


class TradeOff(NamedTuple):
  """The trade-off between accuracy and defence.

  Attributes:
    factor: relative gain of defence over the relative loss of accuracy.
    slope: points of defence for a point of accuracy.
    ratios: the factor of each kind by itself, as printed.
  """
  factor: inference.Interval
  slope: inference.Interval
  ratios: tuple[float, ...]


def trade_off(networks: lookup.Networks,
              kinds: Sequence[sweep.Kind]) -> TradeOff | None:
  """Returns the least-squares line through the dense network, or None.

  The line is fitted to means over seeds. The bootstrap resamples seeds, each
  with all of its networks.
  """
  used = [kind for kind in [lookup.DENSE, *kinds]
          if networks.has(kind, ACCURACY, 'defence')]
  if len(used) < 2 or used[0] != lookup.DENSE:
    return None
  table = [(networks.pairs(kind, ACCURACY), networks.pairs(kind, 'defence'))
           for kind in used]
  seeds = sorted(set.intersection(*(set(by_seed) for line in table
                                    for by_seed in line)))
  if not seeds:
    return None

  def means(drawn):
    return [[sum(by_seed[seed] for seed in drawn) / len(drawn)
             for by_seed in line] for line in table]

  def relative(drawn):
    (accuracy, defence), *others = means(drawn)
    return ([1 - a / accuracy for a, _ in others],
            [d / defence - 1 for _, d in others])

  def slope(drawn):
    (accuracy, defence), *others = means(drawn)
    return inference.slope([100 * (a - accuracy) for a, _ in others],
                           [d - defence for _, d in others])

  losses, gains = relative(seeds)
  return TradeOff(
      inference.bootstrap(lambda drawn: inference.slope(*relative(drawn)),
                          seeds),
      inference.bootstrap(slope, seeds),
      tuple(abs(gain / loss) for loss, gain
            in zip(losses, gains, strict=True) if loss))


def _matched(networks, metric, kind, others):
  """Returns `inference.matched` in points of gain; None if undefined."""
  others = [(networks.mean(other, ACCURACY), networks.pairs(other, metric))
            for other in others if networks.has(other, ACCURACY, metric)]
  if not networks.has(kind, ACCURACY, metric):
    return None
  result = inference.matched(networks.mean(kind, ACCURACY),
                            networks.pairs(kind, metric), others)
  unit = scale(metric)
  return result and inference.Matched(
      {seed: unit * value for seed, value in result.differences.items()},
      unit * result.gap)


def _averaged(name: str, gains: Sequence[dict[int, float]]) -> Comparison:
  """Returns the mean over kinds, for each seed that all of them have."""
  seeds = set.intersection(*map(set, gains)) if gains else set()
  return Comparison(name, len(gains), tuple(
      sum(each[seed] for each in gains) / len(gains)
      for seed in sorted(seeds)))


def _pooled_spread(networks, kinds) -> float:
  """Returns the pooled standard deviation of kinds with several networks."""
  variances = [len(values) * summary.summarise(values).standard_error**2
               for kind in kinds
               if len(values := networks.each(kind, 'defence')) > 1]
  return math.sqrt(sum(variances) / len(variances)) if variances else 0.0
