"""Names and families of random draws in a traced release.

A sampler is known by its name: a function of `jax.random`, which is a jitted
call of that name in a jaxpr, or a sampler of dpjax, which the tracebacks of its
equations name. Names are only claims, so `fits` compares the draws with the
family. Other samplers are recognised by the numbers that they draw.
"""

import os
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

# Jitted functions of jax.random, and the family of what they return.
_JAX = {'_normal': 'normal', '_normal_real': 'normal', '_laplace': 'laplace',
        '_gumbel': 'gumbel', '_logistic': 'logistic', '_cauchy': 'cauchy',
        '_exponential': 'exponential', '_uniform': '', '_randint': '',
        '_gamma': '', '_bernoulli': '', '_choice': '', '_poisson': '',
        '_binomial': '', '_rademacher': '', '_truncated_normal': '',
        '_shuffle': '', '_t': '', '_geometric': '', '_categorical': ''}
# Samplers of dpjax, by module and function.
_DPJAX = {('additive', 'standard_normal'): 'normal',
          ('additive', 'normals_of_several'): 'normal',
          ('sharded', 'unit_noise'): 'normal',
          ('draws', 'standard_laplace'): 'laplace',
          ('draws', 'standard_gumbel'): 'gumbel',
          ('draws', 'standard_exponential'): 'exponential',
          ('draws', 'standard_cauchy'): 'cauchy',
          ('draws', 'standard_uniform'): '',
          ('draws', 'discrete_laplace'): 'discrete_laplace',
          ('integers', 'draw'): '', ('integers', 'draw_rows'): '',
          ('integers', 'draw_rows_in_parts'): '',
          ('k_norm', 'unit_noise'): 'k_norm'}
# Modules whose lines say nothing of the caller.
_INNER = {'additive', 'sharded', 'draws', 'integers', 'k_norm', 'threefry',
          'chacha', 'tree', 'floats', 'lattice', 'laplace'}
# Modules that call a release.
_OWN = {'interpreter', 'runner', 'sites', 'target'}
CONTINUOUS = {'normal': stats.norm, 'laplace': stats.laplace,
               'logistic': stats.logistic, 'gumbel': stats.gumbel_r,
               'exponential': stats.expon, 'uniform': stats.uniform,
               'cauchy': stats.cauchy}
# A true family fails with this probability at each identification.
_LEVEL = 1e-4
_MOST_SAMPLES = 20000


class Place(NamedTuple):
  """The sampler to which an equation belongs, and the caller's line."""
  sampler: str
  family: str
  line: str


def place(eqn: Any) -> Place:
  """Returns the sampler of an equation, '' if none, and the user's line."""
  sampler, family, line, innermost = '', '', '', ''
  traceback = eqn.source_info.traceback
  for frame in (traceback.frames if traceback is not None else ()):
    path = frame.file_name
    module = os.path.basename(path).removesuffix('.py')
    inside = 'dpjax' in path.split(os.sep)
    if f'{os.sep}jax{os.sep}' in path or path.startswith('<') or (
        inside and module in _OWN):
      continue
    innermost = innermost or f'{os.path.basename(path)}:{frame.line_num}'
    # Frames run from the innermost out: the outermost sampler wins.
    if inside and (module, frame.function_name) in _DPJAX:
      sampler, line = frame.function_name, ''
      family = _DPJAX[module, frame.function_name]
    if not line and not (inside and module in _INNER):
      line = f'{os.path.basename(path)}:{frame.line_num}'
  return Place(sampler, family, line or innermost)


def jax_sampler(eqn: Any) -> str | None:
  """Returns the family that a call of jax.random draws; None if it is none."""
  return _JAX.get(str(eqn.params.get('name', '')))


class Family(NamedTuple):
  """A distribution: name, location, scale, and relative error of the scale."""
  name: str
  location: float = 0.0
  scale: float = 1.0
  error: float = 0.0


UNKNOWN = Family('')


def fits(samples: np.ndarray, family: str) -> bool:
  """Returns whether samples follow the standard member of a family.

  A Kolmogorov-Smirnov test that rejects a true family with probability 1e-4.
  """
  samples = _some(samples)
  return bool(stats.kstest(samples, CONTINUOUS[family].cdf).pvalue > _LEVEL)


