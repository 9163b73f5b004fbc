"""Tests that each place of a release has its own noise, in any structure.

Signs of noise are fair coins, independent between places: the mean of their
products over n places is beyond 5.6 / sqrt(n) with probability below 1e-7.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import discrete
from dpjax.privacy import k_norm
from dpjax.privacy import laplace
from dpjax.privacy import lattice
from dpjax.privacy.adjacency import Adjacency

SIZE = 1200
KEYS = [jax.random.key(0), jax.random.key(1)]


def _on_lattice(key, values):
  step = lattice.spacing(1.0)
  return lattice.add_noise(key, values, step, lattice.outer_multiplier(
    jnp.float32(1.0), step))


def _integers(mechanism):
  return lambda key, values: mechanism.release(key, jax.tree.map(
    lambda leaf: leaf.astype(jnp.int32), values))


_SETTINGS = dict(record_norm=1, adjacency=Adjacency.REPLACE_ONE)
NOISE = {
  'gaussian': lambda key, values: additive.add_gaussian_noise(
    key, values, {'a': 1.0, 'b': 2.0, 'c': 3.0}),
  'laplace': lambda key, values: laplace.add_laplace_noise(key, values, 1.0),
  'l2': lambda key, values: k_norm.add_noise(key, values, 1.0, order=2),
  'sup': lambda key, values: k_norm.add_noise(key, values, 1.0, order=np.inf),
  'lattice': _on_lattice,
  'integers': _integers(discrete.GeometricMechanism(epsilon=0.02, **_SETTINGS)),
  'wide integers': _integers(discrete.DiscreteGaussianMechanism(
    noise_multiplier=900.0, **_SETTINGS)),
}


@pytest.mark.sound
@pytest.mark.parametrize('name', NOISE)
def test_no_two_places_share_their_noise(name):
  """Equal leaves, adjacent places and other keys have uncorrelated signs."""
  values = {'a': jnp.zeros(SIZE), 'b': jnp.zeros(SIZE),
            'c': jnp.zeros((SIZE // 2, 2))}
  release = jax.jit(NOISE[name])
  columns = [np.ravel(leaf) for key in KEYS
             for leaf in jax.tree.leaves(release(key, values))]
  signs = [np.sign(column) for column in columns]
  signs += [np.roll(sign, lag) for sign in signs[:3] for lag in (1, SIZE // 2)]
  for one, other in itertools.combinations(signs, 2):
    assert abs(np.mean(one * other)) < 5.6 / SIZE**0.5
  for one in signs:
    assert abs(np.mean(one)) < 5.6 / SIZE**0.5
    assert np.mean(one != 0) > 0.95
