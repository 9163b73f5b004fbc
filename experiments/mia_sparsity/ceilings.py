"""Compares attacks on private networks with their upper bounds.

Catalogue item MIA-13.
"""

from typing import NamedTuple

from experiments.mia_sparsity import inference
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep


class Test(NamedTuple):
  """One attack on one kind of private networks.

  Attributes:
    kind: kind of the networks.
    attack: name of the attack.
    excess: comparison with the least of the known upper bounds.
  """
  kind: sweep.Kind
  attack: str
  excess: inference.Excess


def ceiling(networks: lookup.Networks, kind: sweep.Kind) -> float | None:
  """Returns the largest accuracy that the event allows, or (epsilon, delta)."""
  for metric in ('event_ceiling', 'ceiling'):
    if networks.has(kind, metric):
      return networks.mean(kind, metric)
  return None


def tests(networks: lookup.Networks) -> list[Test]:
  """Returns a test for each kind and each attack with a valid threshold.

  A threshold is valid if it does not depend on the target. The oracle has no
  valid one, because it is the best of nine attacks on the target itself.
  """
  values = []
  for kind in networks.kinds(*lookup.PRIVATE):
    most = ceiling(networks, kind)
    for attack in lookup.ATTACKS:
      metric = f'{attack}_accuracy'
      if most is None or not networks.has(kind, metric, 'num_attacked'):
        continue
      values.append(Test(kind, attack, inference.excess(
          list(networks.pairs(kind, metric).values()), most,
          networks.mean(kind, 'num_attacked'))))
  return values
