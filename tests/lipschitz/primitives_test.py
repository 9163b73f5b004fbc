"""Linear operations: values and gradients with and without weights."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.lipschitz import primitives


def test_dense_is_the_affine_map_with_its_gradients():
  rng = np.random.default_rng(0)
  x, kernel, bias, pull = (jnp.asarray(rng.normal(size=shape), jnp.float32)
                           for shape in ((9, 4), (4, 3), (3,), (9, 3)))
  plain = lambda x, kernel, bias: x @ kernel + bias[None]
  found, found_pull = jax.vjp(primitives.dense, x, kernel, bias)
  expected, expected_pull = jax.vjp(plain, x, kernel, bias)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5,
                                                       atol=1e-6),
               found_pull(pull), expected_pull(pull))
