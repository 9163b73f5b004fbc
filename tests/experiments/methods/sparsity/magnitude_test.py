"""These tests check what is pruned, how much, and restarts (MIA-06)."""

import fractions
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.methods.sparsity import magnitude
from experiments.methods.sparsity import masks

ERROR_RATE = 1e-4


def _resnet20():
  """Returns zero parameters of a dense ResNet-20."""
  zeros = lambda *shape: jnp.zeros(shape, jnp.float32)
  conv = lambda side, a, b: {'kernel': zeros(side, side, a, b)}
  norm = lambda width: {'scale': zeros(width), 'bias': zeros(width)}
  params = {'conv': conv(3, 3, 16), 'norm': norm(16)}
  width = 16
  for group, block in itertools.product(range(3), range(3)):
    new = 16 * 2**group
    params[f'block_{group}_{block}'] = {
        'conv_0': conv(3, width, new), 'norm_0': norm(new),
        'conv_1': conv(3, new, new), 'norm_1': norm(new),
        **({'shortcut': conv(1, width, new), 'norm_shortcut': norm(new)}
           if new != width else {})}
    width = new
  return params | {'dense': {'kernel': zeros(64, 10), 'bias': zeros(10)}}


RESNET_20 = _resnet20()
PRUNABLE, PARAMS = 270896, 272474


