"""Makes tables and figures from rows, and finds those that are out of date.

The table and figure of one experiment, and the tables in the READMEs:
  python -m launch.report --experiment=lip_tabular

Table and figure of rows in another folder, written there and printed:
  python -m launch.report --experiment=lip_tabular --rows_dir=results --png

Checks that committed tables and figures match the rows, and that the rows match
the present code and commits of the history; changes nothing:
  python -m launch.report --check

Compares recomputed rows with the committed ones. If they are equal, committed
rows of the same kind of settings get the fingerprint of the present code:
  python -m launch.reproduce --paper=all --sample=3 --seed=1 --output_dir=DIR
  python -m launch.report --experiment=polls --rows_dir=DIR/polls --confirm
"""

from collections.abc import Sequence
import itertools
import os
import pathlib
import sys

from absl import flags

from dpjax.cli import errors
from dpjax.report import files
from dpjax.report import tables
from dpjax.runs import environment
from experiments import engine
from experiments import figures
from experiments import freshness
from experiments import lipschitz_guide
from experiments import provenance
from experiments import records
from experiments import registry
from experiments import rendering
from experiments import verdicts
from experiments.catalogue import items
from experiments.catalogue import pages
from experiments.reproduction import comparison
from launch import flags as experiment_flags

for _name in ('experiment', 'traceback'):
  flags.declare_key_flag(_name)

_ROWS_DIR = flags.DEFINE_string(
    'rows_dir', None, 'Folder with rows.csv. Default: the committed results of '
    'the experiment.')
_CHECK = flags.DEFINE_bool(
    'check', False, 'Change nothing; fail if something is out of date.')
_CONFIRM = flags.DEFINE_bool(
    'confirm', False, 'Compare the rows of --rows_dir, made by the present '
    'code, with the committed ones. If all are equal, committed rows whose '
    'settings differ from theirs in numbers only get the fingerprint of the '
    'present code, and provenance.json records the sample.')
_PNG = flags.DEFINE_bool(
    'png', False, 'Write figure.png next to figure.svg.')


def _write(path: pathlib.Path, text: str) -> None:
  """Replaces a file and prints its path."""
  files.replace(path, text.encode())
  print(f'wrote {path}', file=sys.stderr)


def write_results(experiment: registry.Experiment, folder: pathlib.Path, *,
                  png: bool = False) -> str:
  """Writes table and figure beside the rows and returns the table."""
  if hasattr(experiment.report, 'figure'):
    errors.check_extra('matplotlib', 'plots', 'figures')
  rows = records.sort(records.read(folder / engine.ROWS))
  table = rendering.write_table(experiment, folder, rows)
  print(f'wrote {folder / rendering.TABLE}', file=sys.stderr)
  for name, text in rendering.documents(experiment, rows).items():
    _write(folder / name, text)
  if rendering.write_figure(experiment, folder, rows, png=png):
    print(f'wrote {folder / rendering.FIGURE}', file=sys.stderr)
  return table


def check_results(experiment: registry.Experiment, folder: pathlib.Path,
                  history: frozenset[str] | None) -> list[str]:
  """Returns a line for each file that does not match rows or present code.

  Args:
    experiment: the experiment.
    folder: folder with rows, table and figure.
    history: commits that may have made rows; None if they are not known.
  """
  rows = records.sort(records.read(folder / engine.ROWS))
  stale = [f'{folder / engine.ROWS}: {line}'
           for line in freshness.stale(experiment, rows, history)]
  table = folder / rendering.TABLE
  if not table.exists():
    stale.append(f'{table}: not there')
  elif table.read_text(encoding='utf-8') != rendering.render_table(
      experiment, rows):
    stale.append(f'{table}: not what the rows give')
  for name, text in rendering.documents(experiment, rows).items():
    path = folder / name
    if not path.exists() or path.read_text(encoding='utf-8') != text:
      stale.append(f'{path}: not what the rows give')
  figure = folder / rendering.FIGURE
  # The bytes of a figure depend on the version of matplotlib, so its digest of
  # the rows is compared instead.
  if hasattr(experiment.report, 'figure'):
    if not figure.exists():
      stale.append(f'{figure}: not there')
    elif figures.read_digest(figure) != records.digest(rows):
      stale.append(f'{figure}: drawn from other rows')
  return stale


def render_indices(root: pathlib.Path
                   ) -> list[tuple[pathlib.Path, str, str]]:
  """Returns (path, block, text) of each generated table in Markdown files."""
  index, results, gallery, verdicts_of = [], [], [], {}
  for name in sorted(registry.EXPERIMENTS):
    experiment = registry.load(name)
    rows = rendering.read(rendering.results_dir(root, name))
    verdicts_of[name] = verdicts.check(
        experiment.report.verdict(rows)) if rows else []
    index.append((
        name, experiment.artefact,
        f'`python -m launch.sweep --experiment={name}`', experiment.cost,
        rendering.coverage(experiment, rows),
        verdicts.tally(verdicts_of[name]) or 'not run'))
    folder = f'experiments/{name}/results'
    if experiment.gallery:
      gallery.append(f'[![{experiment.gallery}]({folder}/{rendering.FIGURE})]'
                     f'({folder}/{rendering.TABLE}) {experiment.gallery}')
    link = f'[{name}]({folder}/{rendering.TABLE})'
    results += [(link, *verdict) for verdict in verdicts_of[name]
                if verdict.claim.startswith(experiment.headlines)] or [
        (name, experiment.artefact, '-', '-', verdicts.NOT_RUN, 'no rows')]
  experiments, groups = root / 'experiments', items.groups()
  return [
      (experiments / 'README.md', 'index', tables.markdown(
          ('name', 'artefact', 'command', 'cost', 'rows', 'verdicts'), index)),
      (experiments / 'README.md', 'items', pages.table(groups, verdicts_of)),
      (experiments / 'ERRATA.md', 'errata', pages.errata(groups)),
      (root / 'README.md', 'gallery', tables.markdown(
          ('', ''), list(itertools.zip_longest(
              gallery[::2], gallery[1::2], fillvalue='')), aligned=False)),
      (root / 'README.md', 'results', tables.markdown(
          ('experiment', *verdicts.HEADERS), results)),
      *((root / 'docs' / 'lipschitz.md', block, text) for block, text in
        lipschitz_guide.blocks(lambda name: rendering.read(
            rendering.results_dir(root, name))))]


