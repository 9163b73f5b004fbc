"""Tests the contract of gradient bounders: constraints and current radii."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bounder as bounders


def _named(name):
  return lambda params: (params, jnp.int32(name))


@pytest.mark.parametrize('every', [1, 2, 3])
@pytest.mark.sound
def test_what_is_due_is_due_at_multiples(every):
  """Multiples of `every` apply `constrain`; other steps apply `between`."""
  constraint = bounders.WeightConstraint(_named(0), _named(1), every)
  branches = [int(constraint.after_step(jnp.zeros(2), jnp.int32(step))[1])
              for step in range(1, 7)]
  assert branches == [int(step % every != 0) for step in range(1, 7)]


def test_without_a_cheaper_one_every_step_constrains():
  for constraint in (bounders.WeightConstraint(_named(0)),
                     bounders.WeightConstraint(_named(0), None, 3),
                     bounders.WeightConstraint(_named(0), _named(1))):
    for step in range(1, 4):
      params, certificate = constraint.after_step(jnp.ones(2), jnp.int32(step))
      assert int(certificate) == 0
      np.testing.assert_array_equal(params, jnp.ones(2))


def test_a_step_takes_its_own_radii():
  """A bounder at given radii uses these, not its initial radii."""
  bounder = bounders.GradientBounder(
      lambda params, batch, mask, radii: (params, batch, mask, radii),
      lambda certificate, radii: (certificate, radii), adaptive='some')
  fixed = bounders.at_radii(bounder, 7)
  assert fixed.sums(1, 2, 3) == (1, 2, 3, 7)
  assert fixed.l2_sensitivity(4) == (4, 7)
  assert fixed.adaptive is None
  assert bounders.at_radii(fixed, 8) is fixed
