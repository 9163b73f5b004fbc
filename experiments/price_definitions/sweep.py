"""Settings to study definitions of privacy (EXP-10).

  python -m launch.sweep --experiment=price_definitions \
    --output_dir=experiments/price_definitions/results

No records and no noise: outputs of small mechanisms, enumerated. A conditional
variation is the largest total variation of neighbours' laws given an event of
something computed from the output. Kinds of settings:
  conditional  epsilon-DP mechanisms: the largest by linear programs over events
               of probability .001 or more (found), by the range of log-ratios
               (range), what holds for every mechanism (sharp), what is printed
               (printed, linear); and how far posteriors move (posterior)
  approximate  the pair that all (epsilon, delta)-DP pairs come from, given
               events of the probability that Theorem 1 of Barber and Duchi
               (2014) prints; and the sum of errors of a test
  release      one of n records at random, beside randomised response that is
               as hard to test before the fact
  beside       a binary channel with one of k numbers, drawn apart, beside it

Expected: tanh(epsilon / 2), an eighth of the printed 4 epsilon for small
epsilons; .160, .551, .915 at the three pairs with delta, printed .345, .785,
.972; 1/n before and 1 after; .09 without and up to .537 with numbers beside.
"""

import dataclasses

PAPERS = ('004',)
ARTEFACT = ('Sections 2.2 and 2.3 of Barber and Duchi (2014): privacy by tests,'
            ' before and '
            'after the release')
COST = '10 s on a CPU core'
HEADLINES = (
    'publishing a random record is 1/n-private before the draw, and not '
    'private after it',
    'the sum of both errors of a test is at least (2 - delta) / (1 + '
    'e^epsilon)')

MECHANISMS = ('response', 'five_answers', 'laplace', 'parity', 'choice')
MASS = 1e-3
# Item DEF-CHTP: (epsilon, delta) -> conditional variation.
GOLDEN = {(0.1, 1e-3): 0.160, (0.3, 1e-2): 0.551, (0.45, 1e-3): 0.915}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One pair of distributions.

  Attributes:
    kind: name from the list above.
    method: the mechanism.
    amount: epsilon, or n, or k.
    delta: delta of the guarantee.
  """
  kind: str
  method: str
  amount: float
  delta: float = 0.0

  seed = 0
  dataset = 'none'


def _all(epsilons, deltas, sizes, numbers):
  return (
      *(Setting(kind='conditional', method=method, amount=epsilon)
        for method in MECHANISMS for epsilon in epsilons),
      *(Setting(kind='approximate', method='told', amount=epsilon, delta=delta)
        for delta in deltas for epsilon in epsilons
        if delta < epsilon / 2),
      *(Setting(kind='approximate', method='told', amount=epsilon, delta=delta)
        for epsilon, delta in GOLDEN if (epsilon not in epsilons
                                         or delta not in deltas)),
      *(Setting(kind='release', method=method, amount=size)
        for method in ('one_at_random', 'response') for size in sizes),
      *(Setting(kind='beside', method='binary', amount=number)
        for number in numbers))


SETTINGS = _all((0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0),
                (1e-3, 0.1), (2, 5, 10, 20, 50, 100), range(1, 9))
SMOKE = _all((0.1, 1.0), (1e-3,), (2, 5), (1, 4))
