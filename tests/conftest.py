"""Strict modes for every test: what is sloppy here fails here."""

import os
import pathlib

# Two host devices, before jax starts: nothing may rely on there being one.
os.environ['XLA_FLAGS'] = (os.environ.get('XLA_FLAGS', '') +
                           ' --xla_force_host_platform_device_count=2')

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')

_QUICK = {'experiments', 'grads', 'launch', 'models', 'train'}
_QUICK_FILES = {f'{name}_test' for name in (
    'chain_bounds', 'k_norm', 'layers', 'network', 'normalisation',
    'other_losses', 'pointwise', 'pooling', 'random_networks',
    'reparametrisation')}


@pytest.fixture(scope='module', autouse=True)
def quick_compilation(request):
  """What runs for an instant takes longer to optimise than to run.

  Certificates, norms of gradients, noise and audits are compiled as users
  have them.
  """
  path = pathlib.Path(request.path)
  folder = path.relative_to(pathlib.Path(__file__).parent).parts[0]
  jax.config.update('jax_disable_most_optimizations',
                    folder in _QUICK or path.stem in _QUICK_FILES)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
