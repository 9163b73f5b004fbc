"""Tests by traced programs that releases read noisy numbers only.

As in `tests.stats.density_methods.post_processing_reads_test`, the noised
numbers and the choices are replaced by constants.
"""

from unittest import mock

import jax
from jax.interpreters import partial_eval
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.privacy import selection
from dpjax.theory.parametric import exponential_families as families
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import noisy_shares
from dpjax.theory.parametric import normal_intervals
from dpjax.theory.parametric import normal_means
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from experiments.methods.statistics import batch_descents

_PURE, _ZCDP = notions.PureDP(epsilon=0.7), notions.ZCDP(rho=0.3)
_MODEL = families.Model(dimension=2, radius=1.0)
_N = dict(num_examples=40)
_LIKELIHOOD = dict(_N, model=_MODEL)


def _interval(finder):
  return normal_intervals.NormalInterval(
      **_N, radius=1.0, sigma=1.0, guarantee=_PURE, finder=finder, share=0.5,
      step=0.1, clip=0.6, half=0.2)


ESTIMATORS = {
    'means': likelihood.SufficientStatistics(guarantee=_PURE, **_LIKELIHOOD),
    'means, rho': likelihood.SufficientStatistics(
        guarantee=_ZCDP, **_LIKELIHOOD),
    'rule': likelihood.MinimaxStatistics(guarantee=_PURE, **_LIKELIHOOD),
    'output': likelihood.OutputPerturbation(rho=0.3, **_LIKELIHOOD),
    **{noise: truncated_means.TruncatedMean(
        **_N, dimension=2, threshold=1.5, noise=noise, shrinkage=0.8,
        guarantee=_ZCDP if noise == 'gaussian' else _PURE)
       for noise in truncated_means.NOISES},
    **{f'rounds of {guarantee}': normal_means.NormalMean(
        **_N, dimension=2, radius=1.0, sigma=1.0, guarantee=guarantee,
        projected=True, rounds=(normal_means.Round(2.0, 0.5),) * 2)
       for guarantee in (_PURE, _ZCDP)},
    **{finder: _interval(finder) for finder in normal_intervals.FINDERS},
    'Laplace share': noisy_shares.LaplaceShare(**_N, epsilon=0.7),
    'geometric share': noisy_shares.GeometricShare(**_N, epsilon=0.7),
    'Gaussian share': noisy_shares.GaussianShare(**_N, rho=0.3, weight=0.9),
    'table': noisy_shares.MinimaxShare(**_N, epsilon=0.7),
    'support': supports.MeanSupport(**_N, guarantee=_PURE),
    'support, rho': supports.MeanSupport(**_N, guarantee=_ZCDP),
    'descent': sgml.Descent(rho=0.3, num_steps=2, **_LIKELIHOOD),
    'batches': batch_descents.BatchDescent(rho=0.3, num_steps=2, batch_size=4,
                                 **_LIKELIHOOD)}


class _Noise:
  """Noise that replaces whatever it is added to."""

  def __radd__(self, values):
    return jnp.ones_like(values)


def _uses_records(release, data):
  place = lambda *args, **named: jnp.int32(1)
  with jax.enable_x64(True), mock.patch.object(
      additive, 'on_grid', lambda values, scale: jnp.ones_like(values)
  ), mock.patch.object(
      draws, 'discrete_laplace', lambda *args: _Noise()), mock.patch.object(
          draws, 'place_of_largest', place), mock.patch.object(
              selection.ExponentialMechanism, 'release', place), (
                  mock.patch.object(
                      jax.lax, 'fori_loop',
                      lambda low, high, step, carry: step(0, carry))):
    traced = jax.make_jaxpr(release)(jax.random.key(0), data)
  return partial_eval.dce_jaxpr(
      traced.jaxpr, [True] * len(traced.jaxpr.outvars))[1][1]


@pytest.mark.sound
@pytest.mark.parametrize('name', ESTIMATORS)
def test_nothing_of_records_is_released_without_noise(name):
  estimator = ESTIMATORS[name]
  plane = hasattr(estimator, 'dimension') or hasattr(estimator, 'model')
  data = np.linspace(0, 1, 80).reshape(40, 2)
  data = data if plane else data[:, 0]
  assert not _uses_records(estimator.release, data)
  # A release that also shows the largest record is detected.
  assert _uses_records(lambda key, data: jax.tree.map(
      lambda leaf: leaf + jnp.max(data), estimator.release(key, data)), data)
