"""Tests that the memory of training on Parquet files does not grow with them.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_NUM_COLUMNS, _PER_FILE = 100, 20_000
# Prints the peak resident memory in KiB.
_CODE = '''
import json, pathlib, sys
from dpjax.runs import configuration, training
config = configuration.TrainingConfig(**json.loads(sys.argv[1]))
result, = training.train([config])
assert result.num_train + result.num_test == int(sys.argv[2])
# Not of `getrusage`, which includes the process that started this one.
print(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])
'''


def _write(folder, num_files):
  folder.mkdir()
  for number in range(num_files):
    x = np.random.default_rng(number).normal(size=(_NUM_COLUMNS, _PER_FILE))
    table = {f'x{j}': column for j, column in enumerate(x)}
    parquet.write_table(
        pa.table({**table, 'y': np.where(x[0] > 0, 'yes', 'no')}),
        folder / f'{number:02d}.parquet', row_group_size=1000)


def _peak(folder, num_files, **changes):
  """Returns the peak memory of training in a new process, in MiB."""
  columns = {f'x{j}': {'kind': 'numeric', 'lower': -3, 'upper': 3}
             for j in range(_NUM_COLUMNS)}
  columns['y'] = {'kind': 'label', 'classes': ['no', 'yes']}
  config = dict(dataset=str(folder), stream=True, method='dp_sgd', num_steps=3,
                batch_size=64, depth=0, accountant='rdp', noise_seed=0,
                schema=json.dumps({'public': True, 'columns': columns}))
  done = subprocess.run(
      [sys.executable, '-c', _CODE, json.dumps(config | changes),
       str(num_files * _PER_FILE)], cwd=_ROOT, text=True, check=True,
      capture_output=True, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
  return int(done.stdout) / 1024


@pytest.mark.slow
def test_ten_times_the_records_need_the_same_memory(tmp_path):
  for num_files in (1, 10):
    _write(tmp_path / str(num_files), num_files)
  small, large = (_peak(tmp_path / str(num_files), num_files)
                  for num_files in (1, 10))
  assert large < 1.2 * small, (small, large)
  # In memory, so many records need more than that.
  whole = tmp_path / 'whole.parquet'
  with parquet.ParquetWriter(whole, parquet.read_schema(
      tmp_path / '10' / '00.parquet')) as writer:
    for path in sorted((tmp_path / '10').iterdir()):
      writer.write_table(parquet.read_table(path), row_group_size=1000)
  in_memory = _peak(whole, 10, stream=False)
  assert in_memory > 1.2 * small, (small, large, in_memory)
  assert _peak(whole, 10) < 1.2 * small
