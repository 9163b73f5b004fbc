"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import math

from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from experiments import records
from experiments import rows
from experiments.gaussian_calibration import sweep
from experiments.methods.statistics import noise_magnitudes as utility
from experiments.methods.theory import tradeoffs

FAILURE_PROB = 0.05


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kind)
    metrics = {'noise': _noise, 'utility': _utility}[setting.kind](setting)
    yield setting, rows.exact(setting, metrics)


def _stddev(setting: sweep.Setting) -> float:
  """Returns the classical standard deviation for sensitivity 1."""
  return additive.classical_gaussian(
      record_norm=1.0, epsilon=setting.epsilon, delta=setting.delta,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE).stddev


def _noise(setting: sweep.Setting) -> dict[str, float]:
  """Returns standard deviations for sensitivity 1 (MECH-04)."""
  classical, epsilon = _stddev(setting), setting.epsilon
  return dict(
      classical=classical,
      least=1 / accounting.gaussian_shift(epsilon=epsilon, delta=setting.delta),
      true_epsilon=accounting.gaussian_epsilon(shift=1 / classical,
                                               delta=setting.delta),
      true_delta=float(tradeoffs.gaussian_delta(epsilon, shift=1 / classical)))


def _utility(setting: sweep.Setting) -> dict[str, float]:
  """Returns probabilities that the largest error exceeds the bounds."""
  stddev = _stddev(setting)

  def exceeded(bound):
    return -math.expm1(setting.size * math.log1p(
        -2 * special.ndtr(-bound / stddev)))

  printed = stddev * math.sqrt(math.log(setting.size / FAILURE_PROB))
  return dict(
      exceeds_printed=exceeded(printed),
      exceeds_bound=exceeded(utility.gaussian_sup_bound(
          stddev, setting.size, failure_prob=FAILURE_PROB)),
      exceeds_quantile=exceeded(utility.gaussian_sup_quantile(
          stddev, setting.size, failure_prob=FAILURE_PROB)))
