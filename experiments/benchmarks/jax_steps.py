"""Training steps in JAX: sums of gradients, noise, and plain SGD."""

from collections.abc import Callable
import functools
import math
import time
from typing import Any, NamedTuple

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import clipping
from dpjax.grads import lattice_privatizer
from dpjax.grads import per_example
from dpjax.grads import privatizer
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz import losses
from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.train import augment
from dpjax.train import methods as training
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree
from experiments.benchmarks import architectures
from experiments.benchmarks import jax_nets
from experiments.benchmarks import methods
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_COMPILED = '/jax/core/compile/backend_compile_duration'
_WEIGHT_NORM = 1.0
_LOGIT_CLIP = 0.35
_RARELY = 32
_LEAST_MICROBATCH = 32
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Rule(NamedTuple):
  """A training method as functions of one step.

  Attributes:
    params: initial parameters.
    certificate: certificate of the initial parameters.
    sums: function (params, batch, mask) that returns the sums before noise.
    mean: function (key, sums, certificate) that returns the noisy mean.
    constraint: constraint on the parameters after a step.
    sensitivity: function of the certificate that returns l2 bounds on one
      record, a tree prefix of the sums; None without noise.
    batch: the batch in the form that the method takes.
    views: function (key, batch) that returns the batch to sum over.
    generator: generator of the keys.
  """
  params: Params
  certificate: PyTree
  sums: Callable[[Params, Batch, Array], PyTree]
  mean: Callable[[PRNGKey, PyTree, PyTree], PyTree]
  constraint: WeightConstraint
  sensitivity: Callable[[PyTree], PyTree] | None
  batch: Batch
  views: Callable[[PRNGKey, Batch], Batch] = lambda key, batch: batch
  generator: str = 'threefry2x32'


def make(spec: Spec) -> Program:
  """Returns the program of a step."""
  return program(rule(spec), spec)


def rule(spec: Spec) -> Rule:
  """Returns the rule of a method by its name."""
  name, _ = methods.split(spec.method)
  architecture = architectures.MODELS[spec.model]
  apply = functools.partial(jax_nets.apply, architecture)
  if name in ('lip', 'lip_rarely'):
    return _lip(spec, architecture, _RARELY if name == 'lip_rarely' else 1)
  if name == 'ours_release':
    return _bounded(
        spec, per_example.clipped(apply, cross_entropy,
                                  clip_norm=spec.clip_norm),
        privatizer_of=lattice_privatizer.lattice_privatizer)._replace(
            generator=chacha.GENERATOR)
  if name in ('ours', 'ours_per_layer', 'ours_microbatch'):
    bound = spec.clip_norm
    if name == 'ours_per_layer':
      bound = clipping.per_layer([layer.name for layer in (
          architectures.with_parameters(architecture))], clip_norm=bound)
    size = microbatch(spec.size) if name == 'ours_microbatch' else None
    return _bounded(spec, per_example.clipped(
        apply, cross_entropy, clip_norm=bound, microbatch_size=size))
  if name == 'ours_views':
    return _viewed(spec, apply)
  if name in ('vmap', 'vmap_scaled_sum'):
    return plain(spec, _vmapped(apply, spec.clip_norm, name == 'vmap'),
                 _with_noise(additive.unit_noise, spec))
  if name == 'limit_microbatch':
    summed = per_example.summed(apply, cross_entropy).sums
    return plain(spec, lambda *batch: summed(*batch).total,
                 _with_noise(additive.unit_noise, spec))
  if name in ('nonprivate', 'ours_norms'):
    return plain(spec, _total(apply), None)
  draw = {'limit': additive.unit_noise, 'limit_normal': _library_noise}[name]
  return plain(spec, _total(apply), _with_noise(draw, spec))


