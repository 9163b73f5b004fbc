"""The training methods: each is a gradient bounder and a weight constraint.

All methods get the same batches, the same kind of privatizer and the same
optimiser. Guarantee of the private ones: with the noise of a `TrainingPlan`,
the run is (epsilon, delta)-DP for every pair that `plan.epsilon(delta)`
returns, whatever the data.

The network decides how `lip_dp_sgd` bounds gradients: activations projected on
balls (LDP-05), norms propagated through bounded layers (LDP-07), or
normalisation in front of parameter layers (LDP-08). A step (LDP-10) computes
in this order: certified norms, sensitivities, noise scales, the plain batch
gradient, noise, division by the public batch size, optimiser, ClipWeights
(the projection of the weights).

Losses and networks are those of `dpjax.lipschitz`; a method that does not use
the Lipschitz constant of the loss takes any loss.
"""

import functools

import jax

from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import per_example
from dpjax.grads import precision
from dpjax.grads import quantiles
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz import k_norm
from dpjax.lipschitz import projection
from dpjax.lipschitz import reparametrisation
from dpjax.lipschitz import rules
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.models.model import Model
from dpjax.models.model import network_of
from dpjax.train import clip_norms
from dpjax.typing import ApplyFn


def sgd(model: Model, loss: LipschitzLoss, *,
        compute_dtype: str = 'float32') -> Method:
  """Returns non-private stochastic gradient descent (DP-14).

  Source: Barczewski (2025, Algorithm 1).

  Args:
    model: any model.
    loss: any loss.
    compute_dtype: see `dp_sgd`.
  """
  apply = _computed_in(model, compute_dtype)
  return Method('sgd', per_example.summed(apply, loss.values),
                bounders.no_constraint(), private=False)


def dp_sgd(model: Model, loss: LipschitzLoss, *, clip_norm: float,
           microbatch_size: int | None = None, kernel: str = 'bookkeeping',
           compute_dtype: str = 'float32') -> Method:
  """Returns DP-SGD with flat clipping (DP-16).

  Source: Abadi et al. (2016); Barczewski (2025, Algorithm 7).

  Args:
    model: any model.
    loss: any loss.
    clip_norm: l2 bound on a record's whole gradient; public.
    microbatch_size: records whose gradients are held at once; None chooses it.
    kernel: how the gradients of records are computed, one of
      `per_example.KERNELS`.
    compute_dtype: type of the network's forward and backward pass, one of
      `precision.COMPUTE_DTYPES`. Parameters, norms, sums and noise are always
      float32, and the guarantee is the same.
  """
  bounder = per_example.clipped(
      _computed_in(model, compute_dtype), loss.values, clip_norm=clip_norm,
      microbatch_size=microbatch_size, kernel=kernel)
  return _clipping_method('dp_sgd', bounder)


def dp_sgd_per_layer(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                     microbatch_size: int | None = None,
                     compute_dtype: str = 'float32') -> Method:
  """Returns DP-SGD that clips each layer's gradient separately (DP-16).

  Each of the K layers is clipped to clip_norm / sqrt(K), so that the whole
  gradient has an l2 norm of at most `clip_norm`.

  Args: see `dp_sgd`.
  """
  names = sorted(jax.eval_shape(model.init, jax.random.key(0)))
  bounder = per_example.clipped(
      _computed_in(model, compute_dtype), loss.values,
      microbatch_size=microbatch_size,
      clip_norm=clipping.per_layer(names, clip_norm=clip_norm))
  return _clipping_method('dp_sgd_per_layer', bounder)


def dp_sgd_automatic(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                     stabilizer: float = 0.01,
                     microbatch_size: int | None = None,
                     compute_dtype: str = 'float32') -> Method:
  """Returns DP-SGD with automatic clipping (Bu et al., 2023; DP-16).

  A record contributes clip_norm g / (||g|| + stabilizer), g its gradient.

  Args: see `dp_sgd`; `stabilizer` is public, >= 0, and in the unit of
  gradient norms.
  """
  bounder = per_example.normalized(
      _computed_in(model, compute_dtype), loss.values, clip_norm=clip_norm,
      stabilizer=stabilizer, microbatch_size=microbatch_size)
  return _clipping_method('dp_sgd_automatic', bounder)


