"""Settings that time Figure 6.6.7 of Barczewski (2025).

Catalogue items EC-36 and C13.

  python -m launch.sweep --experiment=smoothing_time \
    --output_dir=experiments/smoothing_time/results

Each solver smooths one private curve on X_pois(3) at epsilon 0.5, with dyadic
noise of the printed scale:
  cvxopt_qp, cvxopt_lp  the programs of that work, p = 2 and p = 1, with
                        differences of consecutive rows: 4 N numbers
  qp_rows, lp_rows      the same with the rows as printed: N (L + 1) numbers
  clarabel_qp, osqp_qp  newer solvers for p = 2
  highs_lp              a newer solver for p = 1
  p2, p1                ours, compiled
  pava                  isotonic regression, which is another problem

cvxopt, clarabel and osqp are extras (bench); a solver that is not installed is
left out with a note. Compilation is timed separately. Run on an otherwise idle
machine.
"""

import dataclasses

PAPERS = ('003',)
ALONE = True
TIMES = ('calls', 'compile_seconds', 'fastest', 'seconds', 'slowest')
ARTEFACT = 'Figure 6.6.7 of Barczewski (2025): seconds of smoothing against N'
COST = '3 min on two CPU cores'
HEADLINES = ('the quadratic program', "dpjax's solver takes")
BATCHED = ('method',)

_MOST = {'qp_rows': 8, 'lp_rows': 8, 'cvxopt_lp': 12, 'cvxopt_qp': 13,
         'highs_lp': 14, 'osqp_qp': 15, 'clarabel_qp': 15, 'p2': 20, 'p1': 16,
         'pava': 16}
_LEVELS = (6, 8, 10, 12, 13, 14, 15, 16, 18, 20)
METHODS = tuple(_MOST)
# Methods whose objective is that of p = 2, or of p = 1.
QUADRATIC = ('qp_rows', 'cvxopt_qp', 'osqp_qp', 'clarabel_qp', 'p2')
LINEAR = ('lp_rows', 'cvxopt_lp', 'highs_lp', 'p1')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One solver on one curve.

  Attributes:
    method: name from the list above.
    num_thresholds: N, a power of two.
    at_least: least total seconds of the timed calls; at least three are made.
    seed: seed of the curve.
  """
  method: str
  num_thresholds: int
  at_least: float = 0.5
  seed: int = 0

  dataset = 'poisson'


SETTINGS = tuple(
    Setting(method=method, num_thresholds=2**levels)
    for levels in _LEVELS for method, most in _MOST.items()
    if levels <= most)
SMOKE = tuple(Setting(method=method, num_thresholds=2**4, at_least=0.01)
              for method in METHODS)

TAGS = {'quick': lambda setting: (
    setting.num_thresholds in (2**12, 2**14)
    and setting.method in ('highs_lp', 'p2', 'p1', 'pava'))}
