"""These tests play an attacker who tries seeds on a published run.

The attack finds a noise_seed but no key of the system.

The attacker has what a run publishes, `summary.json` and `params.npz`, and this
code. A run of one step reveals its noisy sum, because initial parameters are
public: their difference to the released ones, over the learning rate, times the
batch size. The noise of a candidate either correlates with it or does not.
"""

import contextlib
import io
import json

from absl.testing import flagsaver
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.cli import train
from dpjax.data import registry
from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import keys
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from dpjax.train import state as states

_SEED, _NOISE_SEED = 12_345, 5_432
_NUM_SEEDS = 2**13
_AT_ONCE = 2**11
# With 530 values, correlations with other noise have a deviation of .043. A
# correlation of .5 is beyond 11 deviations: with 2^13 candidates it has
# probability 1e-25.
_STANDS_OUT = 0.5


def _released(folder, *words):
  """Trains for one step; returns the summary, the parameters and stderr.

  Epsilon is so small that the noise drowns the sum.
  """
  words = ('--method=dp_sgd', '--num_steps=1', '--epsilon=0.01', f'--seed={_SEED}',
           '--accountant=rdp', '--noise=gaussian', f'--output_dir={folder}',
           *words)
  with flagsaver.flagsaver(), contextlib.redirect_stdout(io.StringIO()), \
      contextlib.redirect_stderr(io.StringIO()) as stderr:
    assert train.main(train.parse(['train', *words])) == 0
  summary = json.loads((folder / 'summary.json').read_text())
  with np.load(folder / 'params.npz') as params:
    return summary, dict(params), stderr.getvalue()


class _Attacker:
  """This attacker knows the code, a summary and the released parameters."""

  def __init__(self, summary, params):
    self.summary = summary
    self.config = configuration.TrainingConfig(**summary['config'])
    self.data = registry.load('breast_cancer')
    self.model = building.make_model(self.config, self.data)
    self.method = building.make_method(self.config, self.model, self.data)
    self.initial = self.model.init(run_keys.init_key(self.config))
    moved = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf - params['/'.join(each.key for each in path)],
        self.initial)
    self.noisy_sum = jax.tree.map(
        lambda leaf: leaf * summary['expected_batch_size']
        / self.config.learning_rate, moved)

  def noise(self, run_key):
    """Returns the unit noise of the first step of a run with this key."""
    key = jax.random.fold_in(states.streams(run_key).noise, 0)
    return additive.unit_noise(key, self.initial)

  def seeded(self, seed):
    """Returns the key that a run would have
    with this seed as its noise_seed."""
    return run_keys._own_key(seed, self.config)

  def seeded_chacha(self, seed):
    """Returns the key that a run would have if a seed made its secret words."""
    words = jnp.zeros([chacha.KEY_WORDS], jnp.uint32).at[0].set(seed)
    secret = jax.random.wrap_key_data(words, impl=chacha.GENERATOR)[None]
    return keys.bound_to(secret, repr(self.config).encode(),
                         run_keys._digest(self.data.records))[0]

  def scores(self, key_of, num_seeds):
    """Returns correlations [num_seeds] of the
    noisy sum with candidate noise."""
    flat = lambda values: jnp.concatenate(
        [jnp.ravel(leaf) for leaf in jax.tree.leaves(values)])
    direction = flat(self.noisy_sum)
    direction = direction / jnp.linalg.norm(direction)

    @jax.jit
    def score(seeds):
      drawn = jax.vmap(lambda seed: flat(self.noise(key_of(seed))))(seeds)
      return drawn @ direction / jnp.linalg.norm(drawn, axis=1)

    return np.concatenate([
        score(jnp.arange(start, start + _AT_ONCE, dtype=jnp.uint32))
        for start in range(0, num_seeds, _AT_ONCE)])

  def without_noise(self, seed):
    """Returns (sum minus a seed's noise, true sum, noise deviation)."""
    stddev = (self.summary['joint_noise_multiplier']
              * self.summary['l2_sensitivity'][0])
    cleaned = jax.tree.map(lambda noisy, draw: noisy - stddev * draw,
                           self.noisy_sum, jax.jit(
                               lambda seed: self.noise(self.seeded(seed)))(seed))
    rows = training.split_rows(self.config, self.data).train
    batch = jax.tree.map(lambda leaf: leaf[rows], self.data.records)
    batch = batch._replace(x=self.model.prepare(batch.x))
    true = jax.jit(self.method.bounder.sums)(
        self.initial, batch, jnp.ones(rows.shape, bool)).total
    return cleaned, true, stddev


