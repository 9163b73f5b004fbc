"""Settings to study mechanisms of distribution functions.

Catalogue items EC-40 to EC-49. Theorems are those of Barczewski (2025).

  python -m launch.sweep --experiment=ecdf_mechanisms \
    --output_dir=experiments/ecdf_mechanisms/results

All methods have the same privacy. The measure is the mean squared error of the
ranks, in units of 1/epsilon^2 or 1/(2 rho). Methods:
  paper, dyadic           Theorems 6.3.1 and 6.3.2 as printed; the same with
                          calibrated noise
  tuned_dyadic            dyadic, with the best noise for each level (zCDP)
  histogram               noisy counts, cumulated
  plain_binary, plain     sums of whole nodes of a tree: a binary tree, or one
                          of the best shape
  honaker_binary          a binary tree whose nodes are estimated from below
  signed, signed_honaker  sums that may also subtract nodes; the second with
                          nodes estimated from below
  binary, tuned_binary    least squares over a binary tree; the same with the
                          best budget for each level
  tree                    least squares over a tree of the best shape
  square_root             the square-root factorisation (zCDP)
  smooth_binary           balanced binary codes (zCDP)
  bound, optimum          for all factorisations: a lower bound of the error;
                          the best error, by numerical optimisation

Errors are closed forms at every N; at N = 2^10 they are simulated too. Errors
of monotone curves on X_pois(3) are simulated, under replace_one.

Expected under replace_one: compared with `paper`, the error of the tree is an
eighth for pure DP, and that of the square root an eighth under zCDP; when
curves are made monotone, a twelfth to a hundredth.
"""

import dataclasses

from dpjax.privacy.adjacency import Adjacency

PAPERS = ('003',)
ARTEFACT = ('Theorems 6.3.1 and 6.3.2 of Barczewski (2025) and its statements '
            'about other trees: errors of mechanisms at equal privacy')
COST = '2 min on a CPU core'
HEADLINES = (
    'squared error is half that of the binary tree of Cardoso and Rogers',
    'other bases',
    'tree with least squares, pure privacy, replace_one',
    'square-root matrix, zCDP, replace_one',
    'after monotone projection, errors match independently computed values')

_ADD = Adjacency.ADD_OR_REMOVE_ONE.value
_REPLACE = Adjacency.REPLACE_ONE.value
_ANY = ('paper', 'dyadic', 'histogram', 'plain_binary', 'honaker_binary',
        'plain', 'signed', 'signed_honaker', 'binary', 'tree')
METHODS = {'pure': _ANY,
           'zcdp': (*_ANY[:-1], 'tuned_dyadic', 'tuned_binary', 'square_root',
                    'smooth_binary')}
SIZES = tuple(2**power for power in (6, 8, 10, 11, 12, 13, 15))
MONOTONE = {
    ('pure', 2**10): ('paper', 'dyadic', 'tree'),
    ('pure', 2**15): ('paper', 'dyadic', 'tree'),
    ('zcdp', 2**10): ('paper', 'dyadic', 'tuned_dyadic', 'binary',
                      'square_root')}
BUDGETS = {'pure': (0.01, 0.1, 0.2, 1.0, 10.0),
           'zcdp': (1e-5, 1e-4, 1e-3, 1e-2, 1.0)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One mechanism.

  Attributes:
    method: name from the list above.
    notion: 'pure' or 'zcdp'.
    adjacency: notion of neighbouring data sets.
    num_thresholds: N, the number of values.
    budget: epsilon (pure DP) or rho (zCDP).
    monotone: whether ranks are made monotone.
    repetitions: number of simulated curves, each from fresh data; 0 for a
      closed form only.
    seed: seed of data and noise.
  """
  method: str
  notion: str
  adjacency: str
  num_thresholds: int
  budget: float = 0.01
  monotone: bool = False
  repetitions: int = 0
  seed: int = 0

  dataset = 'poisson'


def _closed(sizes, repetitions):
  return tuple(
      Setting(method=method, notion=notion, adjacency=adjacency,
              num_thresholds=size,
              repetitions=repetitions if size == 2**10 else 0)
      for notion, methods in METHODS.items() for method in methods
      for adjacency in (_ADD, _REPLACE) for size in sizes)


def _limits(sizes, largest):
  return (*(Setting(method='bound', notion='zcdp', adjacency=_ADD,
                    num_thresholds=size) for size in sizes),
          *(Setting(method='optimum', notion='zcdp', adjacency=adjacency,
                    num_thresholds=size)
            for adjacency in (_ADD, _REPLACE) for size in sizes
            if size <= largest))


def _monotone(tables, repetitions, budgets):
  return tuple(
      Setting(method=method, notion=notion, adjacency=_REPLACE,
              num_thresholds=size, budget=budget, monotone=True,
              repetitions=repetitions if size <= 2**10 else repetitions // 8)
      for (notion, size), methods in tables.items() for method in methods
      for budget in budgets[notion])


SETTINGS = (*_closed(SIZES, 200), *_limits(SIZES, 256),
            *_monotone(MONOTONE, 200, BUDGETS))
SMOKE = (*_closed((2**8,), 0), *_limits((64,), 0),
         *(dataclasses.replace(setting, repetitions=100)
           for setting in _closed((64,), 0)
           if setting.method in ('tree', 'plain_binary')
           and setting.adjacency == _ADD),
         *_monotone({('pure', 64): ('paper', 'dyadic', 'tree'),
                     ('zcdp', 64): ('square_root', 'paper')}, 30,
                    {'pure': (0.1,), 'zcdp': (1e-3,)}))

TAGS = {'quick': lambda setting: (
    setting.num_thresholds <= 2**10 and not (
        setting.repetitions and setting.adjacency == _ADD)
    and (not setting.monotone or setting.budget in (0.1, 1e-3)))}
