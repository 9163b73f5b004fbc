"""Settings to study private maximum likelihood.

Catalogue item EXP-9. Printed methods and bounds are those of Lalanne (2023,
section 4.2.2).

  python -m launch.sweep --experiment=price_likelihood \
    --output_dir=experiments/price_likelihood/results

Models are products of Bernoulli distributions with log-odds in [-b, b]^d, under
rho-zCDP. Parts:
  risk     the largest total risk with its lower and upper bounds, against n
  records, budgets, dimensions
           the privacy term, which is the squared distance to theta_ML, against
           n, rho and d
  golden   the privacy term and the total at five points with stored values
  batches  the privacy term of small batches, and the noise that they need
  audit    the exact privacy loss of small batches for a quadratic objective
  printed  bounds against d
Methods: `maximum` (no privacy); `statistics` (noisy means) and `minimax` (their
best use); `output` and `output_printed`; `descent` and `descent_printed`; for
batches `poisson`, `replacement` and `without`.

Expected: privacy terms are of order n^-2, rho^-1 and d^2; that of noisy means
is at least 7 times smaller than that of the printed descent; small batches with
replacement exceed rho-zCDP by far.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('section 4.2.2 of Lalanne (2023): equations (4.6) and (4.8), '
            'Algorithm 1 and Fact 4.2.4')
COST = '1 min on a CPU core'
HEADLINES = (
    'mini-batches with',
    'rho-zCDP requires noise of variance 4 L^2 / (rho lambda n^2)')
BATCHED = ('method',)

NOISY = ('statistics', 'output', 'output_printed', 'descent', 'descent_printed')
METHODS = ('maximum', 'minimax') + NOISY
ORDERS = (1.5, 2, 5, 20, 100)
DELTAS = (1e-2, 1e-3, 1e-5)
GOLDEN = ((500, 5, .5, 1.), (2000, 5, .1, 1.), (5000, 20, .5, 1.),
          (20_000, 20, .05, 1.), (2000, 5, .1, 2.))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One method at one point.

  Attributes:
    part: name from the list above.
    method: name from the list above.
    num_examples: n, the number of records.
    dimension: d, the dimension of a record.
    rho: zCDP budget of the release.
    radius: b, bound on the log-odds.
    batch_size: m; 0 for all records.
    repetitions: number of simulations; 0 for exact results.
    seed: seed of data and noise.
  """
  part: str
  method: str
  num_examples: int
  dimension: int = 5
  rho: float = 0.1
  radius: float = 1.0
  batch_size: int = 0
  repetitions: int = 0
  seed: int = 0

  dataset = 'product_bernoulli'


def _risk(sizes, repetitions, methods=METHODS):
  return tuple(Setting(part='risk', method=method, num_examples=size, rho=0.01,
                       repetitions=repetitions)
               for size in sizes for method in methods)


def _privacy(repetitions, sizes, rhos, dimensions):
  places = ([('records', size, 5, .1) for size in sizes]
            + [('budgets', 4000, 5, rho) for rho in rhos]
            + [('dimensions', 4000, d, .1) for d in dimensions])
  return tuple(Setting(part=part, method=method, num_examples=size,
                       dimension=d, rho=rho, repetitions=repetitions)
               for part, size, d, rho in places for method in NOISY)


def _golden(repetitions, places):
  return tuple(Setting(part='golden', method=method, num_examples=size,
                       dimension=d, rho=rho, radius=b, repetitions=repetitions)
               for size, d, rho, b in places
               for method in ('maximum',) + NOISY)


def _batches(repetitions, sizes):
  return tuple(Setting(part='batches', method=method, num_examples=2000,
                       rho=.5, batch_size=m, repetitions=repetitions)
               for method in ('poisson', 'replacement') for m in sizes
               if m < 2000 or method == 'replacement')


def _audit(sizes):
  return tuple(Setting(part='audit', method=method, num_examples=100,
                       dimension=1, rho=1., batch_size=m)
               for method in ('without', 'replacement') for m in sizes)


def _printed(dimensions):
  return tuple(Setting(part='printed', method='bounds', num_examples=100_000,
                       dimension=d, rho=1e-5) for d in dimensions)


SETTINGS = (
    _risk((100, 215, 464, 1000, 2154, 4642, 10_000), 20_000)
    + _privacy(10_000, (500, 1000, 2000, 4000, 8000, 16_000),
               (.01, .03, .1, .3, 1., 3.), (2, 4, 8, 16, 32, 64))
    + _golden(10_000, GOLDEN) + _batches(400, (10, 50, 200, 2000))
    + _audit((1, 5, 10, 25, 50, 100)) + _printed((66, 132, 264, 528)))

SMOKE = (
    _risk((300,), 500, ('maximum', 'minimax', 'descent', 'statistics'))
    + _privacy(500, (500, 2000), (), ()) + _golden(500, GOLDEN[:1])
    + _batches(50, (200,)) + _audit((10, 100)) + _printed((66,)))

TAGS = {'quick': lambda setting: (
    setting.part in ('audit', 'printed', 'golden', 'records')
    or setting.part == 'risk' and setting.num_examples == 1000
    or setting.part == 'batches' and setting.batch_size in (200, 2000))}
