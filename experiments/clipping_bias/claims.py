"""Judges section 5.2.4, Theorem 5.2.3, Figures 5.2.1 and 5.3.3, claim by claim.

All are of Barczewski (2025).
"""

from collections.abc import Sequence
import math

import numpy as np

from experiments import papers
from experiments import records
from experiments import verdicts
from experiments.clipping_bias import lookup
from experiments.verdicts import Verdict

_PRINTED = papers.CLIPPING_EXAMPLE
# Tolerances: half a unit of the last printed digit; for end points of training,
# also the error of the descent.
_BAND = 5e-5
_TRAINED_BAND = 1e-3
_DATASETS = ('dropout', 'adult')
_CLIP_NORMS = (1.0, 3.0)
# A mean over the last quarter of a curve must exceed this to be above the
# sampling noise of the probe.
_CLEAR = 0.02
_ACCURACY_BAND = 0.015


def verdict(rows: Sequence[records.Row]) -> list[Verdict]:
  """Returns verdicts on all claims; one without rows is 'not run'."""
  values = lookup.collect(rows)
  result = [*_example(values), *_descents(values), _figure_5_2_1(values),
           *_theorem(values), _mini_batches(values)]
  for dataset in _DATASETS:
    result += [_trends(values, dataset, clip_norm)
              for clip_norm in _CLIP_NORMS]
    result += [check(values, dataset) for check in (
        _update, _active, _other_point, _no_error, _minor_drawback)]
  return result


def _not_run(claim: str, printed: str) -> Verdict:
  return Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')


def _point(point: Sequence[float]) -> str:
  return '(' + ', '.join(f'{x:.5f}' for x in point) + ')'


def _value(values: lookup.Values, metric: str, *key) -> float | None:
  result = values.get(lookup.Key(*key), {}).get(metric)
  return float(np.mean(result)) if result else None


def _example(values: lookup.Values) -> list[Verdict]:
  """Returns verdicts on the two numbers printed in the example (E21)."""
  key = ('zero', 'regression', 'exact', _PRINTED.clip_norm, ())
  norm = _value(values, 'norm_at_optimum', *key)
  first = 'norm of the mean clipped gradient at (a, b)'
  second = 'the mean clipped gradient is zero at (a, b) plus'
  if norm is None:
    return [_not_run(first, f'{_PRINTED.gradient_norm}'),
            _not_run(second, _point(_PRINTED.zero))]
  zero = [_value(values, f'zero_{axis}', *key) for axis in (1, 2)]
  there = _value(values, 'norm_at_printed_zero', *key)
  near = abs(norm - _PRINTED.gradient_norm) <= _BAND
  same = np.abs(np.subtract(zero, _PRINTED.zero)).max() <= _BAND
  return [
      Verdict(first, f'{_PRINTED.gradient_norm}', f'{norm:.7f}',
              verdicts.AGREES if near else verdicts.DIFFERS,
              f'{norm - _PRINTED.gradient_norm:+.1e}'),
      Verdict(second, _point(_PRINTED.zero), _point(zero),
              verdicts.AGREES if same else verdicts.DIFFERS,
              'both signs are wrong (E21): at the printed point the norm of '
              f'the mean is {there:.4f}, not 0; there, as at (a, b), every '
              'gradient is clipped')]


def _descents(values: lookup.Values) -> list[Verdict]:
  """Returns verdicts on where clipped and normalised training ends."""
  claims = (
      ('DP-SGD comes to rest at the zero of the mean clipped gradient',
       'clipped_sgd', _PRINTED.clip_norm, 'noiseless DP-SGD'),
      ('with noise it comes to rest near that zero, not near (a, b)',
       'dp_sgd', _PRINTED.clip_norm, 'DP-SGD at epsilon 1, mean of the seeds'),
      ('Algorithm 7 as listed (normalising) comes to rest there too',
       'normalised_sgd', math.inf, 'weighted least absolute deviations, '
       'whose optimum is (a, b - 1); clipping is meant (E21)'))
  zero = [_value(values, f'zero_{axis}', 'zero', 'regression', 'exact',
                 _PRINTED.clip_norm, ()) for axis in (1, 2)]
  results = []
  for claim, method, clip_norm, reason in claims:
    printed = 'the zero, with the sign corrected'
    rest = _rest(values, method, clip_norm)
    if rest is None or None in zero:
      results.append(_not_run(claim, printed))
      continue
    distance = float(np.linalg.norm(np.subtract(rest, zero)))
    band = 0.05 if method == 'dp_sgd' else _TRAINED_BAND
    results.append(Verdict(
        claim, printed, _point(rest),
        verdicts.AGREES if distance <= band else verdicts.DIFFERS,
        f'{distance:.1e} away: {reason}'))
  return results + [Verdict(
      'Lip-DP-SGD converges to (a, b) on the example', '(a, b)', '-',
      verdicts.NOT_COMPARABLE, 'the squared loss is not Lipschitz, which the '
      'method requires; its side is argued without weight bound, noise and '
      'division by X_k')]


