"""Settings to study conversions.

Catalogue items EXP-06, ALG-02 and ALG-04.

  python -m launch.sweep --experiment=conversions \
    --output_dir=experiments/conversions/results

Kinds of settings:
  zcdp  rho-zCDP as (epsilon, delta)-DP: by the closed form, by one Renyi order,
        by the accountant, and exactly for the Gaussian release with this rho
  pure  epsilon-DP as zCDP (delta is 0): by the closed form, by the tight
        conversion, and exactly for some single mechanisms

Expected at rho 1, delta 1e-5: epsilon is 7.786 by the closed form, 7.077 by the
accountant, and 6.573 for a Gaussian release. At epsilon 1: rho is 0.5 by the
closed form, 0.462 by the tight conversion, and 0.368 for Laplace noise.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = 'section 2.2.2 of Lalanne (2023): conversions between definitions'
COST = '1 s on a CPU core'
HEADLINES = ('rho-zCDP is', 'epsilon-DP is epsilon^2 / 2-zCDP')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One guarantee.

  Attributes:
    kind: name from the list above.
    parameter: rho (kind zcdp) or epsilon (kind pure).
    delta: delta of the resulting guarantee.
  """
  kind: str
  parameter: float
  delta: float = 0.0

  seed = 0
  method = 'conversion'
  dataset = 'none'


RHOS = (0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
DELTAS = (1e-3, 1e-5, 1e-7, 1e-9)
EPSILONS = (0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

SETTINGS = (
    *(Setting(kind='zcdp', parameter=rho, delta=delta) for delta in DELTAS
      for rho in RHOS),
    *(Setting(kind='pure', parameter=epsilon) for epsilon in EPSILONS))

SMOKE = tuple(setting for setting in SETTINGS
              if setting.delta != 1e-7 and 0.005 < setting.parameter < 5)
