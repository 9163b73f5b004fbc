"""Tests of the auditor itself that `dpjax audit` runs."""

from dpjax.audit.suite import calibration
from dpjax.audit.suite import mutations
from dpjax.audit.suite import reference
from dpjax.report import tables

_TRIALS = 200  # audits of each mechanism in a self-calibration


def calibrate(seed: int) -> int:
  """Audits known mechanisms; returns 1 if bounds are wrong too often."""
  coverages = list(calibration.coverages(trials=_TRIALS, seed=seed))
  print(tables.markdown(
      ('estimator', 'mechanism', 'epsilon', 'median bound', 'wrong', ''),
      [(row.estimator, row.mechanism, f'{row.epsilon:.3f}',
        f'{row.median:.3f}', f'{row.wrong} of {row.trials}',
        '' if row.holds else 'TOO OFTEN') for row in coverages]))
  print(tables.markdown(
      ('true epsilon', 'AUD-04', 'AUD-05', 'AUD-06', 'separate runs'),
      [tuple(f'{value:.3f}' for value in calibration.expected_power(epsilon))
       for epsilon in (1.0, 2.0, 4.0, 8.0)]))
  return int(not all(row.holds for row in coverages))


def mutate(seed: int) -> int:
  """Audits training with planted faults; returns 1 if one is missed."""
  # A fault is found only if training without it passes.
  honest = reference.findings(reference.Trainer(), seed=seed)
  rows, missed = [('none', '-', ', '.join(honest) or '-')], bool(honest)
  for name, mutant in mutations.MUTANTS.items():
    failed = reference.findings(mutant.trainer, seed=seed)
    caught = set(mutant.caught_by) <= failed
    missed |= not caught
    rows.append((name, '-' if mutant.true_epsilon is None else
                 f'{mutant.true_epsilon:g}', ', '.join(sorted(failed)) +
                 ('' if caught else ' MISSED')))
  print(tables.markdown(('fault', 'true epsilon', 'refuted by'), rows))
  return int(missed)
