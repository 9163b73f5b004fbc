"""This module yields numbers from a setting; the environment can fail it."""

import os
import time
import zlib

from experiments import records
from experiments import selection


def run(settings, data_dir, progress):
  """Yields two rows for each setting of a group."""
  if data_dir == 'missing':
    raise FileNotFoundError(f'no data set in {data_dir}')
  progress(.5, 'half')
  for setting in settings:
    time.sleep(float(os.environ.get('TOY_SLEEP', 0)))
    text = selection.setting_id('toy', setting)
    if os.environ.get('TOY_FAIL') and os.environ['TOY_FAIL'] in text:
      raise ValueError('planted')
    value = zlib.crc32(text.encode()) / 2**32
    yield setting, [
        records.Row(
            seed=setting.seed, metric=metric, value=value / divisor, n=100,
            epsilon_requested=setting.epsilon, epsilon=setting.epsilon,
            epsilon_valid=True, delta=.01, adjacency='add_or_remove',
            accountant='pld', method=setting.method, dataset=setting.dataset)
        for metric, divisor in (('accuracy', 1), ('loss', 3))]
