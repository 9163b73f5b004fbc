"""Shards of a sweep that run on other machines: a folder each, then one.

Locks do not hold on every file system that machines share, so no two of them
write to one file. Each submission has folders of its own, which start with the
rows that there are; those that are added are brought together afterwards.
"""

import dataclasses
import os
import pathlib

from dpjax.report import files
from dpjax.report import provenance
from dpjax.report import records
from experiments import engine

FOLDER = 'shards'


def collect(options: engine.Options) -> None:
  """Adds the rows of all shards, each setting once, to the folder's own."""
  folder = pathlib.Path(options.output_dir) / FOLDER
  for path in sorted(folder.glob(f'*/*/{engine.ROWS}')):
    records.merge(options.rows_path, path)
    found = provenance.read(path.with_name(provenance.NAME))
    # What is written last says of which configuration the rows are.
    for run in sorted(found['runs'], key=lambda run: (
        run['configuration'] == found['configuration'])):
      provenance.write(options.provenance_path, **run)


def new_submission(options: engine.Options) -> pathlib.Path:
  """Makes the folder of one more submission: shards/1, shards/2, ..."""
  root = pathlib.Path(options.output_dir) / FOLDER
  root.mkdir(parents=True, exist_ok=True)
  numbers = [int(path.name) for path in root.iterdir() if path.name.isdigit()]
  folder = root / str(max(numbers, default=0) + 1)
  folder.mkdir()
  return folder


def make(folder: pathlib.Path, text: str,
         options: engine.Options) -> engine.Options:
  """Makes the folder of shard 'i/n', with the rows that there are.

  Args:
    folder: of the submission.
    text: which shard.
    options: of the whole sweep.

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
