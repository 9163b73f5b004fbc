"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import math

from dpjax.privacy import notions
from dpjax.theory.minimax import two_points
from experiments import records
from experiments import rows
from experiments.methods.theory import printed_bounds as printed
from experiments.methods.theory import proportion_tests
from experiments.methods.theory import testing
from experiments.price_samples import sweep

_VARIATION = sweep.PROBS[1] - sweep.PROBS[0]


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  sampling = _records(lambda n: proportion_tests.best_error(n, sweep.PROBS))
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.notion} {setting.amount:g}')
    metrics = _pure if setting.notion == 'pure' else _zcdp
    yield setting, rows.exact(
        setting, metrics(setting.amount) | {'sampling': sampling})


def _records(error) -> int:
  return proportion_tests.least_records(error, sweep.TARGET)


def midpoint(num_examples: int, epsilon: float) -> float:
  """Returns E e^(-epsilon ceil(d / 2)) / 2 over d ~ Bin(n, t) (LB-3b)."""
  root = math.exp(-epsilon / 2)
  even = (1 - _VARIATION * (1 - root))**num_examples * (1 + root)
  odd = (1 - _VARIATION * (1 + root))**num_examples * (1 - root)
  return (even + odd) / 4


def _pure(epsilon: float) -> dict[str, float]:
  best = lambda n: proportion_tests.best_error(n, sweep.PROBS, epsilon=epsilon)
  values = dict(
      quoted=_records(lambda n: printed.printed_two(
          _VARIATION, num_examples=n, epsilon=epsilon)),
      theorem=_records(lambda n: testing.le_cam_pure(
          _VARIATION, num_records=n, epsilon=epsilon)),
      midpoint=_records(lambda n: midpoint(n, epsilon)),
      path=_records(lambda n: testing.pair_pure(
          _VARIATION, num_records=n, epsilon=epsilon)),
      test=_records(best))
  return values | dict(error_quoted=best(values['quoted']),
                      error_theorem=best(values['theorem']))


def _zcdp(rho: float) -> dict[str, float]:
  best = lambda n: proportion_tests.ramp_error(n, sweep.PROBS, rho=rho)
  values = dict(
      theorem=_records(lambda n: testing.le_cam_zcdp(
          _VARIATION, num_records=n, rho=rho)),
      path=_records(lambda n: two_points.product_error(
          _VARIATION, num_examples=n, guarantee=notions.ZCDP(rho=rho))),
      test=_records(best),
      gaussian=_records(lambda n: proportion_tests.gaussian_error(
          n, sweep.PROBS, rho=rho)))
  return values | dict(error_theorem=best(values['theorem']))
