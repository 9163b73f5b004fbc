"""Runs the settings in `sweep.py`."""

from collections.abc import Callable, Iterator, Sequence

import jax

from dpjax.audit import auditor
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.audit_zoo import auditors
from experiments.audit_zoo import bug
from experiments.audit_zoo import registry
from experiments.audit_zoo import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress: Callable[[float, str], None]
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`.

  Raises:
    ValueError: an auditor of the settings is not installed.
  """
  del data_dir
  # Before any work, since a peer that is absent cannot give a result.
  for name in dict.fromkeys(setting.auditor for setting in settings):
    if how := auditors.missing(name):
      raise ValueError(f'{how}; --tag=own leaves other auditors out')
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.bug} {setting.auditor}')
    metrics = {'audit': _audit, 'alarms': _alarms}[setting.kind](setting)
    yield setting, rows.exact(setting, metrics)


def _audit(setting: sweep.Setting) -> dict[str, float]:
  """Returns what one audit finds; its note is the name of a metric."""
  result = auditors.run(
      setting.auditor, simulation.key_of(setting), registry.load(setting.bug),
      setting.twin == bug.FIXED)
  metrics = dict(seconds=result.seconds)
  if result.found is not None:
    metrics['found'] = float(result.found)
  if result.epsilon_lower is not None:
    metrics['epsilon_lower'] = result.epsilon_lower
  if result.what:
    metrics[f'{sweep.NOTE}{result.what}'] = 1.0
  return metrics


def _alarms(setting: sweep.Setting) -> dict[str, float]:
  """Returns how many black-box audits of a true claim refute it."""
  # One target for all audits, which is compiled once.
  target = registry.load(setting.bug).target(True)
  verdicts = [auditor.audit(key, target, num_runs=setting.num_runs,
                            significance=auditors.SIGNIFICANCE,
                            replayed=False).verdict
              for key in jax.random.split(simulation.key_of(setting),
                                          setting.num_audits)]
  return dict(audits=len(verdicts),
              refuted=verdicts.count(auditor.VIOLATED),
              significance=auditors.SIGNIFICANCE)
