"""Claims of the text and of the public code, compared with the rows."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments import papers
from experiments import verdicts
from experiments.unsound import sweep

Found = Mapping[tuple, Mapping[str, float]]


class Claim(NamedTuple):
  """A printed claim, with the setting whose numbers test it.

  Attributes:
    text: the claim, and where it is printed.
    kind: kind of the setting.
    case: case of the setting.
    why: reason for a difference, with the number of the erratum.
  """
  text: str
  kind: str
  case: str
  why: str


CLAIMS = (
    Claim('Theorem 5.2.2 at n = 10, every record taken, sigma = 4', 'pair',
          'full_10', 'E1: the batch maximum makes the sensitivity n + 1'),
    Claim('Theorem 5.2.2 at n = 1000, every record taken, sigma = 4', 'pair',
          'full_1000', 'E1: no epsilon independent of n holds'),
    Claim('Theorem 5.2.2, one Poisson step, a norm twice the others', 'pair',
          'poisson_2', 'E1: bounded inputs do not save it'),
    Claim('Theorem 5.2.2, n = 60000, batch 256, 2344 steps', 'pair', 'steps',
          'E1: one test on the steps tells the data sets apart'),
    Claim('accounting as DP-SGD (section 5.2.3): ConvNet, 4 layers, sigma = 1',
          'blocks', 'convnet_1', 'E2: 4 releases on one batch'),
    Claim('accounting as DP-SGD (section 5.2.3): WRN-16-4, 17 layers, '
          'sigma = 2',
          'blocks', 'wrn16_2', 'E2: 17 releases on one batch'),
    Claim('accounting as DP-SGD (section 5.2.3): WRN-40-4, 41 layers, '
          'sigma = 2',
          'blocks', 'wrn40_2', 'E2: 41 releases on one batch'),
    Claim('accounting as DP-SGD (section 5.2.3): Adult, 2 layers, sigma = 2',
          'blocks', 'adult_2', 'E2: 2 releases on one batch'),
    Claim('line 5: product from the layer itself, a norm of 1/2', 'constant',
          'own_norm_half', 'E3: under-noised where a norm is below 1'),
    Claim('line 5: product from the layer itself, a zero matrix', 'constant',
          'own_norm_zero', 'E3: no noise at all'),
    Claim('line 5: product from the layer itself, a norm of 2', 'constant',
          'own_norm_two', 'E3: more noise than needed'),
    Claim('line 13: division by |V|, n = 10000', 'batch', 'mean_full_10000',
          'E4: the multiplier is halved'),
    Claim('line 13: division by |V|, Poisson, n = 1000', 'batch',
          'mean_poisson_1', 'E4: the noise also shows the batch size'),
    Claim('lines 7-9: empty batches drawn again, n = 10', 'batch',
          'redraw_10', 'E5: inclusion q / (1 - (1 - q)^n); q = .01, where '
          's >= 1 would need q >= .1'),
    Claim('lines 7-9: empty batches drawn again, n = 1000', 'batch',
          'redraw_1000', 'E5: harmless where batches are never empty'),
    Claim('Table 5.1: dense layer, no word on biases, X_k = 1', 'constant',
          'bias_unit_input', 'E6: the bias gradient is released too'),
    Claim('Table 5.1: dense layer, no word on biases, X_k = 0.1', 'constant',
          'bias_small_input', 'E6: it is divided by X_k'),
    Claim('Table 5.1: convolution, no word on biases', 'constant',
          'bias_conv', 'E6: sqrt(28 28) for a bias of a map'),
    Claim('line 11 for the ConvNet, norm of the reshaped kernel', 'constant',
          'conv_reshape', 'E7: factors 9, 3, 1, 1 are missing; E2'),
    Claim('line 11 for the ConvNet, true operator norms', 'constant',
          'conv_operator', 'E7: factors 3, 3, 1, 1 are missing; E2'),
    Claim('line 23: c_k = 1 for overlapping max pooling', 'constant',
          'pool_overlapping', 'E11: it is 2 for 2x2, stride 1'),
    Claim('line 23: c_k = 1 for normalisation, alpha = 0.1', 'constant',
          'normalisation', 'E11: it is 1/alpha'),
    Claim('line 23: c_k = 1 for a tempered sigmoid, s = 4, T = 2',
          'constant', 'tempered_sigmoid', 'E11: it is s T / 4'),
    Claim('line 23: c_k = 1 for a residual sum', 'constant', 'residual_sum',
          'E11: it adds one'),
    Claim('line 5 for 18 residual blocks', 'constant', 'residual_18',
          'E12: 2^18 = 262,144'),
    Claim('Table 5.2: alpha in [0.1/m, 1/m], m = 1024, WRN-40-4', 'constant',
          'alpha_1024', 'E17: 1/alpha to the power of 37 layers'),
)

_TOLERANCE = 0.01


def best_bound(metrics: Mapping[str, float]) -> float:
  """Returns the largest lower bound on epsilon over attack statistics."""
  return max(value for name, value in metrics.items()
             if name.startswith('epsilon_lower_'))


def verdict(cells: Found) -> list[verdicts.Verdict]:
  """Returns a verdict on each claim; 'not run' without rows."""
  results = [_exact(claim, cells) for claim in CLAIMS]
  for line in papers.PUBLISHED_CODE:
    results += _published(line, cells)
  results.append(_audited(
      'Theorem 5.2.2 under attack: frozen logistic regression',
      _select(cells, 'audit', sweep.PRINTED),
      'E1: the batch maximum'))
  results.append(_audited(
      'the sound method (per-record scaling) under the same attack',
      _select(cells, 'audit', sweep.SCALED), 'it is not sound, then'))
  results.append(_audited(
      'Theorem 5.2.2 under attack: training, a record within bounds',
      _select(cells, 'training', sweep.PRINTED),
      'E1, though all features are bounded'))
  return results


def _exact(claim: Claim, cells: Found) -> verdicts.Verdict:
  metrics = next((m for key, m in cells.items()
                  if key[:2] == (claim.kind, claim.case)), None)
  if metrics is None:
    return verdicts.Verdict(claim.text, '-', '-', verdicts.NOT_RUN, 'no rows')
  claimed, true = metrics['epsilon_claimed'], metrics['epsilon_true']
  shown = f'epsilon {claimed:.4g}', f'epsilon {true:.4g}'
  if abs(true - claimed) <= _TOLERANCE * claimed:
    return verdicts.Verdict(claim.text, *shown, verdicts.AGREES,
                            f'within {_TOLERANCE:.0%}; {claim.why}')
  return verdicts.Verdict(claim.text, *shown, verdicts.DIFFERS, claim.why)


def _published(line: papers.PublishedRun,
               cells: Found) -> list[verdicts.Verdict]:
  """Compares the epsilons of configured and of actual batch sizes."""
  text = f'public code, {line.dataset} at {line.accuracy:.1%}'
  metrics = next((m for key, m in cells.items()
                  if key[:2] == ('published', line.dataset)), None)
  if metrics is None:
    return [verdicts.Verdict(text, '-', '-', verdicts.NOT_RUN, 'no rows')]
  printed = f'epsilon {line.epsilon:g}'
  configured, true = metrics['epsilon_configured'], metrics['epsilon_true']
  accounted, drawn = line.accounted_batch_size, line.drawn_batch_size
  agrees = abs(configured - line.epsilon) <= 0.05
  return [
      verdicts.Verdict(
          f'{text}, batch {accounted} as accounted', printed,
          f'epsilon {configured:.4g}',
          verdicts.AGREES if agrees else verdicts.DIFFERS,
          'within 0.05 of what is printed'),
      verdicts.Verdict(
          f'{text}, batch {drawn} as drawn', printed, f'epsilon {true:.4g}',
          verdicts.DIFFERS,
          f'a step takes {drawn} records with the noise of {accounted}; '
          'assuming its sensitivity and Poisson sampling'),
  ]


def _select(cells: Found, kind: str, method: str) -> Found:
  return {key: metrics for key, metrics in cells.items()
          if key[0] == kind and key[2] == method}


def _audited(text: str, cells: Found, why: str) -> verdicts.Verdict:
  """Returns a verdict on whether attacks refute claims, with the worst case.

  An unsound method that no attack refutes is still unsound.
  """
  if not cells:
    return verdicts.Verdict(text, '-', '-', verdicts.NOT_RUN, 'no rows')
  sound = all(key[2] == sweep.SCALED for key in cells)
  bounds = {key: best_bound(metrics) for key, metrics in cells.items()}
  refuted = [key for key in bounds if bounds[key] > key[4]]
  worst = max(bounds, key=lambda key: bounds[key] / key[4])
  claimed = f'epsilon {worst[4]:g}'
  shown = f'above {bounds[worst]:.3g}'
  count = f'{len(refuted)} of {len(bounds)} claims are refuted'
  if refuted:
    return verdicts.Verdict(text, claimed, shown, verdicts.DIFFERS,
                            f'{count}; {why}')
  if sound:
    return verdicts.Verdict(text, claimed, shown, verdicts.AGREES,
                            f'{count}: not falsified, which is no proof')
  return verdicts.Verdict(text, claimed, shown, verdicts.NOT_COMPARABLE,
                          f'{count}: the attack is too weak to tell')
