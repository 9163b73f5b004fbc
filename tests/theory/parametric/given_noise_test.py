"""Tests means around nonzero centres, with given noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from tests import coupling

PURE, ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.3)
DATA = np.array([-7.0, 0.2, 0.9, 1.1, 1.3, 1.6, 2.4, np.nan, np.inf, 40.0])


def released(estimator, data, size, places=()):
  """Returns what a mechanism releases with this noise, and the noise."""
  noise = np.linspace(-0.3, 0.4, size)
  with jax.enable_x64(True), coupling.Tape(
      jnp.asarray(noise), places).as_noise():
    output = estimator.release(jax.random.key(0), jnp.asarray(data))
  return jax.tree.map(np.asarray, output), noise


@pytest.mark.every(1)
@pytest.mark.parametrize('guarantee', [PURE, ZCDP], ids=str)
@pytest.mark.parametrize('finder', normal_intervals.FINDERS)
def test_intervals_are_around_the_mean_of_what_is_near_their_centre(
    finder, guarantee):
  estimator = normal_intervals.NormalInterval(
      num_examples=10, radius=2.0, sigma=1.0, guarantee=guarantee, half=0.9,
      finder=finder, share=0.4, step=0.5, clip=0.6)
  assert estimator.grid.tolist() == np.arange(-2, 2.1, 0.5).tolist()
  size = 1 + estimator.grid.size * (finder == 'histogram')
  places = () if finder == 'none' else (6,)
  interval, noise = released(estimator, DATA, size, places)
  centre = 0.0 if finder == 'none' else 1.0
  offsets = np.clip(np.nan_to_num(DATA, posinf=0.0) - centre, -0.6, 0.6)
  value = centre + offsets.mean() + estimator.scale * noise[-1]
  np.testing.assert_allclose(interval, [value, max(value - 0.9, -2),
                                        min(value + 0.9, 2)], atol=1e-6)


@pytest.mark.every(1)
@pytest.mark.parametrize('guarantee', [PURE, ZCDP], ids=str)
def test_rounds_are_each_around_the_one_before(guarantee):
  estimator = normal_means.NormalMean(
      num_examples=10, dimension=2, radius=1.1, sigma=1.0, shrinkage=0.9,
      guarantee=guarantee, projected=True, rounds=(
          normal_means.Round(3.0, 0.2), normal_means.Round(0.8, 0.3),
          normal_means.Round(0.5, 0.5)))
  data = np.stack([DATA, DATA[::-1] / 3], -1)
  kept = np.where(np.isfinite(data).all(1, keepdims=True), data, 0.0)
  estimate, noise = released(estimator, data, 6)
  within = lambda rows, radius: rows * np.minimum(1, radius / np.maximum(
      np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9))
  centre = np.zeros(2)
  for place, (turn, scale) in enumerate(zip(estimator.rounds,
                                            estimator.scales)):
    centre = within(centre + within(kept - centre, turn.clip).mean(0)
                    + scale * noise[2 * place:2 * place + 2], 1.1)
    # A mean of ten moves by a fifth of the clip, for this share of the budget.
    shift_of_round = 2 * turn.clip / 10 / scale
    cost = shift_of_round if guarantee is PURE else shift_of_round**2 / 2
    assert cost == pytest.approx(
        turn.share * (0.7 if guarantee is PURE else 0.3))
  np.testing.assert_allclose(estimate, 0.9 * centre, atol=1e-6)