def update_indices(root: pathlib.Path, *, check: bool) -> list[str]:
  """Updates the tables in Markdown files, or returns those out of date."""
  stale: list[str] = []
  texts: dict[pathlib.Path, str] = {}
  for path, block, body in render_indices(root):
    text = texts.setdefault(path, path.read_text(encoding='utf-8'))
    try:
      texts[path] = tables.replace_block(text, block, body)
    except ValueError as error:
      raise ValueError(f'{path}: {error}') from error
    if check and texts[path] != text:
      stale.append(f'{path}: {block} is not what the rows give')
  for path, text in texts.items():
    if not check and text != path.read_text(encoding='utf-8'):
      _write(path, text)
  return stale


def _find(root: pathlib.Path, name: str | None,
          rows_dir: str | os.PathLike[str] | None
          ) -> dict[str, pathlib.Path]:
  """Returns the folders of the experiments that the flags name."""
  if rows_dir and not name:
    raise ValueError('--rows_dir needs --experiment')
  if name:
    folder = (pathlib.Path(rows_dir) if rows_dir
              else rendering.results_dir(root, name))
    registry.load(name)  # reports an unknown name before a missing folder
    if not (folder / engine.ROWS).exists():
      raise FileNotFoundError(
          f'no rows in {folder}; make some with python -m launch.sweep '
          f'--experiment={name} --output_dir={folder}')
    return {name: folder}
  folders = {name: rendering.results_dir(root, name)
             for name in sorted(registry.EXPERIMENTS)}
  return {name: folder for name, folder in folders.items()
          if any((folder / file).exists()
                 for file in (engine.ROWS, rendering.TABLE,
                              rendering.FIGURE))}


def report(root: pathlib.Path, name: str | None = None, *,
           rows_dir: str | os.PathLike[str] | None = None, check: bool = False,
           png: bool = False) -> list[str]:
  """Writes or checks tables and figures; prints the tables it writes.

  Args:
    root: folder with `README.md` and `experiments`.
    name: name of an experiment; None for all that have results.
    rows_dir: folder of its rows, in which case README files do not change; None
      for the committed results.
    check: True to check only and change nothing.
    png: True to write figures as PNG too.

  Returns:
    A line for each file that is out of date; empty unless `check`.
  """
  stale, history = [], None
  if check:
    history = environment.history(root)
    if history is None:
      print('note: commits of rows are not checked, which needs a whole clone '
            'with git', file=sys.stderr)
  for each, folder in _find(root, name, rows_dir).items():
    experiment = registry.load(each)
    if rows_dir:
      experiment = registry.with_new_rows(experiment)
    if check:
      stale += check_results(experiment, folder, history)
    else:
      print(write_results(experiment, folder, png=png))
  if not rows_dir:
    stale += update_indices(root, check=check)
  return stale


def _confirm(root: pathlib.Path, name: str, rows_dir: pathlib.Path) -> int:
  """Confirms committed rows by recomputed ones; returns the exit status."""
  _find(root, name, rows_dir)
  experiment, folder = registry.load(name), rendering.results_dir(root, name)
  result = freshness.confirm(
      experiment, records.read(rows_dir / engine.ROWS),
      records.read(folder / engine.ROWS))
  print(f'{name}: {comparison.describe(result.compared)}; '
        f'{result.num_settings} settings confirmed, of '
        f'{"; ".join(result.kinds) or "no kind"}')
  if result.kinds:
    records.write_sorted(folder / engine.ROWS, result.rows)
    provenance.confirm(folder / provenance.NAME, result.sample)
  return 1 if result.compared.different or not result.kinds else 0


def main(argv: Sequence[str]) -> int:
  """Writes, checks or confirms as the flags ask; returns the exit status."""
  errors.check_no_arguments(argv)
  name = experiment_flags.EXPERIMENT.value
  if _CONFIRM.value:
    if not (name and _ROWS_DIR.value) or _CHECK.value:
      raise ValueError('--confirm needs --experiment and --rows_dir, the '
                       'folder of rows made anew, and no --check')
    return _confirm(environment.ROOT, name, pathlib.Path(_ROWS_DIR.value))
  stale = report(environment.ROOT, name, rows_dir=_ROWS_DIR.value,
                 check=_CHECK.value, png=_PNG.value)
  for line in stale:
    print(line, file=sys.stderr)
  return 1 if stale else 0


if __name__ == '__main__':
  errors.run_main(main)
