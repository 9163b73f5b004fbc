"""Computes the rows of the settings in `sweep.py`."""

from collections.abc import Callable, Iterator, Sequence
import math

from scipy import optimize

from experiments import density_settings
from experiments import records
from experiments import rows
from experiments.density_crossover import sweep

# Largest numbers of frequencies and bins without noise: `_FEW` for n up to
# `_SMALL`; for all other n, by method.
_FEW, _SMALL = 100, 10**5
_LARGEST = {'spectral': 500, 'pure_exact': 500}
_MOST = 1500
# Logarithms of budgets: far below and far above all boundaries.
_ENDS = (-12.0, 4.0)
_STEP = 0.02


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.dataset} '
             f'n={setting.num_examples}')
    yield setting, rows.exact(setting, boundaries(setting))


def boundaries(setting: sweep.Setting) -> dict[str, float]:
  """Returns the budget alpha of each boundary."""
  size = setting.num_examples
  largest = _FEW if size <= _SMALL else _LARGEST.get(setting.method, _MOST)
  result = density_settings.family(setting.method, setting.dataset, largest)
  least = lambda alpha: result.least(size, size * alpha)
  nothing = density_settings.density(setting.dataset).energy

  def share(alpha):
    """Returns the share of noise in the error without bias."""
    place = result.best(size, size * alpha)
    noise = result.privacy[place] / (size * alpha)**2
    return noise / (noise + result.sampling[place] / size)
  doubling = _root(lambda alpha: least(alpha) / least(math.inf) - 2)
  # The share jumps when the best tuning changes, so that it need not equal 1/2
  # anywhere: take the largest budget at which noise is half.
  equal = doubling * 10
  while share(equal) < 0.5:
    equal *= 1 - _STEP
  return dict(doubling=doubling, equal=equal,
              trivial=_root(lambda alpha: least(alpha) / nothing - 1))


def _root(excess: Callable[[float], float]) -> float:
  """Returns the zero of a function that decreases with the budget."""
  return 10**optimize.brentq(lambda power: excess(10**power), *_ENDS)
