r"""Audits real bugs of private software, with dpjax and other auditors.

Every bug of the zoo and its fixed twin, with all auditors that are installed:
  python -m launch.audit --zoo

One bug, or a file of your own that defines one (`experiments/audit_zoo/bug.py`
says what it has):
  python -m launch.audit --zoo --zoo_bug=laplace_float64
  python -m launch.audit --zoo --zoo_bug=mine.py \
      --zoo_auditors=dpjax_black_box,jax_privacy

Exit status: 0 if dpjax finds every bug that it is expected to find, and refutes
no fixed twin; 1 otherwise; 2 for bad input.
"""

from collections.abc import Iterator, Sequence
import sys

from absl import flags
import jax

from dpjax.cli import errors
from dpjax.cli import flags as shared
from experiments.audit_zoo import auditors
from experiments.audit_zoo import bug
from experiments.audit_zoo import misses
from experiments.audit_zoo import registry
from experiments.audit_zoo import report

_FLAGS = flags.FlagValues()
_ZOO = flags.DEFINE_bool(
    'zoo', True, 'Audit the zoo; the other flags say with which parts.', _FLAGS)
_BUG = flags.DEFINE_list(
    'zoo_bug', None, 'Names of bugs, or paths of Python files that define one; '
    'default: all bugs of the zoo.', _FLAGS)
_AUDITORS = flags.DEFINE_list(
    'zoo_auditors', None, 'Names of auditors: '
    f'{", ".join(auditors.AUDITORS)}; default: all that are installed.', _FLAGS)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of all audits.',
                             flag_values=_FLAGS)


def parse(argv: Sequence[str]) -> list[str]:
  """Parses the flags of the zoo; prints the help if it is asked for."""
  groups = {'The zoo': _FLAGS}
  if {'--help', '--helpfull', '-h', '-help'} & set(argv):
    print(shared.help_text('python -m launch.audit --zoo', __doc__ or '',
                           groups, ()))
    sys.exit(0)
  return errors.parse_groups(argv, groups, doc=__doc__ or '')


def main(argv: Sequence[str]) -> int:
  """Audits, prints results as they come, and returns the exit status."""
  errors.check_no_arguments(argv)
  # Names are checked before the first audit, which takes seconds.
  chosen = list(_installed(auditors.names(_AUDITORS.value or ()),
                           asked=bool(_AUDITORS.value)))
  items = [registry.load(name) for name in _BUG.value or registry.names()]
  cells: report.Cells = {}
  for item in items:
    for name in chosen:
      cells |= _audited(item, name)
  print(f'\n{report.comparison(cells)}', end='')
  wrong = list(_complaints(cells))
  print(*wrong, sep='\n')
  return 1 if wrong else 0


def _installed(names: Sequence[str], *, asked: bool) -> Iterator[str]:
  """Yields the auditors that can run; raises if one is asked for and cannot.
  """
  for name in names:
    how = auditors.missing(name)
    if how and asked:
      raise ValueError(how)
    if how:
      print(f'without {name}: {how}', file=sys.stderr)
    else:
      yield name


def _audited(item: bug.Bug, name: str) -> report.Cells:
  """Audits both twins of a bug with one auditor, and prints a line."""
  key = jax.random.key(_SEED.value)
  cells = {}
  for twin in bug.TWINS:
    result = auditors.run(name, key, item, twin == bug.FIXED)
    cells[item.name, name, twin] = report.Cell(
        result.found, result.seconds, result.epsilon_lower, result.what)
  faulty, fixed = cells.values()
  print(f'{item.name}, {name}: {faulty.text}'
        + (f' ({faulty.how})' if faulty.what else '')
        + f'; fixed twin {"REFUTED" if fixed.found else "not refuted"}, '
        f'{fixed.seconds:.2g} s', flush=True)
  return cells


def _complaints(cells: report.Cells) -> Iterator[str]:
  """Yields a line for each bug that dpjax should find, and each false alarm."""
  own = {key: cell for key, cell in cells.items() if key[1] in auditors.OWN}
  found = {bug for (bug, _, twin), cell in own.items()
           if twin == 'faulty' and cell.found}
  for name in report.bug_names(own):
    if name not in found and name not in misses.KNOWN:
      yield f'{name}: not found'
  for (name, auditor, twin), cell in own.items():
    if twin == 'fixed' and cell.found:
      yield f'{name}: {auditor} refutes the fixed twin ({cell.what})'
