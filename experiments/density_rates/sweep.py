"""Settings to study rates of density estimators.

Catalogue items DEN-X4 and DEN-X5. The paper is Lalanne, Garivier and Gribonval
(2023).

  python -m launch.sweep --experiment=density_rates \
    --output_dir=experiments/density_rates/results

The measure is the mean integrated squared error in closed form, on densities
that just belong to the class of smoothness beta. Methods, see
`experiments/density_settings.py`:
  pure_printed, zcdp_printed  sums of a Fourier basis with the printed noise
  pure_exact, zcdp_exact      the same with exact sensitivities
  relaxed                     Corollary 2 at delta = n^-2
  spectral                    Fourier coefficients of a noisy histogram, pure DP
  taper                       the same with the taper for the class, which needs
                              beta and L
  none                        the estimator without privacy
  uniform                     the uniform density, which needs no data
Tunings: `oracle` is the best for the density; `printed` is that of the paper;
`fixed` is 21 bins and 5 frequencies; `class` is the best for the worst density
of the class.

Studies, and the meaning of their field `scale`:
  privacy   n alpha, with n infinite: the error due to noise alone (for
            `relaxed`, n = 10^6)
  sampling  n, without noise
  records   n, at epsilon = .1 and rho = epsilon^2 / 2
  table     n, at the epsilon of the setting and rho = epsilon^2 / 2

Expected: the slopes of the theory; the values of the catalogue items DEN-8.2 to
1 % and DEN-8.3 to three digits.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Theorem 4 and Corollary 2 of Lalanne, Garivier and Gribonval '
            '(2023) (Lalanne, 2023, Theorem 5.2.3): rates of private '
            'projection estimators, and of estimators that reach the lower '
            'bound')
COST = '20 s on a CPU core'
GALLERY = 'Densities: errors against the lower bound'
HEADLINES = ('the pure Fourier', 'pure privacy by', 'at n epsilon = 10^6')

TUNINGS = {'pure_printed': ('printed', 'oracle'), 'pure_exact': ('oracle',),
           'relaxed': ('oracle',), 'spectral': ('oracle',),
           'taper': ('class',), 'zcdp_printed': ('printed', 'oracle'),
           'zcdp_exact': ('oracle',), 'uniform': ('fixed',)}
SMOOTHNESS = (1, 2, 3)
SIGNALS = tuple(10.0**(half / 2) for half in range(4, 13))
SIZES = tuple(10.0**(half / 2) for half in range(6, 17))
TABLE = ((1e3, 1.0), (1e4, 0.1), (1e4, 1.0), (1e5, 0.01), (1e5, 0.1),
         (1e6, 0.01))
# Settings in which only the smoothness varies.
ALONG = ((1e4, 0.1), (1e5, 0.1), (1e5, 0.01))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One error of a density estimator.

  Attributes:
    study: name from the list above.
    method: name from the list above.
    tuning: name from the list above.
    dataset: name of the density.
    scale: value of n or n alpha, as the study has it.
    epsilon: epsilon of the setting; 0 where `scale` contains it.
    seed: unused, since results are exact.
  """
  study: str
  method: str
  tuning: str
  dataset: str
  scale: float
  epsilon: float = 0.0
  seed: int = 0

  @property
  def smoothness(self) -> int:
    """Returns beta, which ends the name of the density."""
    return int(self.dataset[-1])


def _study(study, kinds, scales, epsilon=0.0, skipped=()):
  return tuple(
      Setting(study=study, method=method, tuning=tuning, scale=scale,
              dataset=f'{kind}{order}', epsilon=epsilon)
      for kind in kinds for order in SMOOTHNESS
      for method, tunings in TUNINGS.items() if method not in skipped
      for tuning in tunings for scale in scales)


def _table(cells, orders):
  pairs = [(method, tuning) for method, tunings in TUNINGS.items()
           for tuning in tunings if method != 'taper']
  return tuple(
      Setting(study='table', method=method, tuning=tuning, scale=size,
              dataset=f'sobdet{order}', epsilon=epsilon)
      for order in orders for size, epsilon in cells
      for method, tuning in (*pairs, ('spectral', 'fixed')))


def _sampling(sizes):
  return tuple(Setting(study='sampling', method='none', tuning='oracle',
                       dataset=f'sobrand{order}', scale=size)
               for order in SMOOTHNESS for size in sizes)


SETTINGS = (*_study('privacy', ('sobrand', 'sobdet'), SIGNALS),
            *_study('records', ('sobrand',), SIZES, 0.1),
            *_sampling(SIZES), *_table(TABLE, SMOOTHNESS), *_table(ALONG, (4,)))
SMOKE = (*_study('privacy', ('sobrand',), (1e3, 1e4)),
         *_study('records', ('sobrand',), (1e4,), 0.1),
         *_sampling((1e3, 1e4)), *_table(((1e4, 0.1),), SMOOTHNESS),
         *_table(((1e4, 0.1),), (4,)))
