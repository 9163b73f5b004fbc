"""Tables of the zoo: which auditor finds which bug, when and by what."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scipy import stats

from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.audit_zoo import pages
from experiments.audit_zoo import sweep

_WANTED = 28 / 30
"""Share of the bugs that the black-box audit is to find."""
_SECONDS = 30.0
"""Longest time of a black-box audit."""


class Cell(NamedTuple):
  """The audit of one release by one auditor.

  Attributes:
    found: whether the claim is refuted; None if the auditor could not run.
    seconds: time of the audit.
    epsilon_lower: lower bound on epsilon; None if there is none.
    what: what refutes the claim or is suspect, or why the auditor could not
      run.
  """
  found: bool | None
  seconds: float
  epsilon_lower: float | None = None
  what: str = ''

  @property
  def text(self) -> str:
    """The result in a few words."""
    if self.found is None:
      return 'not run'
    bound = ('' if self.epsilon_lower is None
             else f'>= {self.epsilon_lower:.3g}, ')
    return (f'{"found" if self.found else "missed"}, {bound}'
            f'{self.seconds:.2g} s')

  @property
  def how(self) -> str:
    """What the auditor says in words."""
    if self.found:
      return f'found by {self.what}' if self.what else 'found'
    return ('could not run' if self.found is None else 'missed') + (
        f' ({self.what})' if self.what else '')


Cells = dict[tuple[str, str, str], Cell]
"""(bug, auditor, twin) -> its audit."""


def collect(rows: Iterable[records.Row]) -> Cells:
  """Returns the audits among rows."""
  return {(p['bug'], p['auditor'], p['twin']): _cell(p.values)
          for p in points.select(points.collect(rows), kind='audit')}


def _cell(values: dict[str, float]) -> Cell:
  """Reads the metrics of an audit; one of them has a note in its name."""
  notes = [name.removeprefix(sweep.NOTE) for name in values
           if name.startswith(sweep.NOTE)]
  found = values.get('found')
  return Cell(None if found is None else bool(found), values['seconds'],
              values.get('epsilon_lower'), notes[0] if notes else '')


def bug_names(cells: Cells) -> list[str]:
  """Returns the names of all bugs that were audited, sorted."""
  return sorted({bug for bug, _, _ in cells})


def comparison(cells: Cells) -> str:
  """Returns the table of bugs by auditors, with totals."""
  present = [name for name in sweep.AUDITORS
             if any(auditor == name for _, auditor, _ in cells)]
  lines = [(bug, *(_both(cells, bug, name) for name in present))
           for bug in bug_names(cells)]
  for title, count in _TOTALS.items():
    lines.append((title, *(count([cell for (_, auditor, twin), cell
                                  in cells.items() if (auditor, twin) == (
                                      name, wanted)])
                           for name in present
                           for wanted in [_twin_of(title)])))
  return tables.markdown(('bug', *present), lines) + _failures(cells)


def _failures(cells: Cells) -> str:
  """Returns a list of the reasons for which auditors could not run."""
  bugs: dict[str, list[str]] = {}
  for (bug, auditor, twin), cell in sorted(cells.items()):
    if cell.found is None:
      bugs.setdefault(f'{auditor} ({cell.what})', []).append(f'{bug}, {twin}')
  return ''.join(f'\nCould not run: {reason}: {"; ".join(names)}.\n'
                 for reason, names in bugs.items())


def _both(cells: Cells, bug: str, auditor: str) -> str:
  """Returns the results on the faulty release, and an alarm on the other."""
  faulty, fixed = (cells.get((bug, auditor, twin)) for twin in sweep.TWINS)
  text = '-' if faulty is None else faulty.text
  return text + ('; REFUTES THE FIXED TWIN' if fixed and fixed.found else '')


def _twin_of(title: str) -> str:
  """Returns which twin a total counts."""
  return sweep.TWINS['fixed' in title]


_TOTALS: dict[str, Callable[[list[Cell]], str]] = {
    'found of all': lambda cells: (
        f'{sum(bool(cell.found) for cell in cells)} of {len(cells)}'),
    'could not run': lambda cells: str(
        sum(cell.found is None for cell in cells)),
    'fixed twins refuted': lambda cells: (
        f'{sum(bool(cell.found) for cell in cells)} of {len(cells)}'),
    'seconds in all, faulty': lambda cells: (
        f'{sum(cell.seconds for cell in cells):.0f}'),
    'seconds in all, fixed': lambda cells: (
        f'{sum(cell.seconds for cell in cells):.0f}')}


def _alarm_counts(rows: Iterable[records.Row]) -> tuple[int, int, float]:
  """Returns (number of audits, how many refuted, their significance)."""
  counted = points.select(points.collect(rows), kind='alarms')
  return (int(sum(p['audits'] for p in counted)),
          int(sum(p['refuted'] for p in counted)),
          max((p['significance'] for p in counted), default=0.0))


def _alarm_interval(refuted: int, audits: int) -> tuple[float, float]:
  """Returns the 95 % interval of Clopper and Pearson for the share."""
  interval = stats.binomtest(refuted, audits).proportion_ci()
  return float(interval.low), float(interval.high)


def _alarm_table(rows: Sequence[records.Row]) -> str:
  audits, refuted, significance = _alarm_counts(rows)
  if not audits:
    return 'no rows\n'
  low, high = _alarm_interval(refuted, audits)
  return tables.markdown(
      ('audits', 'refuted', 'share', '95 % interval', 'significance'),
      [(audits, refuted, f'{refuted / audits:.4f}', f'{low:.4f} to {high:.4f}',
        f'{significance:g}')])


def table(rows: Sequence[records.Row]) -> str:
  """Returns the comparison, the count of false alarms, and the bugs."""
  cells = collect(rows)
  if not cells:
    return 'no rows\n'
  return '\n'.join([
      pages.INTRODUCTION, comparison(cells),
      '## False alarms\n',
      'Black-box audits of the fixed twins, spread over all of them, with '
      f'{sweep.ALARM_RUNS} counted releases of each side.\n',
      _alarm_table(rows), '## The bugs\n',
      pages.bugs({name: {auditor: cells[name, auditor, sweep.TWINS[0]].how
                         for auditor in sweep.OWN
                         if (name, auditor, sweep.TWINS[0]) in cells}
                  for name in bug_names(cells)})])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Judges what the audits of dpjax promise, on all bugs of the zoo."""
  cells = collect(rows)
  own = {key: cell for key, cell in cells.items() if key[1] in sweep.OWN}
  black = {key: cell for key, cell in own.items() if key[1] == sweep.OWN[0]}
  return [
      _judged('the black-box audit finds the bugs', f'{_WANTED:.0%}', black,
              _finds),
      _judged('fixed twins that an audit of dpjax refutes', '0', own, _refutes),
      _alarms(rows),
      _judged('bugs that another auditor finds and dpjax misses', '0',
              cells, _missed),
      _judged('seconds of the longest black-box audit', f'{_SECONDS:g}', black,
              _longest)]