def _tree(seed):
  """Returns small whole numbers of both signs, so most magnitudes are tied."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.integers(-3, 4, shape).astype(np.float32)
  return {'a': {'kernel': draw(7, 3), 'bias': draw(3)},
          'b': {'norm': {'scale': draw(2)}, 'kernel': draw(11)},
          'c': {'kernel': draw(2, 2, 3)}}


def _brute(params, mask, fraction, scope):
  """Returns masks by sorting tuples, with exact fractions."""
  names = ('a', 'b', 'c')
  kept = {n: np.array(mask[n]['kernel']).ravel() for n in names}
  values = {n: np.abs(params[n]['kernel']).ravel() for n in names}
  share = fractions.Fraction(str(fraction))
  for group in [names] if scope == 'global' else [[n] for n in names]:
    remaining = sorted((values[n][i], n, i) for n in group
                       for i in np.flatnonzero(kept[n]))
    for _, n, i in remaining[:share * len(remaining) // 1]:
      kept[n][i] = False
  return kept


def _kernels(mask):
  return {n: np.asarray(mask[n]['kernel']).ravel() for n in ('a', 'b', 'c')}


@pytest.mark.every(3)
@pytest.mark.parametrize('scope', magnitude.SCOPES)
def test_rounds_are_those_of_brute_force_for_each_of_a_pack(scope):
  """Pruning a pack equals brute force for each network, with ties."""
  prune = lambda params, mask: magnitude.prune(params, mask, fraction=0.3,
                                               scope=scope)
  compiled = jax.jit(jax.vmap(prune))
  wanted = [jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), _tree(0))] * 3
  pack = jax.tree.map(lambda *leaves: np.stack(leaves), *wanted)
  for number in range(4):
    # Weights move between prunings, and nobody looks at what is masked.
    trees = [jax.tree.map(lambda leaf, kept: np.where(
        kept, leaf, np.float32(np.nan if number % 2 else 0)), _tree(
            3 * number + i), mask) for i, mask in enumerate(wanted)]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    pack = jax.tree.map(np.asarray, compiled(params, pack))
    for i, tree in enumerate(trees):
      own_mask = jax.tree.map(lambda leaf, i=i: leaf[i], pack)
      brute = _brute(tree, wanted[i], 0.3, scope)
      jax.tree.map(np.testing.assert_array_equal, _kernels(own_mask), brute)
      wanted[i] = own_mask
  assert np.all(pack['a']['bias']) and np.all(pack['b']['norm']['scale'])


def test_kernels_of_resnet_20_are_prunable():
  names = jax.tree.leaves(magnitude.prunable(RESNET_20))
  leaves = jax.tree.leaves(RESNET_20)
  assert sum(leaf.size for leaf in leaves) == PARAMS
  assert sum(leaf.size for leaf, named in zip(leaves, names, strict=True)
             if named) == PRUNABLE
  assert len(leaves) - sum(names) == 2 * 21 + 1
  assert not any(jax.tree.leaves(magnitude.prunable(
      {'kernel': {'factors': 1.0}, 'bias': 2.0, 'list': [3.0]})))


@pytest.mark.slow
def test_counts_of_resnet_20_with_equal_magnitudes_are_exact():
  """ResNet-20 with equal magnitudes loses exact counts, from the front."""
  prune = jax.jit(lambda mask: magnitude.prune(RESNET_20, mask, fraction=0.2))
  mask = masks.ones_like(RESNET_20)
  for number, kept in enumerate((PRUNABLE, 216717, 173374, 138700)):
    assert int(masks.count(mask)) == kept + PARAMS - PRUNABLE
    assert magnitude.remaining(PRUNABLE, 0.2, number) == kept
    mask = prune(mask)
  flat = np.concatenate([
      leaf.ravel() for leaf, named in zip(jax.tree.leaves(mask), jax.tree.leaves(
          magnitude.prunable(RESNET_20)), strict=True) if named])
  assert np.all(np.diff(flat.astype(int)) >= 0)


@pytest.mark.parametrize('rounds,percent', [
    (3, 51.48), (4, 41.30), (8, 17.26), (12, 7.41), (16, 3.38), (20, 1.73),
    (24, 1.05)])
def test_golden_fractions(rounds, percent):
  """Published fractions remain after each round, to fewer than 5 weights.

  Floors leave these few weights more.
  """
  closed = magnitude.nonzero_fraction(PRUNABLE, PARAMS, 0.2, rounds)
  assert round(100 * closed, 2) == percent
  exact = magnitude.remaining(PRUNABLE, 0.2, rounds) + PARAMS - PRUNABLE
  assert 0 <= exact - closed * PARAMS < 5


def test_floors_are_of_whole_numbers():
  """Floors are exact where floats round wrongly and int32 would overflow."""
  for share in ('0.2', '0.1', '0.3', '0.7', '0.29', '0.0001', '0.9999'):
    wanted = fractions.Fraction(share)
    for count in (*range(101), 270896, 2**31 - 1):
      floor = magnitude._floor(jnp.int32(count), magnitude._ratio(float(share)))
      assert int(floor) == wanted * count // 1, (share, count)


@pytest.mark.slow
def test_random_subsets_are_uniform():
  """Random pruning picks all 15 pairs of six weights equally often."""
  params = {'a': {'kernel': jnp.arange(5.)}, 'b': {'kernel': jnp.arange(4.)}}
  mask = {'a': {'kernel': jnp.array([True, False, True, True, False])},
          'b': {'kernel': jnp.array([True, True, False, True])}}
  keys = jax.random.split(jax.random.key(0), 3000)
  pruned = jax.jit(jax.vmap(lambda key: magnitude.random_prune(
      key, params, mask, fraction=1 / 3)))(keys)
  assert np.all(jax.vmap(masks.nested, (0, None))(pruned, mask))
  assert np.all(np.asarray(jax.vmap(masks.count)(pruned)) == 4)
  flat = np.concatenate([np.asarray(pruned[n]['kernel'])[:, np.asarray(
      mask[n]['kernel'])] for n in ('a', 'b')], 1)
  _, counts = np.unique(flat @ 2**np.arange(6), return_counts=True)
  assert len(counts) == 15
  assert stats.chisquare(counts).pvalue > ERROR_RATE


@pytest.mark.slow
def test_random_words_are_many():
  """Random pruning spreads over 20000 weights.

  Random words of few bits would take the first ones.
  """
  params = {'kernel': jnp.zeros(20_000)}
  mask = magnitude.random_prune(jax.random.key(2), params,
                                masks.ones_like(params), fraction=5e-4)
  gone = np.flatnonzero(~np.asarray(mask['kernel']))
  assert gone.size == 10
  assert stats.kstest(gone / 20_000, 'uniform').pvalue > ERROR_RATE


def test_random_layers_are_independent():
  """Random pruning in one layer is independent of the other layer."""
  params = {n: {'kernel': jnp.zeros(3)} for n in ('a', 'b')}
  keys = jax.random.split(jax.random.key(1), 3000)
  pruned = jax.jit(jax.vmap(lambda key: magnitude.random_prune(
      key, params, masks.ones_like(params), fraction=1 / 3, scope='layer')))(keys)
  gone = [np.argmin(pruned[n]['kernel'], 1) for n in ('a', 'b')]
  assert all(np.all(np.sum(pruned[n]['kernel'], 1) == 2) for n in ('a', 'b'))
  counts = np.bincount(3 * gone[0] + gone[1], minlength=9)
  assert stats.chisquare(counts).pvalue > ERROR_RATE


@pytest.mark.every(3)
@pytest.mark.parametrize('restart', magnitude.RESTARTS)
def test_rounds_interrupted_and_resumed(restart):
  """Interrupted rounds resume to the same state, for both restarts."""
  rounds = magnitude.Rounds(fraction=0.25, num_rounds=3, scope='layer',
                            restart=restart)
  update = jax.jit(rounds.update)
  initial = _tree(0)
  state, params = rounds.init(initial), initial
  for number in range(rounds.num_rounds):
    trained = jax.tree.map(lambda leaf: 2 * leaf + 1, params)
    resumed = jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, state))
    before, (state, params) = state, update(state, trained)
    again, _ = update(resumed, trained)
    jax.tree.map(np.testing.assert_array_equal, state, again)
    assert int(state.round) == number + 1
    jax.tree.map(np.testing.assert_array_equal, _kernels(state.mask),
                 _brute(trained, before.mask, 0.25, 'layer'))
    source = initial if restart == 'rewind' else trained
    jax.tree.map(lambda actual, value, kept: np.testing.assert_array_equal(
        actual, np.where(kept, value, 0)), params, source, state.mask)
  kept = sum(magnitude.remaining(n, 0.25, 3) for n in (21, 11, 12))
  assert int(masks.count(state.mask)) == kept + 5


@pytest.mark.every(2)
def test_rounds_of_packs():
  """Under vmap each network of a pack is ranked by itself."""
  rounds = magnitude.Rounds(fraction=0.5)
  pack = {'kernel': jnp.array([[1., 2, 3, 4], [400, 300, 200, 100]])}
  state = jax.vmap(rounds.init)(pack)
  state, params = jax.vmap(rounds.update)(state, pack)
  np.testing.assert_array_equal(params['kernel'],
                                [[0, 0, 3, 4], [400, 300, 0, 0]])
  np.testing.assert_array_equal(state.round, [1, 1])


@pytest.mark.every(2)
def test_what_is_not_a_number_goes_last():
  params = {'kernel': jnp.array([jnp.nan, jnp.inf, -5.0, jnp.nan])}
  mask = masks.ones_like(params)
  for wanted in ([1, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]):
    mask = magnitude.prune(params, mask, fraction=0.5 if not wanted[0] else 0.34)
    np.testing.assert_array_equal(mask['kernel'], wanted)


@pytest.mark.every(2)
def test_nothing_to_prune():
  params = {'bias': jnp.ones(3), 'kernel': jnp.ones((2, 2))}
  every = masks.ones_like(params)
  same = lambda mask: all(np.all(leaf) for leaf in jax.tree.leaves(mask))
  assert same(magnitude.prune(params, every, fraction=0.0))
  assert same(magnitude.prune(params, every, fraction=0.24))
  assert same(magnitude.prune({'bias': jnp.ones(3)}, {'bias': jnp.ones(3, bool)},
                              fraction=0.5))
  chosen = magnitude.prune(params, every, fraction=0.5,
                           selected={'bias': True, 'kernel': False})
  np.testing.assert_array_equal(chosen['bias'], [False, True, True])
  assert np.all(chosen['kernel'])


@pytest.mark.parametrize('wrong,match', [
    (dict(fraction=1.0), 'fraction must lie in'),
    (dict(fraction=-0.1), 'fraction must lie in'),
    (dict(fraction=0.2, scope='all'), 'scope must be one of')])
def test_refusals(wrong, match):
  params = {'kernel': jnp.ones(4)}
  with pytest.raises(ValueError, match=match):
    magnitude.prune(params, masks.ones_like(params), **wrong)
  with pytest.raises(ValueError, match=match):
    magnitude.Rounds(**wrong)


def test_the_schedule_of_the_thesis_is_the_default():
  assert magnitude.Rounds() == magnitude.Rounds(
      fraction=0.2, num_rounds=24, scope='global', restart='continue')


def test_refuses_other_shapes_and_schedules():
  with pytest.raises(ValueError, match='a mask of parameters of shape'):
    magnitude.prune({'kernel': jnp.ones((2, 4))}, {'kernel': jnp.ones(4, bool)},
                    fraction=0.2)
  with pytest.raises(ValueError, match='restart must be one of'):
    magnitude.Rounds(restart='again')
  with pytest.raises(ValueError, match='num_rounds must be an integer'):
    magnitude.Rounds(num_rounds=-1)
