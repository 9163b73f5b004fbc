"""These tests compare estimators from
sufficient statistics with their peers."""


import numpy as np
import pytest

from experiments.benchmarks import methods
from experiments.benchmarks import parametric
from experiments.benchmarks import sweep


@pytest.fixture(autouse=True)
def few(monkeypatch):
  monkeypatch.setattr(methods, 'CHECKED_DRAWS', 400)
  monkeypatch.setattr(parametric, 'REPETITIONS', 400)


def _audit(model, method):
  spec = parametric.make_spec(model, method, size=10**4)
  program = parametric.make(spec)
  assert np.isfinite(program.step()).all()
  return spec, program.audit()


@pytest.mark.parametrize('model', [
    'share_geometric', 'truncated_l2', 'likelihood'])
def test_peers_have_the_distribution_of_dpjax(model):
  """Estimators have the distribution of their peers.

  A correct one fails in 1e-4 of cases.
  """
  assert parametric.judge(*_audit(model, 'ours')).passed


@pytest.mark.parametrize('model', methods.PARAMETRIC_MODELS)
def test_less_noise_is_seen(model):
  """Peers pass the check, and draws of half the spread fail it."""
  spec, audit = _audit(model, 'numpy')
  assert parametric.judge(spec, audit).passed
  draws = audit['draws']
  short = draws.mean(0) + (draws - draws.mean(0)) / 2
  assert not parametric.judge(spec, dict(draws=short)).passed


def test_all_models_are_asked_of_both():
  asked = {(setting.model, setting.method)
           for setting in sweep.settings('parametric')}
  assert asked == {(model, method) for model in methods.PARAMETRIC_MODELS
                   for method in methods.PARAMETRIC}
