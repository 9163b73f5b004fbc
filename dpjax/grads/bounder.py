"""The contract between what is summed over records and what is noised.

A `GradientBounder` is two pure functions. `sums` reads the batch and adds up
one contribution for each record; `l2_sensitivity` says, block by block, how
large one contribution can be, and reads only a certificate of the parameters.
It cannot see the batch, so no batch statistic can enter the noise scale; that
it changes with the parameters costs nothing, since these are released (E32).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax

from dpjax.grads.quantiles import Adaptive
from dpjax.typing import Array, Params, PRNGKey, PyTree

Certificate = PyTree
"""What a weight constraint proves of the parameters it returns."""


class BoundedSums(NamedTuple):
  """Sums over the records of a batch; private, to be noised before release.

  Attributes:
    total: contributions, a pytree of the structure of the parameters.
    loss: sum of the losses; diagnostic, exact and so never to be released.
    num_nonfinite: how many records were NaN or infinite and counted as zero.
    indicators: of an adaptive bounder: sums of centred indicators, a pytree of
      the structure of its radii (`quantiles.centred_indicators`).
  """
  total: PyTree
  loss: Array
  num_nonfinite: Array
  indicators: PyTree = ()


class GradientBounder(NamedTuple):
  """Per-record contributions and the bound that holds for each of them.

  Attributes:
    sums: (params, batch, mask [b] bool) -> BoundedSums. Each record's
      contribution depends on that record and `params` alone; masked and
      non-finite records contribute exactly zero.
    l2_sensitivity: certificate -> a tree prefix of the parameters whose leaves
      are the l2 bounds of one record's contribution to each block. Under
      replace-one a sum moves by twice that; accounting takes care of it.
    adaptive: public radii that move from step to step (LDP-06). With it both
      functions take the radii of this step as one more, last argument, and
      `sums` gives the `indicators`; see `at_radii`.
    views: (key of this step, numbers [b] of the records, x) -> x as `sums`
      expects it: augmented views, drawn for each record from its own number
      (REG-04). None: records come as they are.
  """
  sums: Callable[..., BoundedSums]
  l2_sensitivity: Callable[..., PyTree]
  adaptive: Adaptive | None = None
  views: Callable[[PRNGKey, Array, PyTree], PyTree] | None = None


def at_radii(bounder: GradientBounder, radii: PyTree) -> GradientBounder:
  """The bounder of one step: with these radii, fixed and public.

  Args:
    bounder: any; one that is not adaptive is returned as it is.
    radii: of the step, of the structure of `bounder.adaptive.init`.
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
  """What ends a step: a projection of the parameters, with its certificate.

  Attributes:
    constrain: params -> (params, certificate); post-processing of noisy
      parameters, free of privacy cost.
    between: cheaper, in its place after steps whose number `every` does not
      divide; its certificate is all that the sensitivity reads.
    every: how often `constrain` is due if there is a `between`.
  """
  constrain: Callable[[Params], tuple[Params, Certificate]]
  between: Callable[[Params], tuple[Params, Certificate]] | None = None
  every: int = 1

  def after_step(self, params: Params,
                 step: Array) -> tuple[Params, Certificate]:
    """Parameters as step number `step`, counted from 1, leaves them."""
    if self.between is None:
      return self.constrain(params)
    return jax.lax.cond(step % self.every == 0, self.constrain, self.between,
                        params)


def no_constraint() -> WeightConstraint:
  """Leaves the parameters as they are and certifies nothing."""
  return WeightConstraint(lambda params: (params, ()))


class Method(NamedTuple):
  """A training method: how records are bounded, how the weights are held.

  Attributes:
    name: as in results tables.
    bounder: sums and their sensitivity.
    constraint: applied once to the initial parameters and after every step.
    private: whether the sums are noised; a non-private method's epsilon is
      infinite whatever else is configured.
    pullback: an optax transform of noisy gradients, before the optimiser;
      where sums are taken in a function of the parameters (REG-02).
    noise_order: None for Gaussian noise and l2 bounds; p in {1, 2, inf} for
      K-norm noise and bounds of the p-norm (LDP-03).
  """
  name: str
  bounder: GradientBounder
  constraint: WeightConstraint
  private: bool
  pullback: optax.GradientTransformation | None = None
  noise_order: float | None = None
