"""Provides the original files, which are not part of the repository."""

import os
import pathlib

import pytest


@pytest.fixture(scope='session')
def data_dir():
  """Returns the folder with the original files; skips the test without one."""
  folder = os.environ.get('DPJAX_DATA_DIR')
  if not folder:
    pytest.skip('needs original files: DPJAX_DATA_DIR is not set')
  if not pathlib.Path(folder).is_dir():
    pytest.skip('needs original files: DPJAX_DATA_DIR is no folder')
  return folder
