"""Settings to study polls.

Catalogue items EXP-08, EST-01, EST-02 and LDP-02 to 04.

  python -m launch.sweep --experiment=polls \
    --output_dir=experiments/polls/results

Kinds of settings:
  truthful  every answer is true with probability `parameter` (phi)
  drowned   everyone answers the question of the poll or, with probability
            `parameter` (q), an unrelated one, which `num_other` other people
            are asked alone
  privacy   the epsilon of a truthful poll; nothing is simulated

Expected coverage of intervals of confidence 0.95 at n = 2000: 0.950, 0.949,
0.950, 0.948 for true shares 0.02, 0.1, 0.3, 0.5; 0.950 for the drowned polls.
"""

import dataclasses

PAPERS = ('002',)
ARTEFACT = ('section 7.1 of the lecture notes, chapter 7, Exercises 7.1, 7.2 '
            'and 7.30: polls')
COST = '30 s on a CPU core'
HEADLINES = ('Exercise 7.1', 'Exercise 7.2', 'privacy increases')

REPETITIONS = 6000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One poll, with its way of asking.

  Attributes:
    kind: name from the list above.
    share: p, the fraction of people whose true answer is yes; 0 where it does
      not matter.
    parameter: phi or q.
    num_examples: n, the number of people.
    num_other: m, the number of people who are asked the unrelated question.
    repetitions: number of simulations.
    seed: seed of people and noise.
  """
  kind: str
  share: float
  parameter: float
  num_examples: int = 0
  num_other: int = 0
  repetitions: int = REPETITIONS
  seed: int = 0

  dataset = 'none'

  @property
  def method(self) -> str:
    """Returns the way of asking, which is the kind of the setting."""
    return self.kind


SHARES = (0.02, 0.1, 0.3, 0.5)
DROWNED = ((0.1, 0.5, 2000, 2000), (0.3, 0.2, 1000, 5000),
           (0.05, 0.7, 5000, 500))
PROBS = (0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.75,
         0.8, 0.9, 0.95, 1.0)


def _truthful(probs, size, repetitions=REPETITIONS):
  return tuple(Setting(kind='truthful', share=share, parameter=prob,
                       num_examples=size, repetitions=repetitions)
               for prob in probs for share in SHARES)


def _drowned(repetitions=REPETITIONS):
  return tuple(Setting(kind='drowned', share=share, parameter=other,
                       num_examples=size, num_other=num_other,
                       repetitions=repetitions)
               for share, other, size, num_other in DROWNED)


_PRIVACY = tuple(Setting(kind='privacy', share=0.0, parameter=prob,
                         repetitions=0) for prob in PROBS)

SETTINGS = (*_truthful((0.25, 0.6, 0.75, 0.9), 2000), *_drowned(), *_PRIVACY)
SMOKE = (*_truthful((0.75,), 200, 2000), *_drowned(1000), *_PRIVACY)

TAGS = {'quick': lambda setting: (
    setting.kind != 'truthful'
    or setting.parameter == 0.75 and setting.share in (0.02, 0.3))}