def microbatch(size: int) -> int:
  """Returns the largest divisor of a batch size up to 1/16 of it, or 32."""
  most = min(size, max(_LEAST_MICROBATCH, size // 16))
  return max(number for number in range(1, most + 1) if size % number == 0)


def num_views(size: int) -> int:
  """Returns the views of each record: 16, or fewer for less than two records.
  """
  return max(number for number in (1, 2, 4, 8, 16)
             if size % number == 0 and number <= max(1, size // 2))


def plain(spec: Spec, sums: Callable,
          noisy: Callable[[PRNGKey, PyTree], PyTree] | None) -> Rule:
  """Returns the rule of sums of gradients, with noise if there is any."""
  architecture = architectures.MODELS[spec.model]
  return Rule(
      params=jax_nets.init(architecture, jax.random.key(0)), certificate=(),
      sums=sums, mean=lambda key, total, certificate: tree.scale(
          1 / spec.size, noisy(key, total) if noisy else total),
      constraint=bounders.no_constraint(),
      sensitivity=(lambda certificate: spec.clip_norm) if noisy else None,
      batch=jax_nets.batch(architecture, spec.size, jax.random.key(1)))


def _bounded(spec: Spec, bounder: GradientBounder,
             constraint: WeightConstraint | None = None, *,
             privatizer_of: Callable = privatizer.gaussian_privatizer) -> Rule:
  """Returns the rule of a bounder and a privatizer of dpjax."""

  def mean(key: PRNGKey, total: PyTree, certificate: PyTree) -> PyTree:
    transform = privatizer_of(
        key, noise_multiplier=spec.noise_multiplier,
        expected_batch_size=spec.size)
    return transform.update(
        total, transform.init(total),
        l2_sensitivity=bounder.l2_sensitivity(certificate))[0]

  unprivate = plain(spec, lambda params, batch, mask: bounder.sums(
      params, batch, mask).total, None)
  return unprivate._replace(
      mean=mean, sensitivity=bounder.l2_sensitivity,
      constraint=constraint or unprivate.constraint)


def _viewed(spec: Spec, apply: Callable) -> Rule:
  """Returns the rule with several views per record, and as many images."""
  count = num_views(spec.size)
  bounder = augment.augmented(
      lambda apply, loss: per_example.clipped(apply, loss,
                                              clip_norm=spec.clip_norm),
      apply, cross_entropy, augmentation=augment.crop_and_flip(padding=4),
      multiplicity=count)
  bounded = _bounded(spec, bounder)
  numbers = jnp.arange(spec.size // count, dtype=jnp.int32)
  return bounded._replace(
      batch=jax.tree.map(lambda leaf: leaf[:len(numbers)], bounded.batch),
      views=lambda key, batch: batch._replace(
          x=bounder.views(key, numbers, batch.x)))


def _lip(spec: Spec, architecture: architectures.Architecture,
         recertify_every: int) -> Rule:
  """Returns the rule of Lip-DP-SGD."""
  model = jax_nets.certified(architecture)
  method = training.lip_dp_sgd(model, lip_loss(), weight_norm=_WEIGHT_NORM,
                               recertify_every=recertify_every)
  bounded = _bounded(spec, method.bounder, method.constraint)
  params, certificate = method.constraint.constrain(
      model.init(jax.random.key(0)))
  return bounded._replace(
      params=params, certificate=certificate,
      batch=bounded.batch._replace(x=model.prepare(bounded.batch.x)))


def lip_loss() -> losses.LipschitzLoss:
  """Returns the loss of `lip`, which training also uses."""
  return losses.cross_entropy(logit_clip=_LOGIT_CLIP)


def _total(apply: Callable) -> Callable:
  """Returns the function of the gradient of the summed loss."""
  return lambda params, batch, mask: jax.grad(lambda p: jnp.sum(
      cross_entropy(apply(p, batch.x), batch.y)))(params)


def _vmapped(apply: Callable, clip_norm: float, contracted: bool) -> Callable:
  """Returns clipped sums by jax.vmap and jax.grad, without a library."""

  def record_loss(params, x, y):
    return cross_entropy(apply(params, x[None]), y[None])[0]

  def weighted(weights, leaf):
    if contracted:
      return jnp.tensordot(weights, leaf, 1)
    shape = (-1,) + (1,) * (leaf.ndim - 1)
    return jnp.sum(weights.reshape(shape) * leaf, 0)

  def sums(params, batch, mask):
    del mask
    gradients = jax.vmap(jax.grad(record_loss), (None, 0, 0))(
        params, batch.x, batch.y)
    norms = jnp.sqrt(sum(
        jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim)))
        for leaf in jax.tree.leaves(gradients)))
    weights = jnp.minimum(1.0, clip_norm / norms)
    return jax.tree.map(lambda leaf: weighted(weights, leaf), gradients)

  return sums


def _with_noise(draw: Callable, spec: Spec) -> Callable:
  """Returns a function that adds noise, without a public grid."""
  stddev = spec.noise_multiplier * spec.clip_norm
  return lambda key, total: jax.tree.map(
      lambda leaf, noise: leaf + stddev * noise, total, draw(key, total))


def _library_noise(key: PRNGKey, values: PyTree) -> PyTree:
  """Returns `additive.unit_noise` by the sampler of JAX."""
  flat, unravel = flatten_util.ravel_pytree(values)
  return unravel(jax.random.normal(key, flat.shape))


class _Compiled(NamedTuple):
  """A compiled step with its inputs and the metrics of compiling."""
  step: Callable
  state: Any
  batch: Batch
  mask: Array
  info: dict[str, float]


def _compile(rule_: Rule, spec: Spec) -> _Compiled:
  """Traces and compiles the step, and times both."""

  def step(state, batch, mask):
    params, certificate, key, number = state
    key, draw = jax.random.split(key)
    batch = rule_.views(jax.random.fold_in(draw, 0), batch)
    mean = rule_.mean(draw, rule_.sums(params, batch, mask), certificate)
    params = jax.tree.map(
        lambda leaf, slope: leaf - spec.learning_rate * slope, params, mean)
    return *rule_.constraint.after_step(params, number), key, number + 1

  def norms(state, batch, mask):
    del mask
    return state[0], per_example.per_example_norms(functools.partial(
        jax_nets.apply, architectures.MODELS[spec.model]), cross_entropy,
        state[0], batch)

  chosen, state = step, (rule_.params, rule_.certificate,
                         jax.random.key(2, impl=rule_.generator), jnp.int32(1))
  if spec.method.startswith('ours_norms'):
    chosen, state = norms, (rule_.params, jnp.zeros([spec.size]))
  state, batch, mask = _placed(
      state, rule_.batch, jnp.ones(rule_.batch.y.shape, jnp.bool_),
      spec.num_devices)
  jitted = jax.jit(chosen, donate_argnums=0)
  started = time.perf_counter()
  lowered = jitted.lower(state, batch, mask)
  traced = time.perf_counter()
  compiled = lowered.compile()
  info = {'trace_seconds': traced - started,
          'compile_seconds': time.perf_counter() - traced,
          'temp_kib': compiled.memory_analysis().temp_size_in_bytes / 1024}
  if spec.suite == 'compile':
    info['compiled_again'] = _compiled_again(jitted, state, batch, mask)
  return _Compiled(compiled, state, batch, mask, info)


def _placed(state, batch: Batch, mask: Array, num_devices: int):
  """Places the state on all devices and divides the records among them."""
  if num_devices == 1:
    return jax.block_until_ready((state, batch, mask))
  if len(jax.devices()) < num_devices:
    raise ValueError(f'there are {len(jax.devices())} devices, '
                     f'not {num_devices}')
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ('data',))
  sharding = lambda *axes: jax.sharding.NamedSharding(
      mesh, jax.sharding.PartitionSpec(*axes))
  return jax.block_until_ready((
      jax.device_put(state, sharding()), *jax.device_put((batch, mask),
                                                       sharding('data'))))


def _compiled_again(jitted: Callable, state, batch: Batch,
                    mask: Array) -> float:
  """Returns compilations for another batch of the same shape, and an empty one.
  """
  count = []
  jax.monitoring.register_event_duration_secs_listener(
      lambda event, seconds, **_: count.append(event == _COMPILED))
  keep = jax.tree.map(jnp.copy, state)
  others = jax.tree.map(lambda leaf: jnp.flip(leaf, 0), batch)
  nobody = jnp.zeros_like(mask)
  state = jax.block_until_ready(jitted(keep, batch, mask))
  count.clear()
  jax.block_until_ready(jitted(jitted(state, others, mask), batch, nobody))
  return float(sum(count))


def program(rule_: Rule, spec: Spec) -> Program:
  """Returns the program of the compiled step of a rule."""
  compiled = _compile(rule_, spec)
  state = [compiled.state]

  def step() -> None:
    state[0] = jax.block_until_ready(
        compiled.step(state[0], compiled.batch, compiled.mask))

  # The peak reported by an accelerator includes the autotuning of kernels. The
  # step overwrites its state, so the scratch memory of XLA is all it needs.
  peak = (None if jax.default_backend() == 'cpu'
          else lambda: compiled.info['temp_kib'])
  return Program(step=step, info=compiled.info, peak_kib=peak,
                 audit=functools.partial(_audit, rule_, spec, compiled))


def _audit(rule_: Rule, spec: Spec, compiled: _Compiled) -> dict[str, Any]:
  """Returns values for `checks`; the state must not have been used before."""
  batch, mask = compiled.batch, compiled.mask
  if spec.method.startswith('ours_norms'):
    return {'norms': np.asarray(compiled.step(compiled.state, batch, mask)[1])}
  params = jax.tree.map(np.array, rule_.params)
  _, draw = jax.random.split(jax.random.key(2, impl=rule_.generator))
  viewed = jax.jit(rule_.views)(jax.random.fold_in(draw, 0), batch)
  total = jax.jit(rule_.sums)(rule_.params, viewed, mask)
  noise = rule_.mean(jax.random.key(3, impl=rule_.generator),
                     tree.zeros_like(total), rule_.certificate)
  wanted = rule_.constraint.after_step(jax.tree.map(
      lambda leaf, slope: leaf - spec.learning_rate * slope, rule_.params,
      rule_.mean(draw, total, rule_.certificate)), jnp.int32(1))[0]
  total, wanted = jax.tree.map(np.array, (total, wanted))
  multiplier = _joint(rule_, noise, spec.size)
  # Last, because the step overwrites the state.
  moved = compiled.step(compiled.state, batch, mask)[0]
  return {'params': params, 'sums': total, 'moved': jax.tree.map(
      np.array, moved), 'wanted': wanted, 'noise_multiplier': multiplier,
      'batch': jax.tree.map(np.array, viewed)}


def _joint(rule_: Rule, noise: PyTree, size: int) -> float:
  """Returns the joint noise multiplier, measured from noise; 0 without noise.
  """
  if rule_.sensitivity is None:
    return math.inf if tree.global_norm(noise) > 0 else 0.0
  sensitivity = rule_.sensitivity(rule_.certificate)
  stddevs = [size * float(tree.global_norm(part)) / math.sqrt(
      tree.count(part)) for part in tree.blocks(sensitivity, noise)]
  return sum((float(bound) / stddev)**2 for bound, stddev in zip(
      jax.tree.leaves(sensitivity), stddevs, strict=True))**-0.5
