"""Checks whether rows are of the present code, and confirms older rows.

A row is fresh if its fingerprint is that of the present code and its commit is
in the git history. An experiment may keep rows that are not fresh if it
declares their settings in OLDER, with a reason; its table then says so.
"""

import collections
from collections.abc import Iterable, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

from experiments import fingerprints
from experiments import records
from experiments import registry
from experiments import selection
from experiments.reproduction import comparison


def older(experiment: registry.Experiment,
          rows: Iterable[records.Row]) -> dict[str, list[str]]:
  """Returns reason -> ids of settings in OLDER that have rows."""
  ids, declared = records.ids(rows), {}
  for reason, belongs in experiment.older.items():
    chosen = [id_ for id_, setting in _settings(experiment).items()
              if id_ in ids and belongs(setting)]
    if chosen:
      declared[reason] = chosen
  return declared


def stale(experiment: registry.Experiment, rows: Sequence[records.Row],
          history: frozenset[str] | None) -> list[str]:
  """Returns a line for each kind of rows that must not stay as they are.

  Args:
    experiment: experiment of the rows.
    rows: committed rows.
    history: full hashes of the commits that rows may come from; None skips
      this check.
  """
  settings, present = _settings(experiment), _Present(experiment)
  declared = {id_ for ids in older(experiment, rows).values() for id_ in ids}
  unknown = sorted(records.ids(rows) - settings.keys())
  outdated, lost, old = [], [], set()
  for row in rows:
    if row.id not in settings:
      continue
    # Timings differ in every run, so that no fingerprint applies to them.
    fresh = row.metric in experiment.times or (
        bool(row.fingerprint) and row.fingerprint == present.of(row))
    known = history is None or _is_in(row.commit, history)
    if row.id in declared:
      old |= set() if fresh and known else {row.id}
      continue
    outdated += [] if fresh else [row]
    lost += [] if known else [row]
  lines = []
  if unknown:
    lines.append(f'{len(unknown)} settings that are not of the sweep, '
                 f'{unknown[0]} among them; remove their rows')
  if outdated:
    lines.append(
        f'{len(outdated)} rows without the fingerprint of the present code, '
        f'{outdated[0].id} {outdated[0].metric} among them; make them anew, '
        'confirm them by a sample, or declare their settings in OLDER')
  if lost:
    lines.append(f'{len(lost)} rows of commits that are not in the history: '
                 f'{", ".join(sorted({row.commit for row in lost}))}; make '
                 'them anew, or declare their settings in OLDER')
  if history is not None and declared - old:
    lines.append(f'{len(declared - old)} settings that OLDER declares have '
                 f'rows of the present code, {min(declared - old)} among them')
  return lines


class Confirmation(NamedTuple):
  """Result of comparing a new sample of rows with the committed rows.

  Attributes:
    compared: comparison of the sample with the committed rows.
    kinds: kinds of settings of which all compared rows are equal.
    num_settings: number of settings that get the present fingerprint.
    rows: the committed rows, with the new fingerprints.
    sample: description of the sample, for the provenance file.
  """
  compared: comparison.Comparison
  kinds: tuple[str, ...]
  num_settings: int
  rows: list[records.Row]
  sample: dict[str, Any]


