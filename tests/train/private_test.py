"""Tests of `make_private`: sums, paths, sampling law, noise, accounting."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Selection
from dpjax.train import plan as plans
from dpjax.train import step as steps
from dpjax.train.private import make_private

_LEAST = 1e-6  # A noise multiplier at which the exact sums can be read.
_SIZE = 12


def _loss(params, record):
  x, y = record['x'], record['y']
  hidden = jnp.tanh(x @ params['first']['kernel'] + params['first']['bias'])
  return -jax.nn.log_softmax(hidden @ params['last']['kernel'])[y]


def _params():
  rng = np.random.default_rng(1)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  return {'first': {'bias': draw(4), 'kernel': draw(3, 4)},
          'last': {'kernel': draw(4, 2)}}


def _records(size=_SIZE):
  rng = np.random.default_rng(2)
  return {'x': rng.normal(size=(size, 3)).astype(np.float32) * np.logspace(
      -1, 1, size, dtype=np.float32)[:, None],
          'y': rng.integers(2, size=size).astype(np.int32)}


def _private(loss=_loss, **changed):
  given = dict(num_examples=_SIZE, batch_size=6, noise_multiplier=_LEAST,
               delta=1e-5, clip_norm=1.0)
  return make_private(loss, optax.sgd(1.0), **given | changed)


def _moves(private, records, params=None, seed=0, step=None):
  """Returns minus the change of the parameters in the first step."""
  params = _params() if params is None else params
  state = private.init(params, key=jax.random.key(seed))
  after, info = (step or private.step)(state, records)
  return jax.tree.map(lambda old, new: np.asarray(old - new), params,
                      after.params), info


def _same(left, right, rtol=1e-5, atol=3e-6):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol, atol), left,
               right)


def _check_sum(**changed):
  """Checks that a step is the clipped sum over the batch, in float64."""
  private, records = _private(**changed), _records()
  indices, mask = private.sample(private.init(_params(), key=jax.random.key(0)))
  chosen = jax.tree.map(lambda leaf: leaf[indices[mask]], records)
  with jax.enable_x64(True):
    double = lambda leaf: jnp.asarray(leaf, jnp.float64)
    grads = jax.vmap(jax.grad(_loss), (None, 0))(
        jax.tree.map(double, _params()), chosen | {'x': double(chosen['x'])})
  norms = np.sqrt(sum(np.square(leaf).reshape(len(leaf), -1).sum(1)
                      for leaf in jax.tree.leaves(grads)))
  assert norms.min() < 1 < norms.max() and len(norms) > 3
  weights = np.minimum(1, 1 / norms)
  expected = jax.tree.map(
      lambda leaf: np.tensordot(weights, np.asarray(leaf), 1) / 6, grads)
  moves, info = _moves(private, records)
  _same(moves, expected, rtol=3e-5)
  assert int(info.batch_size) == len(norms) and not int(info.num_nonfinite)


@pytest.mark.parametrize('kernel', ['bookkeeping', 'vmap'])
def test_a_step_is_the_clipped_sum_of_the_sampled_records(kernel):
  _check_sum(kernel=kernel)


def _divided_by_the_drawn_size(**given):
  finish = _FINISH(**given)
  return lambda state, sums, size, draws=None: finish(
      state, sums._replace(total=tree.scale(
          given['sampler'].expected_batch_size / size.astype(jnp.float32),
          sums.total)), size, draws)


_FINISH = steps.make_finish


def test_division_by_the_drawn_size_is_noticed():
  with mock.patch.object(steps, 'make_finish', _divided_by_the_drawn_size):
    with pytest.raises(AssertionError):
      _check_sum()


@pytest.mark.every(2)
@pytest.mark.parametrize('size', [None, 3])
def test_all_ways_to_give_records_make_the_same_step(size):
  records = _records()
  expected, _ = _moves(_private(), jax.tree.map(jnp.asarray, records))
  load = lambda numbers: jax.tree.map(lambda leaf: leaf[numbers], records)
  private = _private(max_batch_size=size)

  def loaded(state, records):
    return private.update(state, load(private.sample(state).indices))

  def compiled(state, records):
    step = jax.jit(lambda state: private.update(state, jax.tree.map(
        lambda leaf: jnp.asarray(leaf)[private.sample(state).indices], records)))
    return step(state)

  for given, step in ((records, None), (load, None), (records, loaded),
                      (jax.tree.map(jnp.asarray, records), None),
                      (records, compiled)):
    moves, info = _moves(private, given, step=step)
    _same(moves, expected)
    assert int(info.batch_size) == 7


def _inclusions(**changed):
  """Returns whether each record [k, n] is in the batch of each of k runs."""
  private = make_private(lambda params, number: params[number],
                         optax.sgd(1.0), per='record', num_examples=8,
                         noise_multiplier=_LEAST, **changed)
  step = lambda key: private.step(private.init(jnp.zeros(8), key=key),
                                  jnp.arange(8))
  after, info = jax.jit(jax.vmap(step))(jax.random.split(
      jax.random.key(3), 4000))
  counts = -np.asarray(after.params) * changed['batch_size']
  included = counts > 0.5
  np.testing.assert_allclose(counts, included, atol=1e-4)  # Each once.
  np.testing.assert_array_equal(included.sum(1), info.batch_size)
  return included


def _check_law(included):
  """Checks that records are included independently, each with 3/8.

  A right sampler fails with a probability below 4e-6 over its keys: 5e-7 for
  the 8 frequencies, 1.6e-6 for the 28 correlations, 1e-6 for the sizes.
  """
  runs, limit = len(included), stats.norm.isf(1e-6 / 36)
  frequencies = included.mean(0)
  deviation = np.sqrt(3 / 8 * 5 / 8 / runs)
  assert np.all(np.abs(frequencies - 3 / 8) < limit * deviation)
  correlations = np.corrcoef(included.T)[~np.eye(8, dtype=bool)]
  assert np.abs(correlations).max() < limit / np.sqrt(runs)
  # Batches of all sizes occur as often as they should: most are larger than
  # the two records that are computed at once.
  sizes = np.bincount(included.sum(1), minlength=9)
  expected = runs * stats.binom(8, 3 / 8).pmf(np.arange(9))
  joined = lambda counts: [*counts[:6], counts[6:].sum()]
  assert stats.chisquare(joined(sizes), joined(expected)).pvalue > 1e-6


@pytest.mark.parametrize('size', [None, 2])
def test_each_record_is_sampled_independently_and_none_is_left_out(size):
  _check_law(_inclusions(batch_size=3, max_batch_size=size))


_DRAW = PoissonSampler.draw


def _cut(most):
  def draw(self, key):
    selection = _DRAW(self, key)
    return selection._replace(
        num_selected=jnp.minimum(selection.num_selected, most))
  return draw


def _of_fixed_size(self, key):
  rows = jax.random.permutation(key, self.num_examples).astype(jnp.int32)
  return Selection(rows, jnp.int32(self.batch_size))


def _with_replacement(self, key):
  selection = _DRAW(self, key)
  rows = jax.random.randint(key, selection.rows.shape, 0, self.num_examples)
  return selection._replace(rows=rows)


def _in_blocks(self, key):
  """Every other record is in the batch exactly if the one before it is."""
  chosen = jnp.repeat(jax.random.uniform(key, (self.num_examples // 2,))
                      < self.sampling_prob, 2)
  rows, = jnp.nonzero(chosen, size=self.num_examples, fill_value=0)
  return Selection(rows.astype(jnp.int32), jnp.sum(chosen))


@pytest.mark.parametrize('draw', [
    _cut(4), _cut(2), _of_fixed_size, _with_replacement, _in_blocks])
def test_samplers_with_another_law_are_noticed(draw):
  with mock.patch.object(PoissonSampler, 'draw', draw):
    with pytest.raises(AssertionError):
      _check_law(_inclusions(batch_size=3, max_batch_size=2))


def _check_fresh_batches():
  private = _private(max_batch_size=4)
  state = private.init(_params(), key=jax.random.key(0))
  drawn = []
  for _ in range(3):
    drawn.append(tuple(private.sample(state).indices))
    state, _ = private.step(state, _records())
  assert len(set(drawn)) == 3 and int(state.step) == 3


@pytest.mark.every(2)
def test_steps_draw_other_batches():
  _check_fresh_batches()
  again = lambda key, step, sampler: sampler.draw(key)
  with mock.patch.object(steps, 'draw', again), pytest.raises(AssertionError):
    _check_fresh_batches()


def _check_noise():
  """Checks the noise of four steps on several parts each.

  Right noise fails with a probability below 1.3e-4 over its keys: 2e-5 for the
  scale, 1e-4 for the shape, 4e-6 for correlations of steps.
  """
  private = make_private(lambda params, x: x @ params, optax.sgd(1.0),
                         num_examples=20, batch_size=5, noise_multiplier=0.7,
                         clip_norm=2.0, steps=4, max_batch_size=2)
  # Records that are not finite contribute zero, so steps are noise alone.
  records, state = jnp.full([20, 500], jnp.nan), private.init(
      jnp.zeros(500), key=jax.random.key(0))
  moves = []
  for _ in range(4):
    before, (state, info) = state, private.step(state, records)
    moves.append(np.asarray(state.params - before.params) * 5 / (0.7 * 2))
    assert int(info.batch_size) == int(info.num_nonfinite) > 2
  values = np.stack(moves)
  assert 1e-5 < stats.chi2(2000).cdf(np.sum(values**2)) < 1 - 1e-5
  assert stats.kstest(values.ravel(), 'norm').pvalue > 1e-4
  correlations = np.corrcoef(values)[np.triu_indices(4, 1)]
  assert np.abs(correlations).max() < 5 / np.sqrt(500)


_ADD, _SUMS = additive.add_gaussian_noise, steps.sums_of


def _noise_of_a_part(method, state, part, numbers, mask):
  sums = _SUMS(method, state, part, numbers, mask)
  key = jax.random.fold_in(jax.random.fold_in(state.keys.noise, numbers[0]),
                           state.step)
  return sums._replace(total=_ADD(key, sums.total, jnp.float32(0.7 * 2)))


_NOISE_FAULTS = {
    'one key for all steps': (additive, 'add_gaussian_noise',
                              lambda key, *rest: _ADD(jax.random.key(1), *rest)),
    'noise in every part': (steps, 'sums_of', _noise_of_a_part),
    'no noise': (additive, 'add_gaussian_noise',
                 lambda key, values, stddevs: values),
}


@pytest.mark.parametrize('fault', [None, *_NOISE_FAULTS])
def test_noise_has_the_scale_of_the_plan_and_is_fresh(fault):
  if fault is None:
    _check_noise()
    return
  with mock.patch.object(*_NOISE_FAULTS[fault]), pytest.raises(AssertionError):
    _check_noise()


@pytest.mark.parametrize('adjacency', ['add_or_remove_one', 'replace_one'])
def test_the_event_is_that_of_the_plan(adjacency):
  private = make_private(_loss, optax.sgd(1.0), num_examples=_SIZE,
                         batch_size=6, epsilon=3.0, delta=1e-5, steps=4,
                         adjacency=adjacency, accountant='rdp')
  plan = plans.private_plan(num_examples=_SIZE, batch_size=6, num_steps=4,
                            epsilon=3.0, delta=1e-5, accountant='rdp',
                            adjacency=Adjacency(adjacency))
  assert private.plan == plan
  state, spent = private.init(_params()), [private.epsilon()]
  for _ in range(4):
    state, info = private.step(state, _records())
    spent.append(private.epsilon())
    assert spent[-1] == private.epsilon(state)
  assert private.event == plan.event
  assert spent[0] == 0 and np.all(np.diff(spent) > 0)
  assert spent[-1] == plan.epsilon(1e-5, accountant='rdp') <= 3.0
  assert float(info.joint_noise_multiplier) >= plan.noise_multiplier
  assert private.epsilon(delta=1e-3) < spent[-1]
  with pytest.raises(ValueError, match='all 4 steps of the plan are spent'):
    private.step(state, _records())


def test_without_a_limit_epsilon_grows_with_the_steps():
  private = _private(noise_multiplier=1.0)
  state = private.init(_params())
  for _ in range(3):
    state, _ = private.step(state, _records())
  assert private.event == accounting.poisson_gaussian_event(
      sampling_prob=0.5, noise_multiplier=1.0, num_steps=3)
  with pytest.raises(ValueError, match='no plan of all steps'):
    private.plan


@pytest.mark.every(2)
def test_without_noise_nothing_is_private():
  private = _private(noise_multiplier=None, epsilon=np.inf, clip_norm=np.inf)
  moves, _ = _moves(private, _records())
  indices, mask = private.sample(private.init(_params(), key=jax.random.key(0)))
  chosen = jax.tree.map(lambda leaf: leaf[indices[mask]], _records())
  total = jax.grad(lambda params: jnp.sum(jax.vmap(_loss, (None, 0))(
      params, chosen)))(_params())
  _same(moves, jax.tree.map(lambda leaf: leaf / 6, total))
  assert private.epsilon() == np.inf


@pytest.mark.every(2)
def test_clip_norms_of_layers_and_adaptive_ones():
  private = _private(clip_norm={'first': 0.01, 'last': 0.02})
  moves, info = _moves(private, _records(), step=None)
  assert info.l2_sensitivity.tolist() == pytest.approx([0.01, 0.02])
  norm = np.linalg.norm(moves['last']['kernel'])
  assert 0.005 < norm * 6 / int(info.batch_size) <= 0.02
  adaptive = _private(clip_norm='adaptive', noise_multiplier=0.01)
  state = adaptive.init(_params(), key=jax.random.key(0))
  for _ in range(3):
    state, info = adaptive.step(state, _records())
  assert float(info.joint_noise_multiplier) == pytest.approx(0.01, rel=1e-4)
  assert 0.5 < float(state.radii) != 1.0


def test_epsilon_covers_what_was_released_before():
  before = accounting.gaussian_event(noise_multiplier=5.0)
  spent = accounting.epsilon(before, delta=1e-5,
                             adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  private, alone = (
      make_private(_loss, optax.sgd(1.0), num_examples=_SIZE, batch_size=_SIZE,
                   epsilon=2.0, delta=1e-5, steps=2, before=each)
      for each in (before, None))
  assert private.noise_multiplier > alone.noise_multiplier
  assert private.event == before and private.epsilon() == spent
  assert alone.epsilon() == 0
  assert private.epsilon(delta=1e-4) < spent
  assert private.plan.epsilon(1e-5) == pytest.approx(2.0, abs=0.01)
  # Nor is it free before a run without noise.
  exact = make_private(
      _loss, optax.sgd(1.0), num_examples=_SIZE, batch_size=_SIZE, delta=1e-5,
      epsilon=np.inf, clip_norm=np.inf, steps=2, before=before)
  assert exact.epsilon() == spent
