"""A step against one built anew, and on poisoned data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.sampling import PoissonSampler
from dpjax.typing import Batch

MULTIPLIER = 1.3
LEARNING_RATE = 0.4
SAMPLER = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=9)
ROWS = jnp.asarray(np.random.default_rng(5).permutation(60)[:50], jnp.int32)
PRIVATE = ('dp_sgd', 'lip_dp_sgd', 'fix_lip_dp_sgd')


@pytest.mark.parametrize('name', PRIVATE)
def test_steps_are_those_of_the_reference(checks, run, name, records):
  checks.steps(run, name, records, num_steps=4)


def test_non_private_step_is_a_mean_gradient(checks, run, records):
  """Spec DP-14."""
  _, states, infos = run('sgd', records)
  params = jax.tree.map(np.float64, states[0].params)
  words = jax.random.bits(jax.random.fold_in(states[0].keys.batch, 0), [50],
                          jnp.uint32)
  chosen = np.asarray(words, np.int64) < round(12 / 50 * 2**32)
  total = sum(checks.flat(checks.forward_backward(params, records.x[row],
                                                  int(records.y[row]), None))
              for row in np.asarray(ROWS)[chosen])
  np.testing.assert_allclose(
    checks.flat(states[1].params), checks.flat(params) - LEARNING_RATE * total / 12,
    atol=1e-5)
  assert float(infos[0].joint_noise_multiplier) == np.inf
  assert float(infos[0].l2_sensitivity[0]) == np.inf


@pytest.mark.parametrize('name', PRIVATE)
def test_scales_do_not_read_records(checks, run, name, records):
  checks.scales_do_not_read_records(run, name, records)


def test_empty_batches_are_stepped(checks, run, records):
  checks.empty_batches_are_stepped(run, 'dp_sgd', records)


@pytest.mark.parametrize('name', ['lip_dp_sgd', 'fix_lip_dp_sgd'])
def test_norms_hold_after_every_step(run, name, records):
  """Whatever the records are, by float64 SVD."""
  hostile = Batch(records.x * 1e25, records.y)
  _, states, _ = run(name, hostile, num_steps=8)
  for state in states:
    for layer, certified in state.certificate.items():
      norm = np.linalg.norm(np.float64(state.params[layer]['kernel']), 2)
      assert norm <= min(0.9, float(certified))
      if name == 'fix_lip_dp_sgd':
        assert norm >= 0.9 / 1.03


def test_noise_is_fresh_at_every_step(checks, run, records):
  checks.noise_is_fresh(run, records, num_steps=40)


def test_keys_of_batch_noise_and_start_differ(run, records):
  _, (state, _), _ = run('dp_sgd', records)
  words = [tuple(np.ravel(jax.random.key_data(key))) for key in state.keys]
  assert len(set(words)) == 4
  assert state.optimizer[0].key == state.keys.noise


def test_parts_of_a_batch_change_nothing(checks, run, records):
  """Batches larger than `max_batch_size` are worked off, not cut."""
  whole = PoissonSampler(num_examples=50, batch_size=12, max_batch_size=50)
  _, states, infos = run('dp_sgd', records, num_steps=2, sampler=whole)
  assert int(infos[0].batch_size) > SAMPLER.part_size
  _, in_parts, _ = run('dp_sgd', records, num_steps=2)
  # One point of the release's grid, if a rounding falls the other way.
  slack = LEARNING_RATE * MULTIPLIER * 0.7 / 12 / 256 + 1e-6
<<<<<<< HEAD
  np.testing.assert_allclose(checks.flat(states[-1].params),
                             checks.flat(in_parts[-1].params), atol=slack)
=======
  np.testing.assert_allclose(_flat(states[-1].params),
                             _flat(in_parts[-1].params), atol=slack)


# Planted faults.


def _fails(check, *arguments):
  """The check turns the fault down, and not by a crash."""
  with pytest.raises(AssertionError):
    check(*arguments)


def test_fault_no_noise(faulty, records, monkeypatch):
  monkeypatch.setattr(additive, 'add_gaussian_noise',
                      lambda key, values, stddevs: values)
  _fails(check_steps, faulty, 'dp_sgd', records)
  _fails(check_noise_is_fresh, faulty, records)


def test_fault_noise_divided_twice(faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise
  monkeypatch.setattr(
    additive, 'add_gaussian_noise', lambda key, values, stddevs: honest(
      key, values, tree.scale(1 / 12, stddevs)))
  _fails(check_steps, faulty, 'dp_sgd', records)
  _fails(check_noise_is_fresh, faulty, records)


def test_fault_same_noise_at_every_step(faulty, records, monkeypatch):
  honest = privatizer.gaussian_privatizer

  def frozen(key, **settings):
    made = honest(key, **settings)
    return made._replace(update=lambda sums, state, params, **given:
                         made.update(sums, state._replace(step=jnp.int32(0)),
                                     params, **given))

  monkeypatch.setattr(privatizer, 'gaussian_privatizer', frozen)
  _fails(check_noise_is_fresh, faulty, records)
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_same_batch_at_every_step(faulty, records, monkeypatch):
  honest = PoissonSampler.draw
  monkeypatch.setattr(PoissonSampler, 'draw', lambda self, key: honest(
    self, jax.random.key(0)))
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_empty_batches_are_drawn_again(faulty, records, monkeypatch):
  """Erratum E5."""
  """Erratum E5."""
  honest = PoissonSampler.draw

  def again(self, key):
    draws = jax.vmap(lambda k: honest(self, k))(jax.random.split(key, 30))
    first = jnp.argmax(draws.count > 0)
    return jax.tree.map(lambda leaf: leaf[first], draws)

  monkeypatch.setattr(PoissonSampler, 'draw', again)
  _fails(check_empty_batches_are_stepped, faulty, 'dp_sgd', records)


def test_fault_empty_batches_are_skipped(faulty, records, monkeypatch):
  honest = additive.add_gaussian_noise

  def skipping(key, values, stddevs):
    empty = tree.squared_norm(values) == 0
    return jax.tree.map(lambda a, b: jnp.where(empty, a, b), values,
                        honest(key, values, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', skipping)
  _fails(check_scales_do_not_read_records, faulty, 'dp_sgd', records)


def _with_sums(make_model, make_method, sums_of):
  """A run whose bounder's sums are `sums_of(honest sums)`."""
  return _make_run(
    make_model, make_method, change=lambda method: method._replace(
      bounder=method.bounder._replace(sums=sums_of(method.bounder.sums))))


