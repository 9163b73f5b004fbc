"""Tests that the audit finds planted faults in private moments of features."""

import jax
import pytest

from dpjax.audit import auditor
from dpjax.audit.suite import loading
from dpjax.features import normalisation
from dpjax.features import whitening

pytestmark = [pytest.mark.slow, pytest.mark.every(6)]


def _audit(name):
  return auditor.audit(jax.random.key(3), loading.load(name), num_runs=4096)


@pytest.mark.parametrize('name', ['normalisation', 'whitening_replace'])
def test_the_audit_finds_nothing(name):
  assert _audit(f'features_{name}').verdict == auditor.CONSISTENT


def test_means_that_are_not_clipped_are_found(monkeypatch):
  monkeypatch.setattr(normalisation.sums, 'clipped', lambda rows, norm:
                      rows / norm)
  assert _audit('features_normalisation').verdict == auditor.VIOLATED


def test_records_that_keep_their_norm_are_found(monkeypatch):
  monkeypatch.setattr(whitening, '_to_mean', lambda rows: rows.reshape(
      rows.shape[0], -1))
  assert _audit('features_whitening').verdict == auditor.VIOLATED
