"""These tests check that density peers draw from dpjax's distribution.

The checks must find a peer that does not.
"""

import dataclasses

import numpy as np
import pytest

from dpjax.stats.density_methods import bases
from experiments.benchmarks import densities
from experiments.benchmarks import density_checks
from experiments.benchmarks import density_peers as peers
from experiments.benchmarks import density_work as work
from experiments.benchmarks import findings
from experiments.benchmarks import methods
from experiments.benchmarks import sweep
from experiments.benchmarks import values

_SIZE = 10**4


@pytest.fixture(autouse=True)
def few(monkeypatch):
  monkeypatch.setattr(methods, 'CHECKED_DRAWS', 400)
  monkeypatch.setattr(work, 'REPETITIONS', 300)


def _spec(model, method='ours'):
  return density_checks.make_spec(model, method, size=_SIZE)


@pytest.mark.slow
@pytest.mark.parametrize('model', ['projection', 'sparse_gaussian'])
def test_peers_have_the_distribution_of_dpjax(model):
  """Density programs pass the check of their distribution.

  A correct one fails in 1e-4 of cases.
  """
  program = densities.make(_spec(model))
  assert program.info['compile_seconds'] > 0
  errors = program.step()
  assert errors.shape == (300,) and np.all(errors > 0)
  finding = density_checks.judge(_spec(model), program.audit())
  assert finding.passed and finding.error < work.density().energy


@pytest.mark.parametrize('model', [
    'heights', 'spectral', 'weighted_gaussian', 'haar', 'default'])
def test_less_noise_is_seen(model, monkeypatch):
  """Peers pass with the right noise and fail with two thirds of it."""
  monkeypatch.setattr(density_checks, '_MOST_ERROR', 100.0)  # haar, at this n
  spec = _spec(model, 'numpy')
  program = peers.make(spec)
  assert program.step().shape == (300,) and program.repeats == 300
  assert density_checks.judge(spec, program.audit()).passed
  mechanism = work.of_model(model, _SIZE).estimator
  short = dataclasses.replace(mechanism, **(
      dict(epsilon=1.5 * mechanism.epsilon) if mechanism.pure
      else dict(rho=2.25 * mechanism.rho)))
  of_model = work.of_model
  monkeypatch.setattr(work, 'of_model', lambda *args: of_model(
      *args)._replace(estimator=short))
  audit = peers.make(spec).audit()
  monkeypatch.setattr(work, 'of_model', of_model)
  assert not density_checks.judge(spec, audit).passed


def test_what_errs_more_than_the_uniform_density_is_not_right():
  given = work.of_model('haar', _SIZE)
  heights = 50 * np.random.default_rng(0).random((400, given.num_bins))
  finding = density_checks.judge(_spec('haar'), {'draws': heights})
  assert finding.error > 1 and not finding.passed


def test_coefficients_are_those_of_the_bases():
  shares = np.random.default_rng(0).random((3, 15))
  for basis, count in (('fourier', 7), ('cosine', 14)):
    np.testing.assert_allclose(
        peers.coefficients(shares, basis, count),
        shares @ bases.basis(basis, 15, count).analysis, atol=1e-12)


def test_targets_are_of_ten_thousand_repetitions():
  lines = {values.Line('ours', 1): {10**6: dict(
      wall_ms=0.5, compile_seconds=1.0)}}
  text = '\n'.join(findings.of_suite('densities', {'spectral': lines}))
  assert '| spectral | 1,000,000 | wall_ms' in text
  assert '5 s for 10,000' in text and '10 s for 10,000' in text


def test_libraries_have_histograms_only():
  asked = {(setting.model, setting.method)
           for setting in sweep.settings('densities')}
  assert ('heights', 'opendp') in asked
  assert ('heights_gaussian', 'opendp') not in asked
  assert {model for model, method in asked if method == 'numpy'} == set(
      methods.DENSITY_MODELS)
