"""What private estimation can and cannot do: bounds and optimal estimators.

`minimax` has lower bounds on the risk of any private estimator; `parametric`
has estimators of parameters with risks in closed form, and studies that set
both side by side. Everyday estimates are in `dpjax.stats`.

Modules, in import order: minimax, parametric.
"""

__all__ = ['minimax', 'parametric']
