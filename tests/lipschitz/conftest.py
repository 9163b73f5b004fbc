"""Settings of every test of the room."""

import jax
import pytest


@pytest.fixture(scope='module', autouse=True)
def _quick_compilation():
  """Programs this small take longer to optimise than to run."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
