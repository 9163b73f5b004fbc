"""Settings to count the bits that a joint ROC curve takes.

Catalogue items EC-21, EC-35 and C17.

  python -m launch.sweep --experiment=mpc_communication \
    --output_dir=experiments/mpc_communication/results

Each owner has one record. There are m servers, |B| of N thresholds are asked,
and the two curves have numbers of k = 32 bits. Methods:
  fss            comparison keys for two servers; for more servers no such keys
                 exist, and the setting counts the cost that Barczewski (2025)
                 draws for them
  fss_2016       the same with the longer keys of the work that he cites
  shares         every threshold is asked separately, with a share to each
                 server
  masked         the same with one sum of masked numbers
  one_shot       shares of all answers in one message, expanded from seeds
  additive       shares of the indicator of the bin, expanded from seeds
  outer_product  Shamir shares of a row and a column, for three servers or more

Figure 6.6.6 (a) is figure=points, with 3 servers for outer_product and 2 for
the others; (b) is figure=servers, at 256 thresholds. With figure=counted, the
messages are built and their bits counted.
"""

import dataclasses

PAPERS = ('003',)
ARTEFACT = ('Figure 6.6.6 of Barczewski (2025): bits sent for private '
            'distribution functions, by formula and counted')
COST = '5 s on a CPU core'
HEADLINES = ('keys are', 'the total', 'aggregation')
BATCHED = ('method', 'num_servers', 'num_points')

METHODS = ('fss', 'fss_2016', 'shares', 'masked', 'one_shot', 'additive',
           'outer_product')
POINTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SERVERS = tuple(range(2, 11))
BANK = 45_211


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One protocol.

  Attributes:
    figure: part of the figure: 'points', 'servers' or 'counted'.
    method: name from the list above.
    num_servers: m, the number of servers.
    num_points: |B|, the number of thresholds that are asked.
    num_owners: n, the number of owners.
    num_thresholds: N, the number of values.
    value_bits: k, the bits of a number.
    seed: seed of the records whose messages are counted.
  """
  figure: str
  method: str
  num_servers: int
  num_points: int
  num_owners: int = BANK
  num_thresholds: int = 2**10
  value_bits: int = 32
  seed: int = 0

  dataset = 'bank_full'


def _settings(figure, servers, num_points, **fields):
  return tuple(
      Setting(figure=figure, method=method, num_servers=number,
              num_points=points, **fields)
      for method in METHODS for number in servers for points in num_points
      if method != 'outer_product' or number > 2)


_POINTS = (
    *_settings('points', (2,), POINTS),
    *(Setting(figure='points', method='outer_product', num_servers=3,
              num_points=points) for points in POINTS))
_COUNTED = tuple(
    setting for setting in _settings('counted', (2, 3), (1, 7), num_owners=50,
                                     num_thresholds=2**6)
    if not setting.method.startswith('fss')
    or setting.num_servers == 2 and setting.method == 'fss')
SETTINGS = (*_POINTS, *_settings('servers', SERVERS, (256,)), *_COUNTED)
SMOKE = (*_settings('points', (2, 3), (10, 100, 1000)),
         *_settings('servers', (2, 5), (256,)), *_COUNTED)