def confirm(experiment: registry.Experiment, sample: Sequence[records.Row],
            committed: Sequence[records.Row]) -> Confirmation:
  """Gives the present fingerprint to rows that the present code reproduces.

  Settings are of one kind if they differ in numbers only, not in text such as
  the method or the data set. A kind is confirmed if all rows of a sample of it
  equal the committed rows. Its other rows, if made on the same type of device,
  are then assumed to be reproducible as well.

  Args:
    experiment: experiment of the rows.
    sample: rows made by the present code.
    committed: all committed rows.

  Raises:
    ValueError: the sample was made by other code.
  """
  settings, present = _settings(experiment), _Present(experiment)
  for row in sample:
    if row.id in settings and row.fingerprint != present.of(row):
      raise ValueError(
          f'{row.id} was made by other code (fingerprint '
          f'{row.fingerprint or "missing"}); make the sample anew')
  devices = {row.id: row.device for row in committed}
  compared = [row for row in sample if devices.get(row.id) == row.device]
  sampled: dict[tuple[str, str], list[records.Row]] = {}
  for row in compared:
    if row.id in settings:
      sampled.setdefault((selection.kind(settings[row.id]), row.device),
                         []).append(row)
  equal = set()
  for key, sample in sampled.items():
    comparison_ = compare(experiment, sample, committed)
    if comparison_.same and not comparison_.different:
      equal.add(key)
  rows, ids = [], set()
  for row in committed:
    if row.id in settings and (selection.kind(settings[row.id]),
                               row.device) in equal:
      ids.add(row.id)
      row = dataclasses.replace(row, fingerprint=present.of(row))
    rows.append(row)
  whole = compare(experiment, compared, committed)
  kinds = tuple(sorted({kind for kind, _ in equal}))
  return Confirmation(whole, kinds, len(ids), rows, {
      'commit': ', '.join(sorted({row.commit for row in compared})),
      'jax': ', '.join(sorted({row.jax for row in compared})),
      'settings_made_anew': len(records.ids(compared)),
      'of_which': _count(settings, compared),
      'kinds_confirmed': ('all of these' if len(kinds) == len(sampled)
                          else list(kinds)),
      'settings_confirmed': len(ids),
      'comparison': comparison.describe(whole)})


def compare(experiment: registry.Experiment, rows: Sequence[records.Row],
            committed: Sequence[records.Row]) -> comparison.Comparison:
  """Compares rows with committed rows, within the experiment's tolerances."""
  settings, held_out = _settings(experiment), {}
  for id_ in records.ids(rows) & settings.keys():
    config = experiment.config(settings[id_])
    if config is not None:
      held_out[id_] = _num_held_out(config)
  return comparison.compare(rows, committed, experiment.times, held_out)


def _num_held_out(config: Any) -> int:
  """Returns the number of test records that an accuracy is computed on."""
  from dpjax.data import registry as datasets
  if config.dataset in datasets.IMAGES:
    return datasets.IMAGES[config.dataset].test.num_examples
  return round(config.test_fraction *
               datasets.DATASETS[config.dataset].num_examples)


def _count(settings: dict[str, selection.Setting],
           rows: Sequence[records.Row]) -> dict[str, int]:
  """Returns kind -> number of settings that have rows."""
  kinds = [selection.kind(settings[id_]) for id_ in records.ids(rows)
           if id_ in settings]
  return dict(sorted(collections.Counter(kinds).items()))


class _Present:
  """Cache of fingerprints of the present code."""

  def __init__(self, experiment: registry.Experiment):
    self._experiment, self._settings = experiment, _settings(experiment)
    self._found: dict[tuple[str, int], str] = {}

  def of(self, row: records.Row) -> str:
    """Returns the fingerprint that a row of a known setting would have now."""
    key = row.id, row.n
    if key not in self._found:
      self._found[key] = fingerprints.of(
          self._experiment, self._settings[row.id], num_examples=row.n)
    return self._found[key]


def _settings(experiment: registry.Experiment) -> dict[str, selection.Setting]:
  """Returns id -> setting, of the whole sweep and the smoke sweep."""
  return {selection.setting_id(experiment.name, setting): setting
          for setting in (*experiment.settings, *experiment.smoke)}


def _is_in(commit: str, history: frozenset[str]) -> bool:
  """Returns whether an abbreviated commit is in the history.

  A commit marked as modified is not.
  """
  return commit in _shortened(history, len(commit))


@functools.cache
def _shortened(history: frozenset[str], length: int) -> frozenset[str]:
  """Returns the first `length` digits of all commits."""
  return frozenset(commit[:length] for commit in history)
