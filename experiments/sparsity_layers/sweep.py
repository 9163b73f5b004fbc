"""Settings to study butterfly layers.

Catalogue items MIA-07, MIA-08 and MIA-09. Printed percentages are those of
Lalanne (2023, Table 1.1).

  python -m launch.sweep --experiment=sparsity_layers \
    --output_dir=experiments/sparsity_layers/results

Nothing is trained and nothing is drawn. Kinds of settings:
  network  ResNet-20 whose last S segments are butterflies of L factors: its
           number of parameters; and the number if the first of these segments
           uses the chains with the next larger number of parameters
  layer    a matrix p x q and L factors: the chain with the fewest parameters,
           the number of chains and of those with as few parameters, the next
           larger number of parameters, and the number of paths that contribute
           to an entry of the product
  square   the same for a square matrix of side N = 2^L

Expected: 87898, 80666, 43450, 34682, 32122 and 23162 of 272474 parameters; the
fourth does not match the printed percentage (M-E05).
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Table 1.1 and Figure 1.3 of Lalanne (2023): parameters of '
            'butterfly networks')
COST = '5 s on a CPU core'
HEADLINES = ('Table 1.1',)

LAYERS = ((64, 576), (64, 288), (32, 288), (32, 144), (16, 144))
FACTORS = (2, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One network or matrix.

  Attributes:
    kind: name from the list above.
    num_factors: L, the number of factors.
    segments: S, the number of segments; 0 for matrices.
    num_rows: p, the number of rows; 0 for networks.
    num_columns: q, the number of columns; 0 for networks.
  """
  kind: str
  num_factors: int
  segments: int = 0
  num_rows: int = 0
  num_columns: int = 0

  seed = 0
  method = 'butterfly'
  dataset = 'none'


SETTINGS = (
    *(Setting(kind='network', segments=segments, num_factors=count)
      for segments in (1, 2, 3) for count in FACTORS),
    *(Setting(kind='layer', num_rows=p, num_columns=q, num_factors=count)
      for p, q in LAYERS for count in FACTORS),
    *(Setting(kind='square', num_rows=2**count, num_columns=2**count,
              num_factors=count) for count in range(1, 9)))

SMOKE = tuple(setting for setting in SETTINGS
              if setting.segments == 3 or setting.num_rows == 16)