def _rest(values: lookup.Values, method: str,
          clip_norm: float) -> list[float] | None:
  """Returns the mean end point of training over seeds, or None.

  Of two data sets the larger one is used.
  """
  for size in ('full', 'small'):
    rest = [_value(values, f'rest_{axis}', 'descent', f'regression_{size}',
                   method, clip_norm, ()) for axis in (1, 2)]
    if None not in rest:
      return rest
  return None


def _figure_5_2_1(values: lookup.Values) -> Verdict:
  claim = ('Figure 5.2.1: the mean gradient is zero at (0, 0), the mean '
           'clipped gradient elsewhere')
  grid = lookup.grid(values)
  if grid is None:
    return _not_run(claim, 'a picture')
  plain, clipped = (lookup.crossings(grid.first, grid.second, field)
                    for field in (grid.plain, grid.clipped))
  if len(plain) != 1 or len(clipped) != 1:
    return Verdict(claim, 'one zero each', f'{len(plain)} and {len(clipped)}',
                   verdicts.DIFFERS, 'zeros of the computed fields')
  apart = np.linalg.norm(clipped[0] - plain[0]) > 0.5
  near = np.abs(plain[0]).max() < 1e-6
  return Verdict(
      claim, 'a picture', f'{_point(plain[0])} and {_point(clipped[0])}',
      verdicts.AGREES if apart and near else verdicts.DIFFERS,
      'the only zeros of the computed fields; the field of clipped gradients '
      'is that of a convex Huber loss')


def _theorem(values: lookup.Values) -> list[Verdict]:
  """Returns verdicts on Theorem 5.2.3 for weights in a ball (E18)."""
  reasons = {
      'frobenius_rescaling': ('full gradients, Frobenius ball: rescaling is '
                              'the projection'),
      'clip_weights': ('full gradients, spectral norm as in the experiments: '
                       'rescaling is not the projection (E18)'),
      'spectral_projection': 'the projection instead of rescaling repairs it',
      'frobenius_adam': ('Frobenius ball, but under Adam as in the '
                         'experiments, which keeps the signs of gradients '
                         'that have settled')}
  results = []
  for method, reason in reasons.items():
    claim = f'Theorem 5.2.3: the limit is a local optimum ({method})'
    key = ('ball', 'diagonal', method, math.inf, ())
    end, best = (_value(values, metric, *key)
                 for metric in ('objective', 'optimum'))
    if end is None:
      results.append(_not_run(claim, 'always'))
      continue
    results.append(Verdict(
        claim, f'objective {best:.5f}', f'{end:.5f}',
        verdicts.AGREES if end - best < 1e-4 else verdicts.DIFFERS, reason))
  return results


def _mini_batches(values: lookup.Values) -> Verdict:
  """Returns a verdict on the remark to Theorem 5.2.3 about batches (E19)."""
  claim = ('with batches, Lip-DP-SGD (Algorithm 8) converges to a '
           'neighbourhood of the real local optimum')
  gaps = {key: metrics['fixed_point'][0] - metrics['least_squares'][0]
          for key, metrics in lookup.of_kind(values, 'batches').items()}
  if not gaps:
    return _not_run(claim, 'the optimum')
  usual = [key for key in gaps if 32 <= key.at[0] <= 512] or list(gaps)
  worst = max(usual, key=lambda key: abs(gaps[key]))
  optimum = values[worst]['least_squares'][0]
  size, share = worst.at
  return Verdict(
      claim, f'{optimum:.4f}', f'{optimum + gaps[worst]:.4f}',
      verdicts.AGREES if abs(gaps[worst]) < _TRAINED_BAND
      else verdicts.DIFFERS,
      f'batches of {size:g} (the text searches 32 to 512), {share:g} large '
      'records: division by the largest input of the batch weights batches by '
      'their contents (E19); this bias vanishes only if every batch contains a '
      'large record')


def _ends(values, dataset, method, clip_norm, metric) -> lookup.Ends:
  return lookup.ends(lookup.curve(values, dataset, method, clip_norm,
                                  metric)[1])


def _arrow(end: lookup.Ends) -> str:
  return f'{end.start:.3f} -> {end.end:.3f}'


def _trends(values: lookup.Values, dataset: str,
            clip_norm: float) -> Verdict:
  """Returns verdicts on the two curves of Figure 5.3.3."""
  claim = (f'Figure 5.3.3, {dataset}, clip norm {clip_norm:g}: the error '
           'grows while ||clip(g)|| falls')
  error, clipped, size = (
      _ends(values, dataset, 'dp_sgd', clip_norm, metric)
      for metric in ('error_norm', 'clipped_norm', 'gradient_norm'))
  if np.isnan(error.end):
    return _not_run(claim, 'up, down')
  grows = error.end > error.start + _CLEAR
  falls = clipped.end < clipped.start - _CLEAR
  reason = ('both, from the first point to the last quarter' if grows and falls
            else 'the error falls too' if falls else 'not both')
  relative = lookup.Ends(*np.divide(error, size))
  return Verdict(
      claim, 'up, down', f'error {_arrow(error)}, clip {_arrow(clipped)}',
      verdicts.AGREES if grows and falls else verdicts.DIFFERS,
      f'{reason}; relative to ||g|| it goes {_arrow(relative)}; the text does '
      'not print clip norm, optimiser and widths')


