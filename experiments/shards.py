"""Folders for the shards of a sweep that run on other machines.

File locks do not hold on every shared file system, so no two machines write to
one file. Each submission has a folder for each shard, which starts with a copy
of the existing rows; `collect` merges the new rows afterwards.
"""

import dataclasses
import os
import pathlib

from dpjax.report import files
from experiments import engine
from experiments import provenance
from experiments import records

FOLDER = 'shards'


def collect(options: engine.Options) -> None:
  """Merges the rows of all shards into the folder, each setting once."""
  folder = pathlib.Path(options.output_dir) / FOLDER
  for path in sorted(folder.glob(f'*/*/{engine.ROWS}')):
    records.merge(options.rows_path, path)
    recorded = provenance.read(path.with_name(provenance.NAME))
    # The run written last sets the recorded configuration, so that runs of the
    # shard's own configuration come last.
    for run in sorted(recorded['runs'], key=lambda run: (
        run['configuration'] == recorded['configuration'])):
      provenance.write(options.provenance_path, **run)


def new_submission(options: engine.Options) -> pathlib.Path:
  """Makes the folder of a new submission: shards/1, shards/2, ..."""
  root = pathlib.Path(options.output_dir) / FOLDER
  root.mkdir(parents=True, exist_ok=True)
  numbers = [int(path.name) for path in root.iterdir() if path.name.isdigit()]
  folder = root / str(max(numbers, default=0) + 1)
  folder.mkdir()
  return folder


def make(folder: pathlib.Path, text: str,
         options: engine.Options) -> engine.Options:
  """Makes the folder of shard 'i/n', with a copy of the existing rows.

  Args:
    folder: folder of the submission.
    text: the shard, 'i/n'.
    options: options of the whole sweep.

  Returns:
    The options of the shard.
  """
  shard = dataclasses.replace(options, output_dir=os.path.abspath(
      folder / text.replace('/', '_of_')))
  pathlib.Path(shard.output_dir).mkdir()
  for path, copy in ((options.rows_path, shard.rows_path),
                     (options.provenance_path, shard.provenance_path)):
    if path.exists():
      files.replace(copy, path.read_bytes())
  return shard