def identify(samples: np.ndarray) -> Family:
  """Returns the family of independent samples, with fitted parameters.

  Uses the family with the least Kolmogorov-Smirnov distance if the test does
  not reject it, and `UNKNOWN` otherwise. `error` is four standard errors.
  """
  samples = _some(samples)
  error = 4 / np.sqrt(samples.size)
  if not np.isfinite(samples).all() or np.ptp(samples) == 0:
    return UNKNOWN
  if np.array_equal(samples, np.round(samples)):
    return _integers(samples, error)
  fitted = [_fitted(name, samples) for name in CONTINUOUS
            if name != 'exponential' or samples.min() >= 0]
  tests = [stats.kstest(samples, CONTINUOUS[family.name](
      family.location, family.scale).cdf) for family in fitted]
  best = int(np.argmin([test.statistic for test in tests]))
  if not tests[best].pvalue > _LEVEL:
    return UNKNOWN
  return fitted[best]._replace(error=max(error, fitted[best].error)
                               if fitted[best].name != 'uniform'
                               else fitted[best].error)


def _fitted(name: str, samples: np.ndarray) -> Family:
  """Returns a family with the parameters that its samples suggest."""
  middle = float(np.median(samples))
  low, high = np.quantile(samples, [0.25, 0.75])
  if name == 'uniform':
    return _uniform(samples)
  if name == 'exponential':
    return Family(name, 0.0, float(samples.mean()))
  if name == 'cauchy':
    return Family(name, middle, float(high - low) / 2)
  if name == 'laplace':
    return Family(name, middle, float(np.abs(samples - middle).mean()))
  standard = CONTINUOUS[name]
  scale = float(samples.std() / standard.std())
  return Family(name, float(samples.mean() - scale * standard.mean()), scale)


def _uniform(samples: np.ndarray) -> Family:
  """Returns the uniform family; ends near a half integer are taken as it."""
  slack = 10 * np.ptp(samples) / samples.size
  ends = [float(samples.min()), float(samples.max())]
  halves = [float(np.round(2 * end) / 2) for end in ends]
  near = all(abs(end - half) < slack
             for end, half in zip(ends, halves, strict=True))
  low, high = halves if near else ends
  # Probabilities near the ends of a fitted range are badly known.
  return Family('uniform', low, high - low, 0.0 if near else 0.5)


def _integers(samples: np.ndarray, error: float) -> Family:
  """Returns the family of samples that are integers."""
  if samples.min() >= 0 and samples.max() > 2**31:
    # Words of a generator; their middles are those of a continuous number.
    scaled = (samples + 0.5) / 2.0**32
    uniform = stats.kstest(scaled, 'uniform').pvalue > _LEVEL
    return Family('words', 0.0, 2.0**32) if uniform else UNKNOWN
  size = float(np.abs(samples).mean())
  if size == 0:
    return UNKNOWN
  # E|z| = 2 a / (1 - a^2) determines a = exp(-1 / scale).
  rate = (np.sqrt(1 + size**2) - 1) / size
  values = np.arange(-4000, 4001)
  laplace = rate**np.abs(values)
  normal = np.exp(-values**2 / (2 * samples.var()))
  names = {'discrete_laplace': (laplace, -1 / np.log(rate)),
           'discrete_gaussian': (normal, samples.std())}
  distances = {}
  counts = np.sort(samples)
  for name, (weights, _) in names.items():
    below = np.cumsum(weights / weights.sum())
    mine = np.searchsorted(counts, values, side='right') / counts.size
    distances[name] = np.abs(mine - below).max()
  best = min(distances, key=distances.__getitem__)
  # 2.2 / sqrt(n) is the Kolmogorov bound at 1e-4, larger for integers.
  if distances[best] > 2.2 / np.sqrt(samples.size):
    return UNKNOWN
  return Family(best, 0.0, float(names[best][1]), error)


def cdf(family: Family, values: np.ndarray) -> np.ndarray:
  """Returns P(draw < value) of a continuous family, or of words."""
  if family.name == 'words':
    return np.clip(values / family.scale, 0, 1)
  return CONTINUOUS[family.name].cdf(values, family.location, family.scale)


def norm_order(samples: np.ndarray) -> float | None:
  """Returns the p of vectors [n, d] of density exp(-||b||_p); None if none.

  Their p-norms have the Gamma(d) distribution.
  """
  for order in (1, 2, np.inf):
    norms = np.linalg.norm(samples, order, axis=1)
    if stats.kstest(norms, stats.gamma(samples.shape[1]).cdf
                    ).pvalue > _LEVEL:
      return order
  return None


def _some(samples: np.ndarray) -> np.ndarray:
  """Returns at most `_MOST_SAMPLES` of the samples, as one vector."""
  return np.asarray(samples, np.float64).ravel()[:_MOST_SAMPLES]