def _judged(claim: str, printed: str, cells: Cells,
            judge: Callable[[Cells], tuple[str, bool, str]]
            ) -> verdicts.Verdict:
  """Returns the verdict on a claim; 'not run' without audits."""
  if not cells:
    return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')
  ours, holds, reason = judge(cells)
  return verdicts.Verdict(claim, printed, ours, verdicts.AGREES if holds else
                          verdicts.DIFFERS, reason)


def _finders(cells: Cells, auditors: Sequence[str]) -> set[str]:
  """Returns the bugs that one of these auditors finds."""
  return {bug for (bug, auditor, twin), cell in cells.items()
          if twin == sweep.TWINS[0] and auditor in auditors and cell.found}


def _finds(cells: Cells) -> tuple[str, bool, str]:
  found, every = _finders(cells, sweep.OWN), bug_names(cells)
  missed = sorted(set(every) - found)
  return (f'{len(found)} of {len(every)}', len(found) >= _WANTED * len(every),
          f'missed: {", ".join(missed) or "none"}')


def _refutes(cells: Cells) -> tuple[str, bool, str]:
  wrong = sorted({f'{bug} by {auditor}' for (bug, auditor, twin), cell
                  in cells.items() if twin == sweep.TWINS[1] and cell.found})
  return (str(len(wrong)), not wrong, ', '.join(wrong) or
          f'{sum(key[2] == sweep.TWINS[1] for key in cells)} audits')


def _missed(cells: Cells) -> tuple[str, bool, str]:
  others = [name for name in sweep.AUDITORS if name not in sweep.OWN]
  missed = sorted(_finders(cells, others) - _finders(cells, sweep.OWN))
  return (str(len(missed)), not missed, ', '.join(missed) or
          f'the others find {len(_finders(cells, others))} together')


def _longest(cells: Cells) -> tuple[str, bool, str]:
  name, cell = max(cells.items(), key=lambda item: item[1].seconds)
  return (f'{cell.seconds:.1f}', cell.seconds <= _SECONDS,
          f'{name[0]}, {name[2]}')


def _alarms(rows: Sequence[records.Row]) -> verdicts.Verdict:
  """Judges the share of true claims that are refuted."""
  claim = 'false alarms are at most the stated significance'
  audits, refuted, significance = _alarm_counts(rows)
  if not audits:
    return verdicts.Verdict(claim, '-', '-', verdicts.NOT_RUN, 'no rows')
  low, high = _alarm_interval(refuted, audits)
  return verdicts.Verdict(
      claim, f'{significance:g}', f'{refuted / audits:.4f}',
      verdicts.AGREES if high <= significance else verdicts.DIFFERS,
      f'{refuted} of {audits}; 95 % interval {low:.4f} to {high:.4f}')
