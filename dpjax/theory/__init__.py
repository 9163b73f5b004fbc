"""Bounds on the error of private estimators, and optimal estimators.

`minimax` has lower bounds on the risk of any private estimator; `parametric`
has estimators of parameters with risks in closed form, and studies that set
both side by side. Everyday estimates are in `dpjax.stats`.

Modules, in import order: minimax, parametric.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.theory.minimax.proportions_exact import solve as solve
  from dpjax.theory.parametric.noisy_shares import MinimaxShare as MinimaxShare
  from dpjax.theory.parametric.normal_intervals import (
    NormalInterval as NormalInterval,
  )
  from dpjax.theory.parametric.normal_means import NormalMean as NormalMean
  from dpjax.theory.parametric.studies import STUDIES as STUDIES
  from dpjax.theory.parametric.supports import NoisyMaximum as NoisyMaximum
  from dpjax.theory.parametric.truncated_means import (
    TruncatedMean as TruncatedMean,
  )

__all__ = [
    'MinimaxShare', 'NoisyMaximum', 'NormalInterval', 'NormalMean', 'STUDIES',
    'TruncatedMean', 'solve'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'solve': 'minimax.proportions_exact',
      'MinimaxShare': 'parametric.noisy_shares',
      'NormalInterval': 'parametric.normal_intervals',
      'NormalMean': 'parametric.normal_means', 'STUDIES': 'parametric.studies',
      'NoisyMaximum': 'parametric.supports',
      'TruncatedMean': 'parametric.truncated_means'})
