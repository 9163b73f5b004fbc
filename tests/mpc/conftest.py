"""Provides studies whose servers end with their test."""

import contextlib
import os

import pytest


@pytest.fixture
def make_study(tmp_path):
  """Returns a function that makes a study; its servers end with the test."""
  # A conftest that fails to import ends the whole run;
  # `cryptography` is an extra.
  from tests.mpc import studies
  with contextlib.ExitStack() as stack:
    def make(*, servers=(), noise=studies.no_noise, timeout=5.0, labels=None,
             **kwargs):
      study = studies.Study(
          tmp_path / f'study{len(os.listdir(tmp_path))}',
          studies.parameters(**kwargs), noise=noise, timeout=timeout,
          labels=labels, server_parameters=servers)
      stack.callback(study.stop)
      return study
    yield make


@pytest.fixture
def make_sums(tmp_path):
  """Returns a function that makes a study of sums; its servers end with it."""
  from tests.mpc import sum_studies
  with contextlib.ExitStack() as stack:
    def make(*, timeout=5.0, num_relays=1, **kwargs):
      study = sum_studies.SumStudy(
          tmp_path / f'study{len(os.listdir(tmp_path))}',
          sum_studies.parameters(**kwargs), timeout=timeout,
          num_relays=num_relays)
      stack.callback(study.stop)
      return study
    yield make
