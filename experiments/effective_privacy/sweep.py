"""Settings to study the privacy of smoothed medians.

The figure is Figure 6.6 of Lalanne (2023). Catalogue item QF-28.

  python -m launch.sweep --experiment=effective_privacy \
    --output_dir=experiments/effective_privacy/results

The mechanism is the exponential mechanism for the median, on records with
added Laplace noise; sigma is the standard deviation of the noise divided by the
range of the data. For a data set X, the measure is the largest log-ratio of
output densities at X and at a neighbour, over all neighbours and outputs. The
text does not state the number of records.

Expected: the measure is below epsilon, since X is fixed. It is flat while the
noise is small, and decreases only where the noise is a tenth of the range or
more, so that the median is no longer useful.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Figure 6.6 of Lalanne (2023): effective privacy of smoothed '
            'medians against their noise')
COST = '10 min on a CPU core'
HEADLINES = ('large noise', 'without noise, neighbours of X attain epsilon')

DATASETS = ('mixed_0_0', 'mixed_0.1_0.05', 'mixed_0.2_0.1', 'mixed_0.5_0.25')
SIGMAS = (1e-4, 1e-3, .01, .03, .1, .3, 1., 3., 10.)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One distribution of the records, with one level of noise.

  Attributes:
    dataset: distribution of the records, see
      `dpjax.studies.quantile_distributions`.
    sigma: standard deviation of the noise over the range.
    num_examples: n, the number of records.
    repetitions: number of data sets X.
    noise_draws: number of noise vectors that densities are averaged over.
    num_values: number of values, evenly over the range, that replace a record.
    epsilon: budget of the mechanism.
    seed: seed of data and noise.
  """
  dataset: str
  sigma: float
  num_examples: int = 21
  repetitions: int = 4
  noise_draws: int = 1500
  num_values: int = 11
  epsilon: float = 1.0
  seed: int = 0

  method = 'smoothed_laplace'


SETTINGS = tuple(Setting(dataset=dataset, sigma=sigma)
                 for dataset in DATASETS for sigma in SIGMAS)
SMOKE = tuple(Setting(dataset='mixed_0.5_0.25', sigma=sigma, repetitions=2,
                      noise_draws=200) for sigma in (1e-4, .1, 10.))

TAGS = {'quick': lambda setting: (
    setting.dataset == DATASETS[-1]
    and setting.sigma in (SIGMAS[0], SIGMAS[-1]))}
