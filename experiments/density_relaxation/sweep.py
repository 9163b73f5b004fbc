"""Settings to study approximate DP as a relaxation of pure DP.

Catalogue item DEN-X8. The paper is Lalanne, Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_relaxation \
    --output_dir=experiments/density_relaxation/results

Kinds of settings, with delta = n^-gamma:
  rules    the noise multiplier that each calibration rule uses (DEN-A4)
  truth    the delta that the classical rule attains when asked for 1e-5,
           whatever n is
  noise    the total noise variance of N functions, times (n epsilon)^2: pure
           noise of Theorem 4, with exact sensitivities, and of a spectral
           histogram of N bins; Gaussian noise by the classical rule, by
           Corollary 2, and by the exact curve
  cells    the error of each method at its own best N, on a random-phase density
           of smoothness beta (sobrand)
  worst    constants of the worst error over a class, where noise dominates:
           exact Gaussian noise and pure spectral histograms, each with and
           without a taper, at the n epsilon of the setting

Expected: the relaxation of the paper (Corollary 2) has less noise than its pure
estimator (Theorem 4) from N = 4 gamma ln n on. Its error at the best N is less
in 3 of 45 settings of `cells`; there, pure spectral histograms have a smaller
error than the relaxation everywhere.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Section 4.4 and Corollary 2 of Lalanne, Garivier and Gribonval '
            '(2023) (Corollary 5.2.5 of Lalanne (2023)): the gain by (epsilon, '
            'delta)-DP')
COST = '1 min on a CPU core'
HEADLINES = (
    'section 4.4',
    'the relaxation of Corollary 2 bridges',
    'a pure spectral histogram has a smaller error than the relaxations of '
    'the paper')

DELTA = 1e-5
FUNCTIONS = (3, 5, 9, 17, 33, 65, 129, 257, 513)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One comparison of mechanisms at one size and budget.

  Attributes:
    kind: name from the list above.
    num_records: n, the number of records.
    epsilon: epsilon of each release; 'worst' uses it only in n epsilon.
    gamma: exponent of delta = n^-gamma.
    size: N in 'noise', beta in 'cells' and 'worst', else 0.
  """
  kind: str
  num_records: int
  epsilon: float
  gamma: int = 2
  size: int = 0

  seed = 0
  method = 'relaxation'
  dataset = 'none'


def _noise(sizes, records):
  return tuple(Setting(kind='noise', num_records=n, epsilon=0.1, gamma=gamma,
                       size=size)
               for gamma in (1, 2, 3) for n in records for size in sizes)


def _cells(betas, records):
  return tuple(Setting(kind='cells', num_records=n, epsilon=epsilon, size=beta)
               for beta in betas for n in records for epsilon in (1, 0.1, 0.01))


def _worst(betas):
  return tuple(Setting(kind='worst', num_records=n, epsilon=signal / n,
                       size=beta)
               for beta in betas for n in (10**3, 10**4, 10**6)
               for signal in (10, 100, 1000))


_RULES = tuple(Setting(kind='rules', num_records=n, epsilon=epsilon)
               for n in (10**3, 10**4, 10**6) for epsilon in (0.1, 1))
_TRUTH = tuple(Setting(kind='truth', num_records=1, epsilon=epsilon)
               for epsilon in (0.5, 1, 2, 4, 8, 8.4, 8.45, 9, 12, 16))

SETTINGS = (*_RULES, *_TRUTH, *_noise(FUNCTIONS, (10**3, 10**6)),
            *_cells((1, 2, 3), tuple(10**k for k in range(3, 8))),
            *_worst((1, 2, 3)))
SMOKE = (*_RULES[:2], *_TRUTH[-2:], *_noise((3, 513), (10**3,)),
         *_cells((2,), (10**3,)), *_worst((1,))[:1])
