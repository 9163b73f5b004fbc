"""These tests plant faults in a step; each fault must fail a check."""

import jax
import jax.numpy as jnp
import pytest

from dpjax import tree
from dpjax.grads import bounder as bounders
from dpjax.grads import privatizer
from dpjax.lipschitz.network import Network
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.sampling import PoissonSampler


def _fails(check, *arguments):
  """Checks that `check` rejects the fault by an assertion, not by a crash."""
  with pytest.raises(AssertionError):
    check(*arguments)


@pytest.mark.every(5)
def test_fault_no_noise(checks, faulty, records, monkeypatch):
  monkeypatch.setattr(additive, 'add_gaussian_noise',
                      lambda key, values, stddevs: values)
  _fails(checks.steps, faulty, 'dp_sgd', records)
  _fails(checks.noise_is_fresh, faulty, records)


@pytest.mark.every(2)
def test_fault_noise_divided_twice(checks, faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise
  monkeypatch.setattr(
    additive, 'add_gaussian_noise', lambda key, values, stddevs: honest(
      key, values, tree.scale(1 / 12, stddevs)))
  _fails(checks.steps, faulty, 'dp_sgd', records)
  _fails(checks.noise_is_fresh, faulty, records)


@pytest.mark.every(2)
def test_fault_same_noise_at_every_step(checks, faulty, records, monkeypatch):
  honest = privatizer.gaussian_privatizer

  def frozen(key, **settings):
    real = honest(key, **settings)
    return real._replace(update=lambda sums, state, params, **given:
                         real.update(sums, state._replace(step=jnp.int32(0)),
                                     params, **given))

  monkeypatch.setattr(privatizer, 'gaussian_privatizer', frozen)
  _fails(checks.noise_is_fresh, faulty, records)
  _fails(checks.steps, faulty, 'dp_sgd', records)


def test_fault_same_batch_at_every_step(checks, faulty, records, monkeypatch):
  honest = PoissonSampler.draw
  monkeypatch.setattr(PoissonSampler, 'draw', lambda self, key: honest(
    self, jax.random.key(0)))
  _fails(checks.steps, faulty, 'dp_sgd', records)


@pytest.mark.every(2)
def test_fault_empty_batches_are_drawn_again(checks, faulty, records, monkeypatch):
  """Redrawing empty batches must fail the check of empty batches (E5)."""
  honest = PoissonSampler.draw

  def again(self, key):
    draws = jax.vmap(lambda k: honest(self, k))(jax.random.split(key, 30))
    first = jnp.argmax(draws.num_selected > 0)
    return jax.tree.map(lambda leaf: leaf[first], draws)

  monkeypatch.setattr(PoissonSampler, 'draw', again)
  _fails(checks.empty_batches_are_stepped, faulty, 'dp_sgd', records)


@pytest.mark.every(2)
def test_fault_empty_batches_are_skipped(checks, faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise

  def skipping(key, values, stddevs):
    empty = tree.squared_norm(values) == 0
    return jax.tree.map(lambda a, b: jnp.where(empty, a, b), values,
                        honest(key, values, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', skipping)
  _fails(checks.scales_do_not_read_records, faulty, 'dp_sgd', records)


def _with_sums(checks, make_model, make_method, sums_of):
  """Returns a run whose bounder computes `sums_of(honest sums)`."""
  return checks.make_run(
    make_model, make_method, change=lambda method: method._replace(
      bounder=method.bounder._replace(sums=sums_of(method.bounder.sums))))


@pytest.mark.every(2)
def test_fault_mask_ignored(checks, make_model, make_method, records):
  run = _with_sums(checks, make_model, make_method, lambda sums: (
    lambda params, batch, mask: sums(params, batch, jnp.ones_like(mask))))
  _fails(checks.steps, run, 'lip_dp_sgd', records)


def test_fault_realised_batch_size(checks, make_model, make_method, records):
  """Dividing by the realised batch size must fail the check of steps (E4)."""
  def realised(sums):
    def mean(params, batch, mask):
      honest = sums(params, batch, mask)
      share = 12 / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1)
      return honest._replace(total=tree.scale(share, honest.total))
    return mean

  run = _with_sums(checks, make_model, make_method, realised)
  _fails(checks.steps, run, 'lip_dp_sgd', records)


@pytest.mark.every(2)
def test_fault_large_batches_are_cut(checks, faulty, records, monkeypatch):
  honest = PoissonSampler.draw

  def cut(self, key):
    drawn = honest(self, key)
    return drawn._replace(
        num_selected=jnp.minimum(drawn.num_selected, self.part_size))

  monkeypatch.setattr(PoissonSampler, 'draw', cut)
  _fails(checks.steps, faulty, 'dp_sgd', records)


@pytest.mark.every(2)
def test_fault_product_over_the_wrong_layers(checks, faulty, records, monkeypatch):
  """Sensitivities with the layer's own norm
  must fail the check of steps (E3)."""
  honest = Network.gradient_bounds

  def own_included(network, norms, *, loss_lipschitz, rule):
    allocated = honest(network, norms, loss_lipschitz=loss_lipschitz, rule=rule)
    return {name: bound * norms[name] for name, bound in allocated.items()}

  monkeypatch.setattr(Network, 'gradient_bounds', own_included)
  _fails(checks.steps, faulty, 'lip_dp_sgd', records)


def test_fault_blocks_noised_each_as_if_alone(checks, faulty, records, monkeypatch):
  """Noising each block as if it were alone must
  fail the check of steps (E2)."""
  monkeypatch.setattr(
    blocks, 'allocate', lambda norms, *, noise_multiplier, rule, sizes:
    noise_multiplier * norms)
  _fails(checks.steps, faulty, 'lip_dp_sgd', records)


@pytest.mark.every(2)
def test_fault_scale_read_off_the_batch(checks, faulty, records, monkeypatch):
  """Noise scaled by the values must fail the check of scales (family of E1)."""
  honest = additive.add_gaussian_noise

  def adaptive(key, values, stddevs):
    size = jnp.minimum(1.0, tree.global_norm(values))
    return honest(key, values, tree.scale(size, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', adaptive)
  _fails(checks.scales_do_not_read_records, faulty, 'dp_sgd', records)


def test_fault_weights_left_free(checks, make_model, make_method, records):
  # The start is large, so that the constraint has something to hold back.
  fixed = {'dense_00': jnp.float32(0.9), 'dense_01': jnp.float32(0.9)}
  free = bounders.WeightConstraint(
    lambda params: (tree.scale(3., params), fixed))
  run = checks.make_run(make_model, make_method, lambda method: (
    method._replace(constraint=free)))
  _fails(checks.steps, run, 'lip_dp_sgd', records)
