"""Makes tables and figures from rows, and says which are out of date.

The table and figure of one experiment, and the tables in the READMEs:
  python -m launch.report --experiment=lip_tabular

The same of rows made elsewhere, written beside them and printed:
  python -m launch.report --experiment=lip_tabular --rows_dir=results --png

Whether everything committed is what the rows give, and whether the rows are
of the present code and of commits in the history; changes nothing:
  python -m launch.report --check

Rows that were made anew beside the committed ones; settings that differ from
equal ones in numbers only get the fingerprint of the present code:
  python -m launch.reproduce --paper=all --sample=3 --seed=1 --output_dir=DIR
  python -m launch.report --experiment=polls --rows_dir=DIR/polls --confirm
"""

from collections.abc import Sequence
import itertools
import os
import pathlib
import sys

from absl import flags

from dpjax.report import files
from dpjax.report import plots
from dpjax.report import provenance
from dpjax.report import records
from dpjax.report import tables
from dpjax.report import verdicts
from experiments import engine
from experiments import environment
from experiments import freshness
from experiments import registry
from experiments import rendering
from experiments.catalogue import items
from experiments.catalogue import pages
from experiments.reproduction import comparison
from launch import errors
from launch import flags as shared

for _name in ('experiment', 'traceback'):
  flags.declare_key_flag(_name)

_ROWS_DIR = flags.DEFINE_string(
    'rows_dir', None, 'Folder with rows.csv; the committed results of the '
    'experiment when not given.')
_CHECK = flags.DEFINE_bool(
    'check', False, 'Change nothing; fail if something is out of date.')
_CONFIRM = flags.DEFINE_bool(
    'confirm', False, 'Compare the rows of --rows_dir, made by the present '
    'code, with the committed ones. Where all are equal, committed rows of '
    'settings that differ from theirs in numbers only get the present '
    'fingerprint, and provenance.json says by which sample.')
_PNG = flags.DEFINE_bool(
    'png', False, 'Write figure.png next to figure.svg.')


def _write(path: pathlib.Path, text: str) -> None:
  files.replace(path, text.encode())
  print(f'wrote {path}', file=sys.stderr)


def write_results(experiment: registry.Experiment, folder: pathlib.Path, *,
                  png: bool = False) -> str:
  """Writes table and figure beside the rows; returns the table."""
  if hasattr(experiment.report, 'figure'):
    errors.check_extra('matplotlib', 'plots', 'figures')
  rows = records.sort(records.read(folder / engine.ROWS))
  table = rendering.write_table(experiment, folder, rows)
  print(f'wrote {folder / rendering.TABLE}', file=sys.stderr)
  if rendering.write_figure(experiment, folder, rows, png=png):
    print(f'wrote {folder / rendering.FIGURE}', file=sys.stderr)
  return table


