"""Interfaces of gradient bounders, weight constraints and training methods.

A `GradientBounder` is a pair of pure functions. `sums` reads the batch and adds
one contribution per record. `l2_sensitivity` bounds one contribution, block by
block, and reads only a certificate of the parameters. It cannot read the batch,
so no private statistic can enter the noise scale. Its dependence on the
parameters costs no privacy, because these are released (E32).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax

from dpjax.grads.quantiles import Adaptive
from dpjax.typing import Array, Params, PRNGKey, PyTree

Certificate = PyTree
"""Norm bounds that a weight constraint guarantees for its parameters."""


class BoundedSums(NamedTuple):
  """Exact sums over the records of a batch; PRIVATE until noise is added.

  Attributes:
    total: sum of the contributions, with the structure of the parameters.
    loss: sum of the losses; a diagnostic that must not be released.
    num_nonfinite: number of records with NaN or infinite values, which
      contributed zero; must not be released.
    indicators: for an adaptive bounder, the sums of centred indicators, with
      the structure of its radii (`quantiles.centred_indicators`).
  """
  total: PyTree
  loss: Array
  num_nonfinite: Array
  indicators: PyTree = ()


class GradientBounder(NamedTuple):
  """Sums of per-record contributions, and the bound on each contribution.

  Attributes:
    sums: (params, batch, mask [b] bool) -> BoundedSums. The contribution of a
      record depends on that record and on `params` only. Masked and non-finite
      records contribute exactly zero.
    l2_sensitivity: certificate -> tree prefix of the parameters. Its leaves
      bound the l2 norm of one record's contribution to each block, which is the
      sensitivity under add-or-remove-one. Under replace-one the sensitivity is
      twice that; the accountant includes the factor.
    adaptive: public radii that change from step to step (LDP-06), or None. With
      radii, both functions take those of the step as an additional last
      argument, and `sums` returns `indicators`; see `at_radii`.
    views: (key of the step, numbers [b] of the records, x) -> augmented views,
      in the form that `sums` takes. The views of a record are drawn from its
      own number (REG-04). None: no augmentation.
  """
  sums: Callable[..., BoundedSums]
  l2_sensitivity: Callable[..., PyTree]
  adaptive: Adaptive | None = None
  views: Callable[[PRNGKey, Array, PyTree], PyTree] | None = None


def at_radii(bounder: GradientBounder, radii: PyTree) -> GradientBounder:
  """Returns the bounder of one step, with its radii fixed.

  Args:
    bounder: returned as it is if it is not adaptive.
    radii: public radii for the step, with the structure of
      `bounder.adaptive.init`.
  """
  if bounder.adaptive is None:
    return bounder
  return bounder._replace(
      sums=lambda params, batch, mask: bounder.sums(params, batch, mask,
                                                    radii),
      l2_sensitivity=lambda certificate: bounder.l2_sensitivity(certificate,
                                                                radii),
      adaptive=None)


class WeightConstraint(NamedTuple):
  """A projection of the parameters that ends each step.

  Attributes:
    constrain: params -> (params, certificate). Post-processing of noisy
      parameters, so it costs no privacy.
    between: a cheaper replacement for `constrain` after steps whose number is
      no multiple of `every`; None for none. It must certify every norm that the
      sensitivity reads.
    every: number of steps between calls of `constrain`, if `between` is given.
  """
  constrain: Callable[[Params], tuple[Params, Certificate]]
  between: Callable[[Params], tuple[Params, Certificate]] | None = None
  every: int = 1

  def after_step(self, params: Params,
                 step: Array) -> tuple[Params, Certificate]:
    """Returns constrained parameters and certificate after a step.

    Args:
      params: after the optimiser's update.
      step: number of the step, counted from 1.
    """
    if self.between is None:
      return self.constrain(params)
    return jax.lax.cond(step % self.every == 0, self.constrain, self.between,
                        params)


def no_constraint() -> WeightConstraint:
  """Returns a constraint that changes nothing and certifies nothing."""
  return WeightConstraint(lambda params: (params, ()))


class Method(NamedTuple):
  """A training method: a gradient bounder and a weight constraint.

  Attributes:
    name: as in results tables.
    bounder: sums of contributions, and their sensitivity.
    constraint: applied to the initial parameters and after every step.
    private: whether the sums get noise. If False, epsilon is infinite.
    pullback: an optax transform of the noisy gradient before the optimiser,
      for models whose gradients are taken by a function of the parameters
      (REG-02); None for none.
    noise_order: None for Gaussian noise and l2 bounds; p in {1, 2, inf} for
      K-norm noise and p-norm bounds (LDP-03).
  """
  name: str
  bounder: GradientBounder
  constraint: WeightConstraint
  private: bool
  pullback: optax.GradientTransformation | None = None
  noise_order: float | None = None
