"""These tests check that a secret key serves one fit only."""

import jax
import jax.numpy as jnp
import optax
import pytest

from dpjax.privacy import keys as key_lib
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import plan
from dpjax.train import state as states
from dpjax.train import used_keys


@pytest.mark.every(2)
def test_secret_keys_are_used_once():
  keys = key_lib.system_keys(1)
  used_keys.check(keys)
  used_keys.check(keys)  # To look at them is not to use them.
  used_keys.add(keys)
  for again in (keys, states.streams(keys[0]).noise[None]):
    with pytest.raises(ValueError, match='by another fit of this process'):
      used_keys.check(again)
  used_keys.check(key_lib.system_keys(1))


def test_keys_of_seeds_are_used_again_and_again():
  keys = jax.random.split(jax.random.key(0), 3)
  used_keys.add(keys)
  used_keys.check(keys)


def test_nothing_of_a_key_is_kept(monkeypatch):
  monkeypatch.setattr(used_keys, '_USED', set())
  keys = key_lib.system_keys(1)
  used_keys.add(keys)
  words = jax.random.key_data(keys).tobytes()
  assert used_keys._USED
  assert all(len(kept) == 32 and kept != words for kept in used_keys._USED)


class _Compiled(Exception):
  """Ends a fit once its arguments were accepted."""


@pytest.mark.every(2)
def test_a_second_fit_with_a_secret_key_is_refused(
    make_model, make_method, records, tmp_path, monkeypatch):
  """A second fit with the same secret key is refused before it is compiled.

  A fit that resumes from a checkpoint may use the key again.
  """
  model = make_model(True)
  keys = key_lib.system_keys(1)
  run = plan.TrainingPlan(
      sampler=PoissonSampler(num_examples=40, batch_size=5, max_batch_size=4),
      num_steps=1, adjacency=Adjacency.ADD_OR_REMOVE_ONE, noise_multiplier=1.0)

  def fit(learning_rate, **given):
    return loop.fit(keys, plans=[run], model=model,
                    method=make_method('lip_dp_sgd', model),
                    optimizer=optax.sgd(learning_rate), records=records,
                    rows=jnp.arange(40, dtype=jnp.int32)[None], **given)

  def compiled(*_):
    raise _Compiled

  with monkeypatch.context() as patch:
    patch.setattr(loop, '_compile', compiled)
    for _ in range(2):  # What has failed has no result.
      with pytest.raises(_Compiled):
        fit(0.1)
  fit(0.1)
  monkeypatch.setattr(loop, '_compile', compiled)
  with pytest.raises(ValueError, match='by another fit of this process'):
    fit(0.2)
  with pytest.raises(_Compiled):
    fit(0.2, checkpoints=checkpoint.Checkpoints(folder=tmp_path / 'c'))
