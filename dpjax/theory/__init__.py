"""What private estimation can and cannot do: bounds and optimal estimators.

`minimax` has lower bounds on the risk of any private estimator, `densities`
those of density estimation; `parametric` has estimators of parameters with
risks in closed form, and studies that set both side by side. Everyday estimates
are in `dpjax.stats`.

Modules, in import order: minimax, densities, parametric.
"""

__all__ = ['densities', 'minimax', 'parametric']