def test_fault_mask_ignored(make_model, make_method, records):
  run = _with_sums(make_model, make_method, lambda sums: (
    lambda params, batch, mask: sums(params, batch, jnp.ones_like(mask))))
  _fails(check_steps, run, 'lip_dp_sgd', records)


def test_fault_realised_batch_size(make_model, make_method, records):
  """Erratum E4: the mean over the records that happened to be drawn."""
  def realised(sums):
    def mean(params, batch, mask):
      honest = sums(params, batch, mask)
      share = 12 / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1)
      return honest._replace(total=tree.scale(share, honest.total))
    return mean

  run = _with_sums(make_model, make_method, realised)
  _fails(check_steps, run, 'lip_dp_sgd', records)


def test_fault_large_batches_are_cut(faulty, records, monkeypatch):
  honest = PoissonSampler.draw

  def cut(self, key):
    drawn = honest(self, key)
    return drawn._replace(count=jnp.minimum(drawn.count, self.part_size))

  monkeypatch.setattr(PoissonSampler, 'draw', cut)
  _fails(check_steps, faulty, 'dp_sgd', records)


def test_fault_product_over_the_wrong_layers(faulty, records, monkeypatch):
  """Erratum E3, in the loop: sensitivities are checked, not only used."""
  honest = bounds.gradient_bounds

  def own_included(layers, norms, *, loss_lipschitz):
    found = honest(layers, norms, loss_lipschitz=loss_lipschitz)
    return {name: bound * norms[name] for name, bound in found.items()}

  monkeypatch.setattr(bounds, 'gradient_bounds', own_included)
  _fails(check_steps, faulty, 'lip_dp_sgd', records)


def test_fault_blocks_noised_each_as_if_alone(faulty, records, monkeypatch):
  """Erratum E2."""
  monkeypatch.setattr(
    blocks, 'allocate', lambda found, *, noise_multiplier, rule, sizes:
    noise_multiplier * found)
  _fails(check_steps, faulty, 'lip_dp_sgd', records)


def test_fault_scale_read_off_the_batch(faulty, records, monkeypatch):
  """Erratum E1's family: noise that depends on the records."""
  honest = additive.add_gaussian_noise

  def adaptive(key, values, stddevs):
    size = jnp.minimum(1.0, tree.global_norm(values))
    return honest(key, values, tree.scale(size, stddevs))

  monkeypatch.setattr(additive, 'add_gaussian_noise', adaptive)
  _fails(check_scales_do_not_read_records, faulty, 'dp_sgd', records)


def test_fault_weights_left_free(make_model, make_method, records):
  # A large start, so that there is something to hold back.
  fixed = {'dense_00': jnp.float32(0.9), 'dense_01': jnp.float32(0.9)}
  free = bounders.WeightConstraint(
    lambda params: (tree.scale(3., params), fixed))
  run = _make_run(make_model, make_method, lambda method: (
    method._replace(constraint=free)))
  _fails(check_steps, run, 'lip_dp_sgd', records)
>>>>>>> de4e87b (Tests of divergences, Renyi guarantees and composed guarantees; spec entries named)