def check_results(experiment: registry.Experiment, folder: pathlib.Path,
                  history: frozenset[str] | None) -> list[str]:
  """Returns a line for all that is not of the rows or of the present code.

  Args:
    experiment: of the rows.
    folder: of rows, table and figure.
    history: commits that rows may be of; None if that is not known.
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
  figure = folder / rendering.FIGURE
  # The bytes of a figure depend on the version of matplotlib: the rows that
  # it was drawn from do not.
  if hasattr(experiment.report, 'figure'):
    if not figure.exists():
      stale.append(f'{figure}: not there')
    elif plots.read_digest(figure) != records.digest(rows):
      stale.append(f'{figure}: drawn from other rows')
  return stale


def render_indices(root: pathlib.Path
                   ) -> list[tuple[pathlib.Path, str, str]]:
  """Returns (path, block, text) of the tables inside the READMEs."""
  index, results, gallery, found = [], [], [], {}
  for name in sorted(registry.EXPERIMENTS):
    experiment = registry.load(name)
    rows = rendering.read(rendering.results_dir(root, name))
    found[name] = verdicts.check(
        experiment.report.verdict(rows)) if rows else []
    index.append((
        name, experiment.artefact,
        f'`python -m launch.sweep --experiment={name}`', experiment.cost,
        rendering.coverage(experiment, rows),
        verdicts.tally(found[name]) or 'not run'))
    folder = f'experiments/{name}/results'
    if experiment.gallery:
      gallery.append(f'[![{experiment.gallery}]({folder}/{rendering.FIGURE})]'
                     f'({folder}/{rendering.TABLE}) {experiment.gallery}')
    link = f'[{name}]({folder}/{rendering.TABLE})'
    results += [(link, *verdict) for verdict in found[name]
                if verdict.claim.startswith(experiment.headlines)] or [
        (name, experiment.artefact, '-', '-', verdicts.NOT_RUN, 'no rows')]
  folder, groups = root / 'experiments', items.groups()
  return [
      (folder / 'README.md', 'index', tables.markdown(
          ('name', 'artefact', 'command', 'cost', 'rows', 'verdicts'), index)),
      (folder / 'README.md', 'items', pages.table(groups, found)),
      (folder / 'ERRATA.md', 'errata', pages.errata(groups)),
      (root / 'README.md', 'gallery', tables.markdown(
          ('', ''), list(itertools.zip_longest(
              gallery[::2], gallery[1::2], fillvalue='')), aligned=False)),
      (root / 'README.md', 'results', tables.markdown(
          ('experiment', *verdicts.HEADERS), results))]


def update_indices(root: pathlib.Path, *, check: bool) -> list[str]:
  """Renews the tables in the READMEs, or says which are out of date."""
  stale, texts = [], {}
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
          rows_dir: str | None) -> dict[str, pathlib.Path]:
  """Returns name -> folder of what the flags ask for."""
  if rows_dir and not name:
    raise ValueError('--rows_dir needs --experiment')
  if name:
    folder = (pathlib.Path(rows_dir) if rows_dir
              else rendering.results_dir(root, name))
    registry.load(name)  # an unknown name comes before a missing folder
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
           rows_dir: str | os.PathLike | None = None, check: bool = False,
           png: bool = False) -> list[str]:
  """Writes or checks what is made from rows; prints tables it writes.

  Args:
    root: folder with `README.md` and `experiments`.
    name: of one experiment; None for all that have results.
    rows_dir: folder of its rows, then the READMEs stay as they are; None for
      the committed results.
    check: whether to change nothing.
    png: whether to draw figures as PNG too.

  Returns:
    A line for each file that is out of date; none unless checking.
  """
  stale, history = [], None
  if check:
    history = environment.history(root)
    if history is None:
      print('note: commits of rows are not checked, which needs a whole clone '
            'with git', file=sys.stderr)
  for found, folder in _find(root, name, rows_dir).items():
    experiment = registry.load(found)
    if rows_dir:
      experiment = registry.with_new_rows(experiment)
    if check:
      stale += check_results(experiment, folder, history)
    else:
      print(write_results(experiment, folder, png=png))
  if not rows_dir:
    stale += update_indices(root, check=check)
  return stale


def _confirm(root: pathlib.Path, name: str, made: pathlib.Path) -> int:
  """Confirms committed rows by others; returns the exit status."""
  _find(root, name, made)
  experiment, folder = registry.load(name), rendering.results_dir(root, name)
  found = freshness.confirm(
      experiment, records.read(made / engine.ROWS),
      records.read(folder / engine.ROWS))
  print(f'{name}: {comparison.describe(found.compared)}; '
        f'{found.num_settings} settings confirmed, of '
        f'{"; ".join(found.kinds) or "no kind"}')
  if found.kinds:
    records.write_sorted(folder / engine.ROWS, found.rows)
    provenance.confirm(folder / provenance.NAME, found.sample)
  return 1 if found.compared.different or not found.kinds else 0


def main(argv: Sequence[str]) -> int:
  """Does what the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  if _CONFIRM.value:
    if not _ROWS_DIR.value or _CHECK.value:
      raise ValueError('--confirm needs --experiment and --rows_dir, the '
                       'folder of rows made anew, and no --check')
    return _confirm(environment.ROOT, shared.EXPERIMENT.value,
                    pathlib.Path(_ROWS_DIR.value))
  stale = report(environment.ROOT, shared.EXPERIMENT.value,
                 rows_dir=_ROWS_DIR.value, check=_CHECK.value,
                 png=_PNG.value)
  for line in stale:
    print(line, file=sys.stderr)
  return 1 if stale else 0


if __name__ == '__main__':
  errors.run_main(main)
