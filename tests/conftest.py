"""Strict modes for every test: what is sloppy here fails here."""

import os

# Two host devices, before jax starts: nothing may rely on there being one.
os.environ['XLA_FLAGS'] = (os.environ.get('XLA_FLAGS', '') +
                           ' --xla_force_host_platform_device_count=2')

import jax  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