def _update(values: lookup.Values, dataset: str) -> Verdict:
  """Returns a verdict on the distance from g to Algorithm 8's update (E20)."""
  claim = f'{dataset}: g is the update of Algorithm 8 without noise'
  error, size, cosine = (
      _ends(values, dataset, 'dp_sgd', 1.0, metric)
      for metric in ('printed_error', 'gradient_norm', 'printed_cosine'))
  if np.isnan(error.end):
    return _not_run(claim, 'distance 0')
  share = error.end / size.end
  return Verdict(
      claim, 'distance 0', f'{error.end:.3f} of {size.end:.3f}',
      verdicts.AGREES if share < 0.01 else verdicts.DIFFERS,
      'Algorithm 8 divides each layer by X_k (E20); by the measure of the '
      f'figure its update is {share:.0%} of ||g|| away from g, though in '
      f'nearly the same direction: cosine {cosine.end:.3f}')


def _active(values: lookup.Values, dataset: str) -> Verdict:
  claim = f'{dataset}: at the end a significant share is still clipped'
  shares = [_ends(values, dataset, 'dp_sgd', clip_norm,
                  'fraction_changed').end for clip_norm in _CLIP_NORMS]
  if np.isnan(shares).any():
    return _not_run(claim, 'significant')
  return Verdict(
      claim, 'significant', ' and '.join(f'{x:.2f}' for x in shares),
      verdicts.AGREES if min(shares) > 0.05 else verdicts.DIFFERS,
      'at clip norms 1 and 3')


def _other_point(values: lookup.Values, dataset: str) -> Verdict:
  """Returns a verdict: does clipping without noise end at another point?"""
  claim = (f'{dataset}: clipping makes the model converge to another point '
           'than the optimum')
  clipped = _ends(values, dataset, 'clipped_sgd', 1.0, 'train_loss').end
  plain = _ends(values, dataset, 'sgd', 1.0, 'train_loss').end
  accuracy = [_ends(values, dataset, method, 1.0, 'test_accuracy').end
              for method in ('clipped_sgd', 'sgd')]
  if np.isnan([clipped, plain, *accuracy]).any():
    return _not_run(claim, 'yes')
  size, rest = (_ends(values, dataset, 'clipped_sgd', 1.0, metric).end
                for metric in ('gradient_norm', 'clipped_norm'))
  return Verdict(
      claim, 'yes', f'training loss {clipped:.3f} against {plain:.3f}',
      verdicts.AGREES if clipped > plain + _CLEAR else verdicts.DIFFERS,
      f'without noise, clip norm 1: where ||clip(g)|| is {rest:.3f}, ||g|| is '
      f'{size:.3f}. Held-out accuracy {accuracy[0]:.3f} against '
      f'{accuracy[1]:.3f}: a different point need not predict worse')


def _no_error(values: lookup.Values, dataset: str) -> Verdict:
  """Returns a verdict: does Lip-DP-SGD leave gradients unchanged?"""
  claim = f'{dataset}: Lip-DP-SGD (sound) has no such error'
  plain, clipped = (_ends(values, dataset, method, math.inf,
                          'error_norm').end
                    for method in ('lip_dp_sgd', 'lip_dp_sgd_logit_clip'))
  if np.isnan([plain, clipped]).any():
    return _not_run(claim, '0')
  return Verdict(
      claim, '0', f'{plain:.1e}',
      verdicts.AGREES if plain < 1e-5 else verdicts.DIFFERS,
      'with the unmodified loss; our recipe clips cotangents at the logits and '
      f'has an error of {clipped:.2f}, like DP-SGD. The bounded weights and '
      'the rescaling of E18 remain')


def _minor_drawback(values: lookup.Values, dataset: str) -> Verdict:
  """Returns a verdict on the accuracy lost by bounded weights without noise."""
  claim = f'{dataset}: bounding the weights is only a minor drawback'
  names = (('lip_sgd', math.inf), ('sgd', 1.0))
  accuracy = [_ends(values, dataset, *name, 'test_accuracy').end
              for name in names]
  if np.isnan(accuracy).any():
    return _not_run(claim, 'minor')
  gap = accuracy[0] - accuracy[1]
  loss = [_ends(values, dataset, *name, 'train_loss').end
          for name in (*names, ('clipped_sgd', 1.0), ('clipped_sgd', 3.0))]
  return Verdict(
      claim, 'minor', f'accuracy {accuracy[0]:.3f} against {accuracy[1]:.3f}',
      verdicts.AGREES if gap > -_ACCURACY_BAND else verdicts.DIFFERS,
      f'{gap:+.3f} without noise; compares bounded weights and activations '
      f'with unbounded ones. Training loss is {loss[0]:.3f} against '
      f'{loss[1]:.3f}; with clipping at norms 1 and 3 it is {loss[2]:.3f} and '
      f'{loss[3]:.3f}')
