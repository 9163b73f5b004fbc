"""Settings to study definitions of privacy.

Catalogue item EXP-10.

  python -m launch.sweep --experiment=price_definitions \
    --output_dir=experiments/price_definitions/results

There are no records and no noise: outputs of small mechanisms are enumerated.
The conditional variation of a mechanism is the largest total variation between
its output distributions on two neighbours, after both are conditioned on an
event of something computed from the output. Kinds of settings:
  conditional  epsilon-DP mechanisms: the conditional variation by linear
               programs over events of probability .001 or more (found), and by
               the range of log-ratios (range); the bound for every mechanism
               (sharp); the printed bounds (printed, linear); and the largest
               change of a posterior (posterior)
  approximate  the pair of distributions from which all (epsilon, delta)-DP
               pairs derive, given events of the probability that Theorem 1 of
               Barber and Duchi (2014) prints; and the sum of errors of a test
  release      the release of one of n records at random, compared with the
               randomised response that is equally hard to test without
               conditioning
  beside       a binary channel that also outputs one of k numbers, drawn
               independently

Expected: `conditional` has tanh(epsilon / 2), an eighth of the printed
4 epsilon for small epsilon. `approximate` has .160, .551, .915 at its three
pairs (printed: .345, .785, .972). `release` has 1/n without conditioning and 1
with it. `beside` has .09 without numbers and up to .537 with them.
"""

import dataclasses

PAPERS = ('004',)
ARTEFACT = ('Sections 2.2 and 2.3 of Barber and Duchi (2014): privacy by '
            'tests, before and after the release')
COST = '10 s on a CPU core'
HEADLINES = (
    'publishing a random record is 1/n-private before the draw, and not '
    'private after it',
    'the sum of both errors of a test is at least (2 - delta) / (1 + '
    'e^epsilon)')

MECHANISMS = ('response', 'five_answers', 'laplace', 'parity', 'choice')
MASS = 1e-3
# Stored values of item DEF-CHTP: (epsilon, delta) -> conditional variation.
GOLDEN = {(0.1, 1e-3): 0.160, (0.3, 1e-2): 0.551, (0.45, 1e-3): 0.915}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One pair of distributions.

  Attributes:
    kind: name from the list above.
    method: the mechanism.
    amount: epsilon, n or k, depending on the kind.
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
