"""Writes audit reports: a summary in text, JSON, and arrays of scores."""

import hashlib
import io
import json
import math
import pathlib
from typing import Any

import numpy as np

from dpjax.audit.auditor import Report
from dpjax.report import files
from dpjax.runs import environment


def summary(report: Report) -> str:
  """Returns a summary of a report in a few lines of text."""
  claim = report.claim
  lines = [f'{report.target}: {report.verdict}',
           f'  claim: epsilon {claim.epsilon:.4g} at delta {claim.delta:.3g}, '
           f'{claim.adjacency.value}']
  if report.details:
    lines.append(
        f'  epsilon is at least {report.epsilon_lower:.4g}; the bound of this '
        f'number of runs never exceeds {report.cap:.4g}' + (
            '' if math.isnan(report.detectable) else
            f'; power is 50 % at a true epsilon of {report.detectable:.4g}'))
  if report.tried:
    lines.append(f'  {report.tried["num_pairs"]} pairs of neighbours tried; '
                 f'the worst: {report.tried["worst"]}')
  for check in report.checks:
    if check.failed or check.p_value is None:
      lines.append(f'  {"FAILED" if check.failed else "passed"}: '
                   f'{check.name}: {check.detail}')
  tests = [(check.p_value, check) for check in report.checks
           if check.p_value is not None]
  if tests:
    p_value, least = min(tests, key=lambda test: test[0])
    lines.append(f'  {len(tests)} tests at {least.level:.2g} each, smallest '
                 f'p-value {p_value:.2g} ({least.name})')
  return '\n'.join(lines)


def as_json(report: Report, *, seed: int) -> dict[str, Any]:
  """Returns a report as JSON-ready values, with hashes of scores (AUD-15)."""
  claim = report.claim
  values_by_name = dict(
      target=report.target, verdict=report.verdict,
      claim=dict(epsilon=claim.epsilon, delta=claim.delta,
                 adjacency=claim.adjacency.value, event=repr(claim.event),
                 num_examples=claim.num_examples),
      significance=report.significance, epsilon_lower=report.epsilon_lower,
      cap=report.cap, detectable_epsilon=report.detectable,
      neighbours_tried=report.tried, **report.details,
      checks=[check._asdict() for check in report.checks],
      scores_sha256={name: hashlib.sha256(
          np.ascontiguousarray(values).tobytes()).hexdigest()
                     for name, values in report.scores.items()},
      seed=seed, versions=environment.current().versions,
      commit=environment.commit())
  return _plain(values_by_name)


def _plain(value: Any) -> Any:
  """Converts values for JSON; numbers that are not finite become strings."""
  if isinstance(value, dict):
    return {key: _plain(inner) for key, inner in value.items()}
  if isinstance(value, (list, tuple)):
    return [_plain(inner) for inner in value]
  if isinstance(value, np.generic):
    return _plain(value.item())
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def write(report: Report, folder: pathlib.Path, *, seed: int) -> pathlib.Path:
  """Writes `<target>.json` and, if there are scores, `<target>.npz`.

  The files of a training run with canaries reveal which canaries it was trained
  on, which no epsilon covers. Only their owner may read them (mode 0600).

  Returns:
    The path of the JSON file.
  """
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f'{report.target}.json'
  # Only audits of a run with canaries have this entry.
  mode = 0o600 if 'num_included' in report.details else 0o666
  if report.scores:
    archive = io.BytesIO()
    arrays: dict[str, Any] = dict(report.scores)
    np.savez_compressed(archive, **arrays)
    files.replace(path.with_suffix('.npz'), archive.getvalue(), mode)
  text = json.dumps(as_json(report, seed=seed), indent=2)
  files.replace(path, (text + '\n').encode(), mode)
  return path
