"""Renders the page of a reproduction, from plans and outcomes."""

import collections
from collections.abc import Mapping
import pathlib

from experiments import page
from experiments import provenance
from experiments import records
from experiments import registry
from experiments import rendering
from experiments import verdicts
from experiments.reproduction import plans
from experiments.reproduction import running


def brief(outcome: running.Outcome) -> str:
  """Returns the outcome of an experiment in one line."""
  parts = [f'{outcome.done} of {outcome.planned} settings']
  if outcome.error:
    return f'FAILED ({outcome.error}), {parts[0]}'
  if outcome.missing:
    parts.append('wanting ' + ', '.join(dict.fromkeys(
        what for what, *_ in outcome.missing)))
  judged = _verdicts(outcome)
  return ', '.join([*parts, verdicts.tally(judged) or 'no verdict',
                    outcome.compared.split(';')[0].split(' (')[0]])


def summary(outcomes: Mapping[str, running.Outcome]) -> list[str]:
  """Returns the closing lines of a reproduction: errors and totals."""
  lines = [f'{name}: {outcome.error}' for name, outcome in outcomes.items()
           if outcome.error]
  lines += [f'{name}: {outcome.compared}'
            for name, outcome in outcomes.items() if outcome.different]
  lines += [f'{name}: {line}' for name, outcome in outcomes.items()
            for line in outcome.changed]
  for dataset, (names, what) in _missing(outcomes).items():
    lines.append(f'not run for want of {dataset}: {", ".join(names)}; {what}')
  judged = [verdict for outcome in outcomes.values()
           for verdict in _verdicts(outcome)]
  same = [name for name, outcome in outcomes.items()
          if not outcome.different and not outcome.error]
  return [*lines, f'{len(same)} of {len(outcomes)} experiments without a row '
          'that differs from the committed ones',
          f'verdicts: {verdicts.tally(judged) or "none"}']


def render(chosen: Mapping[str, plans.Plan],
           outcomes: Mapping[str, running.Outcome], folder: pathlib.Path,
           command: str) -> str:
  """Returns the page of a reproduction.

  Args:
    chosen: name -> plan.
    outcomes: name -> outcome; plans without one are not finished.
    folder: folder of the reproduction.
    command: command line of the reproduction.
  """
  seconds = sum(outcome.cpu_seconds for outcome in outcomes.values())
  different = sum(outcome.different for outcome in outcomes.values())
  facts = [
      ('command', f'`{command}`'),
      ('experiments', f'{len(outcomes)} of {len(chosen)} finished, '
       f'{sum(bool(outcome.error) for outcome in outcomes.values())} failed'),
      ('time', f'{seconds / 60:.1f} minutes of CPU, this time'),
      ('rows', f'{different} differ from the committed ones')]
  facts += [(f'no {dataset}', f'{", ".join(names)}: {what}')
            for dataset, (names, what) in _missing(outcomes).items()]
  return page.render(_title(chosen), facts, [
      _section(plan, outcomes.get(name), folder)
      for name, plan in chosen.items()])


def _title(chosen: Mapping[str, plans.Plan]) -> str:
  papers = [what for paper, what in registry.PAPERS.items()
            if any(paper in plan.experiment.papers
                   for plan in chosen.values())]
  return f'Reproduction of {", ".join(papers)}'


def _missing(outcomes: Mapping[str, running.Outcome]
             ) -> dict[str, tuple[list[str], str]]:
  """Returns data set -> (experiments that need it, where to get it)."""
  wanting: dict[str, tuple[list[str], str]] = collections.OrderedDict()
  for name, outcome in outcomes.items():
    for dataset, _, what in outcome.missing:
      wanting.setdefault(dataset, ([], what))[0].append(name)
  return wanting


def _verdicts(outcome: running.Outcome) -> list[verdicts.Verdict]:
  return [verdicts.Verdict(*verdict) for verdict in outcome.verdicts]


def _section(plan: plans.Plan, outcome: running.Outcome | None,
             folder: pathlib.Path) -> page.Section:
  experiment = plan.experiment
  if outcome is None:
    return page.Section(plan.name, experiment.artefact,
                        notes=['not finished; the same command goes on'])
  place = folder / plan.folder
  return page.Section(
      plan.name, experiment.artefact, _facts(plan, outcome, place),
      _verdicts(outcome), _notes(plan, outcome), outcome.error,
      _table(place / rendering.TABLE), _text(place / rendering.FIGURE))


def _facts(plan: plans.Plan, outcome: running.Outcome,
           place: pathlib.Path) -> list[tuple[str, str]]:
  """Returns (label, text) pairs of a section; `place` is its folder."""
  experiment = plan.experiment
  of = len(experiment.smoke if plan.smoke else experiment.settings)
  facts = [
      ('paper', ', '.join(registry.PAPERS[paper]
                          for paper in experiment.papers)),
      ('alone', f'`{plan.command} --output_dir=DIR`'),
      ('settings', f'{outcome.done} of {outcome.planned}'
       + (f' that were chosen of {of}' if outcome.planned < of else '')),
      ('rows', outcome.compared),
      ('all of it', experiment.cost)]
  facts += [('other verdict', line) for line in outcome.changed]
  rows = rendering.read(place)
  if rows:
    facts.append(('made', f'on {rendering.names(rows, "device")} with JAX '
                  f'{rendering.names(rows, "jax")} by code '
                  f'{rendering.names(rows, "commit")}; sha256 of the rows '
                  f'`{records.digest(rows)}`'))
    runs = provenance.read(place / provenance.NAME)['runs']
    facts += [('versions', ', '.join(
        f'{name} {version}' for name, version in run['versions'].items()))
              for run in runs[-1:]]
  return facts


def _notes(plan: plans.Plan, outcome: running.Outcome) -> list[str]:
  """Returns notes on the settings that were not run."""
  notes = [f'{count} settings not run: {what}'
           for _, count, what in outcome.missing]
  if plan.smoke:
    notes.append('toy settings stand in for real ones, so that verdicts tell '
                 f'little; real ones: {plan.experiment.cost}')
  elif plan.tag and plan.tag == plan.experiment.reproduce:
    rest = len(plan.experiment.settings) - outcome.planned
    if rest:
      notes.append(f'{rest} settings not run, which are for other machines: '
                   f'{plan.experiment.cost}')
  return notes


def _text(path: pathlib.Path) -> str:
  """Returns the text of a file; '' if there is none."""
  return path.read_text(encoding='utf-8') if path.exists() else ''


def _table(path: pathlib.Path) -> str:
  """Returns the table of an experiment, without its title and verdicts."""
  _, _, text = _text(path).partition('\n')
  return text.partition('\n## Claims\n')[0].strip()