@pytest.fixture(name='seeded', scope='module')
def _seeded(tmp_path_factory):
  return _released(tmp_path_factory.mktemp('seeded'),
                   f'--noise_seed={_NOISE_SEED}')


@pytest.fixture(name='secret', scope='module')
def _secret(tmp_path_factory):
  return _released(tmp_path_factory.mktemp('secret'))


@pytest.mark.every(2)
def test_a_noise_seed_is_found_and_its_noise_comes_off(seeded):
  summary, params, warnings = seeded
  attacker = _Attacker(summary, params)
  scores = attacker.scores(attacker.seeded, _NUM_SEEDS)
  assert scores.argmax() == _NOISE_SEED and scores.max() > 0.9
  assert np.sort(scores)[-2] < _STANDS_OUT
  cleaned, true, stddev = attacker.without_noise(_NOISE_SEED)
  for actual, wanted in zip(jax.tree.leaves(cleaned), jax.tree.leaves(true),
                            strict=True):
    # All that is left of the noise is the grid of a release.
    assert np.abs(actual - wanted).max() < stddev / 200
    assert np.abs(actual).max() < stddev
  # So the summary does not claim privacy.
  assert summary['epsilon_valid'] is False
  assert summary['epsilon_assumption'] == 'nobody knows or guesses noise_seed'
  assert 'noise_seed' in summary['falls_short'][0]
  assert f'warning: noise_seed = {_NOISE_SEED} is for research' in warnings


@pytest.mark.every(2)
def test_no_seed_stands_out_in_a_release(secret):
  summary, params, warnings = secret
  attacker = _Attacker(summary, params)
  assert summary['epsilon_valid'] is True and 'warning' not in warnings
  assert summary['epsilon_assumption'] is None
  assert summary['config']['noise_seed'] is None
  scores = attacker.scores(attacker.seeded, _NUM_SEEDS)
  assert np.abs(scores).max() < _STANDS_OUT
  scores = attacker.scores(attacker.seeded_chacha, _AT_ONCE)
  assert np.abs(scores).max() < _STANDS_OUT
  # The attack would see this noise: nothing but the key is missing.
  assert np.linalg.norm(np.concatenate([
      np.ravel(leaf) for leaf in jax.tree.leaves(attacker.noisy_sum)])) > (
          0.5 * 530**0.5 * summary['joint_noise_multiplier']
          * summary['l2_sensitivity'][0])


@pytest.mark.every(2)
def test_a_release_leaves_no_key_behind_and_no_other_has_it(secret, tmp_path):
  """A release leaves no words of its key in any file or in the output.

  Repeating the command gives another release from the same start.
  """
  drawn, honest = [], keys.system_words

  def spy(num):
    drawn.append(honest(num))
    return drawn[-1]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(keys, 'system_words', spy)
    again = _released(tmp_path, '--checkpoint_seconds=1e-6')
  warnings = again[-1]
  assert len(drawn) == 1 and drawn[0].shape == (1, 8)
  files = [path for path in tmp_path.rglob('*') if path.is_file()]
  assert sorted(path.name for path in files) == [
      'params.npz', 'private_diagnostics.json', 'summary.json']
  for words in drawn[0]:
    spelled = words.tobytes()
    for text in (warnings.encode(), *(path.read_bytes() for path in files)):
      assert spelled not in text and spelled.hex().encode() not in text
      assert not any(str(int(word)).encode() in text for word in words)
  # The same command is another release, from the same start.
  first, second = _Attacker(*secret[:2]), _Attacker(*again[:2])
  jax.tree.map(np.testing.assert_array_equal, first.initial, second.initial)
  one, other = (np.concatenate([
      np.ravel(leaf) for leaf in jax.tree.leaves(each.noisy_sum)])
      for each in (first, second))
  assert np.corrcoef(one, other)[0, 1] < _STANDS_OUT
