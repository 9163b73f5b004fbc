"""Learning rates and weight decays of Lalanne (2023, Table 1.1) (MIA-09)."""

from typing import NamedTuple

from experiments.mia_sparsity import sweep


class Rates(NamedTuple):
  """The initial learning rate and the weight decay of a kind."""
  learning_rate: float
  weight_decay: float


DENSE = Rates(0.03, 0.005)
"""Rates of the dense network and of pruned ones."""

BUTTERFLIES = {
    (1, 2): Rates(0.3, 0.0005),
    (1, 3): Rates(0.3, 0.0001),
    (2, 2): Rates(0.3, 0.0005),
    (2, 3): Rates(0.1, 0.001),
    (3, 2): Rates(0.3, 0.0005),
    (3, 3): Rates(0.1, 0.001),
}
"""(S, L) -> rates."""


def rates(kind: sweep.Kind) -> Rates:
  """Returns the rates that a kind is trained with."""
  if kind.method == 'butterfly':
    return BUTTERFLIES[kind.segments, kind.factors]
  return DENSE._replace(weight_decay=DENSE.weight_decay * kind.decay)
