"""Settings that show distributions with atoms.

Catalogue item QF-25.

  python -m launch.sweep --experiment=quantile_distributions \
    --data_dir=data --output_dir=experiments/quantile_distributions/results

Each setting draws records in 50 bins between the public bounds. Ratings and
pages are of books. Earnings and dividends are of the 2018 American Community
Survey, which replaces the file of Lalanne (2023, section 6.3.5), the 2021
Annual Social and Economic Supplement; both have surrogates that need no file.
The files are those of `dpjax.data.series`.

Expected: in mixed_<p>_<delta>, the bin of 1/2 has the share p. The largest bin
has half of earnings, nine tenths of dividends, a third of pages, a sixth of
ratings.
"""

import dataclasses

PAPERS = ('000',)
ARTEFACT = ('Figure 6.3 of Lalanne (2023): histograms of the distributions of '
            'Figures 6.4 and 6.5')
COST = '10 s on a CPU core'
HEADLINES = (
    'in mixed_<p>_<delta> the atom has probability p, and both sides share '
    'the rest evenly',)

NUM_BINS = 50
MIXED = ('mixed_0_0', 'mixed_0.1_0.05', 'mixed_0.2_0.1', 'mixed_0.5_0.25')
FILES = ('ratings', 'pages', 'earnings', 'dividends')
SURROGATES = ('earnings_surrogate', 'dividends_surrogate')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One distribution.

  Attributes:
    dataset: name of a distribution of `quantile_distributions`.
    num_draws: number of draws; above a million, drawn in parts of a million.
    seed: seed of the draws.
  """
  dataset: str
  num_draws: int = 10**7
  seed: int = 0

  method = 'draws'


TAGS = {'synthetic': lambda setting: setting.dataset not in FILES}

SETTINGS = tuple(Setting(dataset=name)
                 for name in (*MIXED, *FILES, *SURROGATES))
SMOKE = tuple(Setting(dataset=name, num_draws=20_000)
              for name in (*MIXED, *SURROGATES))