def dp_sgd_adaptive(model: Model, loss: LipschitzLoss, *, clip_norm: float,
                    noise_stddev: float, target_quantile: float = 0.5,
                    learning_rate: float = 0.2, clip_blocks: str = 'whole',
                    microbatch_size: int | None = None,
                    compute_dtype: str = 'float32') -> Method:
  """Returns DP-SGD whose clip norm follows a private quantile (DP-16, LDP-06).

  Each step also releases a noisy count of the gradients shorter than the clip
  norm, and moves the clip norm geometrically towards the target quantile.

  Args:
    model: any model.
    loss: any loss.
    clip_norm: initial clip norm.
    noise_stddev: see `clip_norms.adaptive`.
    target_quantile: fraction of gradients that should stay unclipped.
    learning_rate: learning rate of the geometric update.
    clip_blocks: 'whole' for one clip norm, or 'layers' for one for each of the
      K layers, clip_norm / sqrt(K) at first.
    microbatch_size: see `dp_sgd`.
    compute_dtype: see `dp_sgd`.
  """
  bounder = per_example.adaptively_clipped(
      _computed_in(model, compute_dtype), loss.values,
      microbatch_size=microbatch_size,
      adaptive=clip_norms.adaptive(
          jax.eval_shape(model.init, jax.random.key(0)), clip_norm=clip_norm,
          noise_stddev=noise_stddev, target_quantile=target_quantile,
          learning_rate=learning_rate, blocks=clip_blocks))
  return _clipping_method('dp_sgd_adaptive', bounder)


def layer_clipped(model: Model, loss: LipschitzLoss, *,
                  clip_norm: float) -> Method:
  """Returns layer-wise clipping in one backward pass, unconstrained (LDP-09).

  It computes the gradients of DP-SGD with per-layer clipping for the time of
  an ordinary batch gradient. As a baseline it separates two effects of the
  Lipschitz methods: no gradient per record is formed, and the network is
  Lipschitz.

  Args:
    model: a model that states its layers.
    loss: any loss.
    clip_norm: l2 bound on a record's gradient over all layers together.
  """
  network = network_of(model)
  num_layers = len(jax.tree.leaves(network.fill(1.0)))
  # K layers of clip_norm / sqrt(K) each have norm clip_norm together. The rule
  # bounds gradients without reading any norm, so weight_norm has no effect.
  rule = rules.clipped_layers(clip_norm=clip_norm / num_layers**0.5)
  return _clipping_method('layer_clipped', lipschitz_bounder.certified(
      network, loss, weight_norm=1.0, rule=rule))


def lip_dp_sgd(model: Model, loss: LipschitzLoss, *, weight_norm: float,
               recertify_every: int = 1) -> Method:
  """Returns Lip-DP-SGD: plain gradients of a network with weight norms <= C.

  This is a sound form of Barczewski (2025, Algorithm 8): it leaves out the
  division by the largest activation of the batch, which reads other records.
  If the model reparametrises its weights, the gradient by the *weights* is
  bounded and noised, and then pulled back to the parameters.

  Args:
    model: a model that states its layers.
    loss: with a known Lipschitz constant.
    weight_norm: C, the bound on each layer's norm; positive, public.
    recertify_every: number of steps between projections of those layers whose
      norm enters no sensitivity, see `projection.rarely`. A value above 1 saves
      most of the time for the norm of a wide first layer.

  Raises:
    ValueError: if the model does not state its layers, or if its weights are
      reparametrised and recertify_every is not 1.
  """
  network = network_of(model)
  bounder = lipschitz_bounder.certified(network, loss, weight_norm=weight_norm)
  method = lipschitz_method('lip_dp_sgd', model, bounder, weight_norm)
  if model.effective is not None:
    # The map of the weights limits their norms in every step.
    if recertify_every != 1:
      raise ValueError('recertify_every must be 1 for a model with '
                       'reparametrised weights, which are never projected')
    return method
  return method._replace(constraint=projection.rarely(
      method.constraint, network, bounder, every=recertify_every))


