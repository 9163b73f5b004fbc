"""Table 1.1 of Lalanne (2023) as a configuration. MIA-09."""

from typing import NamedTuple

from experiments.mia_sparsity import sweep


class Rates(NamedTuple):
  """The initial learning rate and the weight decay of a kind."""
  learning_rate: float
  weight_decay: float


DENSE = Rates(0.03, 0.005)
"""Of the dense network and of pruned ones."""

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
  """What a kind is trained with."""
  if kind.method == 'butterfly':
    return BUTTERFLIES[kind.segments, kind.factors]
  return DENSE._replace(weight_decay=DENSE.weight_decay * kind.decay)
