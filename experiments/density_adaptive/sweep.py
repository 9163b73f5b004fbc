"""Settings to study adaptive density estimators.

Catalogue items DEN-X9, DEN-B5, DEN-B6 and DEN-B7. Printed estimators are those
of Lalanne, Garivier and Gribonval (2023).

  python -m launch.sweep --experiment=density_adaptive \
    --output_dir=experiments/density_adaptive/results

The measure is the mean integrated squared error at n records, under
replace_one, with epsilon or with rho = epsilon^2 / 2. Methods with a
closed-form error, and what each knows of the density:
  printed       the papers' tuning; it knows the smoothness beta on a circle,
                and nothing for a histogram
  oracle        the printed noise with the best number N of functions for the
                density
  exact         exact sensitivities, with the best N for them
  linear        the best weights of frequencies for the density (zCDP)
  spectral      the best bins and frequencies for the density (pure)
  histogram     the best histogram for the density
  tuned         the histogram for the density's Lipschitz constant
Simulated methods, which know only n and the budget; the metric `proper` is the
error after projection to the nearest density:
  default          `api.plan`: one noisy histogram or, under zCDP on a circle,
                   sums whose noise depends on the frequency (B5)
  spline           the estimator for an interval, used on a circle
  single           one noisy histogram with half as many bins again (A1)
  cosine           the same in the cosine basis (B7)
  two_resolutions  two nested histograms (A2')
  two_stages       a first histogram that chooses the bins of a second (A3)
  one_histogram    one noisy histogram, under zCDP on a circle

Expected: in geometric mean the default has at most half of the printed
estimator's error, and nowhere more than 1.5 times that error; `single` has a
smaller error than the printed estimator at its best order, by a factor of 1.3
in mean.
"""

import dataclasses

PAPERS = ('001', '000')
ARTEFACT = ('Tunings of Lalanne, Garivier and Gribonval (2023), which know the '
            'smoothness, and estimators that adapt to it')
COST = '2 min on a CPU core'
HEADLINES = ('the default', 'without beta')

CIRCLE = ('tent2', 'sobrand1', 'sobrand2', 'sobrand3', 'wrapmix')
INTERVAL = ('tent2', 'beta22', 'linear1.5', 'beta25')
CLOSED = {
    ('circle', 'pure'): ('printed', 'oracle', 'exact', 'spectral', 'histogram'),
    ('circle', 'zcdp'): ('printed', 'oracle', 'exact', 'linear'),
    ('interval', 'pure'): ('printed', 'tuned', 'histogram'),
    ('interval', 'zcdp'): ('printed', 'tuned', 'histogram')}
SIMULATED = {
    ('circle', 'pure'): ('default', 'spline', 'single', 'two_resolutions',
                         'two_stages'),
    ('circle', 'zcdp'): ('default', 'spline', 'one_histogram'),
    ('interval', 'pure'): ('default', 'cosine'),
    ('interval', 'zcdp'): ('default', 'cosine')}
SIZES = (10**3, 10**4, 10**5, 10**6)
EPSILONS = (0.02, 0.1, 0.5)
# Below this n epsilon, the uniform density has the least error.
LEAST = 100
REPETITIONS = 200
RATE_SIZES = tuple(10**power for power in range(4, 9))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One estimator on one density.

  Attributes:
    study: 'cells', or 'rate', the errors of `single` against n.
    boundary: 'circle' or 'interval'.
    notion: 'pure' or 'zcdp'.
    method: name from the list above.
    dataset: name of the density.
    num_examples: n, the number of records.
    epsilon: epsilon of the release, or that of rho = epsilon^2 / 2.
    repetitions: number of simulated releases, each from fresh data; 0 for a
      closed form.
    seed: seed of data and noise.
  """
  boundary: str
  notion: str
  method: str
  dataset: str
  num_examples: int
  epsilon: float
  repetitions: int = 0
  study: str = 'cells'
  seed: int = 0


def _cells(sizes, epsilons, repetitions, datasets):
  return tuple(
      Setting(boundary=boundary, notion=notion, method=method, dataset=dataset,
              num_examples=size, epsilon=epsilon,
              repetitions=repetitions if method in simulated else 0)
      for (boundary, notion), simulated in SIMULATED.items()
      for method in (*CLOSED[boundary, notion], *simulated)
      for dataset in datasets[boundary]
      for size in sizes for epsilon in epsilons if size * epsilon >= LEAST)


def _rates(sizes, repetitions, datasets):
  return tuple(
      Setting(study='rate', boundary='circle', notion='pure', method=method,
              dataset=dataset, num_examples=size, epsilon=0.01,
              repetitions=repetitions if method == 'single' else 0)
      for method in ('printed', 'spectral', 'single') for dataset in datasets
      for size in sizes)


SETTINGS = (*_cells(SIZES, EPSILONS, REPETITIONS,
                    {'circle': CIRCLE, 'interval': INTERVAL}),
            *_rates(RATE_SIZES, 60, CIRCLE[1:4]))
SMOKE = (*_cells((10**4,), (0.1,), 40,
                 {'circle': ('sobrand2',), 'interval': ('linear1.5',)}),
         *_rates((10**4, 10**5), 20, CIRCLE[2:3]))

TAGS = {'quick': lambda setting: (
    setting.study == 'cells' and setting.epsilon == 0.1
    and setting.num_examples in (10**4, 10**5))}