def fix_lip_dp_sgd(model: Model, loss: LipschitzLoss, *,
                   weight_norm: float) -> Method:
  """Returns Fix-Lip-DP-SGD: `lip_dp_sgd` with weight norms = C (LDP-02).

  Source: Barczewski (2025, section 5.3.1).

  Args: see `lip_dp_sgd`.
  """
  network = network_of(model)
  bounder = lipschitz_bounder.certified(network, loss, weight_norm=weight_norm)
  constraint = projection.fix_weights(network, weight_norm=weight_norm)
  return Method('fix_lip_dp_sgd', bounder, constraint, private=True)


def lip_normalised(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                   floor: float = 1e-2) -> Method:
  """Returns Lip-DP-SGD with backward-normalised layers (LDP-04).

  A record's gradient of a layer is divided by a bound on that record's input to
  the layer. This is the division of Barczewski (2025, Algorithm 8), done per
  record; activations then need no bound.

  Args:
    model: a model that states its layers.
    loss: with a known Lipschitz constant.
    weight_norm: C, the bound on each layer's norm; positive, public.
    floor: smallest divisor, positive.
  """
  bounder = lipschitz_bounder.certified(
      network_of(model), loss, weight_norm=weight_norm,
      rule=rules.normalised(floor=floor))
  return lipschitz_method('lip_normalised', model, bounder, weight_norm)


def lip_adaptive(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                 noise_stddev: float, target_quantile: float = 0.9,
                 learning_rate: float = 0.2) -> Method:
  """Returns Lip-DP-SGD whose ball radii follow private quantiles.

  Activations are projected on balls (LDP-05) whose radii adapt (LDP-06).

  Args:
    model: a model with adaptive balls.
    loss: with a known Lipschitz constant.
    weight_norm: C, the bound on each layer's norm; positive, public.
    noise_stddev: standard deviation of the noise on each count of activations
      within their radius, in records.
    target_quantile: fraction of activations that should lie within.
    learning_rate: learning rate of the geometric update of a radius.
  """
  bounder = adaptive.adaptively_certified(
      network_of(model), loss, weight_norm=weight_norm,
      make_adaptive=functools.partial(
          quantiles.geometric, target_quantile=target_quantile,
          learning_rate=learning_rate, noise_stddev=noise_stddev))
  return lipschitz_method('lip_adaptive', model, bounder, weight_norm)


def lip_k_norm(model: Model, loss: LipschitzLoss, *, weight_norm: float,
               order: float) -> Method:
  """Returns Lip-DP-SGD with K-norm noise, for p = 1 or infinity (LDP-03).

  Args:
    model: a perceptron whose layer inputs are projected on balls.
    loss: with a known Lipschitz constant.
    weight_norm: C, the bound on each operator norm ||W||_{p->p}; public.
    order: p.
  """
  network = network_of(model)
  return Method(
      'lip_k_norm', k_norm.certified(network, loss, order=order),
      k_norm.clip_weights(network, weight_norm=weight_norm, order=order),
      private=True, noise_order=order)


def lipschitz_method(name: str, model: Model, bounder: GradientBounder,
                     weight_norm: float) -> Method:
  """Returns a method that bounds weights: by ClipWeights, or by their map.

  With reparametrised weights the bounder sees the weights that the parameters
  map to. That map certifies their norms, so nothing is projected.

  Args:
    name: name of the method.
    model: a model that states its layers.
    bounder: bounds the gradients of a network with bounded weights.
    weight_norm: C, the bound on each layer's norm; positive, public.
  """
  effective = model.effective
  if effective is None:
    return Method(name, bounder, projection.clip_weights(
        network_of(model), weight_norm=weight_norm), private=True)
  weights = lambda params: effective(params)[0]
  return Method(
      name, bounder._replace(sums=lambda params, *rest: bounder.sums(
          weights(params), *rest)),
      bounders.WeightConstraint(
          lambda params: (params, effective(params)[1])),
      private=True, pullback=reparametrisation.pullback(weights))


def _computed_in(model: Model, compute_dtype: str) -> ApplyFn:
  """Returns the model's `apply` in this type; weight maps stay in float32."""
  effective = model.effective
  if effective is None:
    return precision.computed_in(model.apply, compute_dtype)
  network = precision.computed_in(network_of(model).apply, compute_dtype)
  return lambda params, x: network(effective(params)[0], x)


def _clipping_method(name: str, bounder: GradientBounder) -> Method:
  """Returns a private method that leaves the weights unconstrained."""
  return Method(name, bounder, bounders.no_constraint(), private=True)
