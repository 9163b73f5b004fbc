"""Text about the zoo: how auditors were run, and what each bug is."""

from collections.abc import Mapping
import math

from experiments.audit_zoo import registry

INTRODUCTION = """\
Every bug has a fixed twin with the same claim, which is true for the twin. An
auditor finds a bug if it refutes the claim of the faulty release. Times are in
seconds, with compilation; `>=` is the auditor's lower bound on epsilon.

- `dpjax_black_box` and `dpjax_replay` get all legal data sets, without a hint,
  and search neighbours by themselves.
- The other auditors get one pair of neighbours that shows the fault. They are
  run from their packages, each with as many releases of each data set as a
  black-box audit of dpjax counts (32768), and a quarter more as a pilot. All
  have the significance 0.05.
- `dp_auditorium`: its hockey-stick tester with the default network and training
  and its histogram tester (20 bins, or the values of a discrete output), both
  in both directions; its MMD tester (Gaussian kernel); and for pure claims its
  Rényi tester (order 1.5, output bound 1.5, training of its own tests). They
  share the significance. Outputs are scaled by the pilot, then by tanh, which
  its runner offers. Its bounds are on delta, so no bound on epsilon is shown.
- `jax_privacy`: the bound of Clopper and Pearson over all thresholds of a
  score, which share the significance, in both directions. The score is the
  output, its part along the difference of the means if it has several numbers,
  or for discrete outputs the logarithm of the ratio of frequencies in the
  pilot.
- `statdp`: its event selection on the pilot and its hypothesis test on the
  rest. Its defaults are 100,000 and 500,000 releases. It tests pure claims; a
  delta up to 1e-4 is ignored, because its events have probabilities of 0.001
  and more.
"""

_TITLES = {'dpjax_black_box': 'Black box', 'dpjax_replay': 'Record and replay'}


def bugs(found_by: Mapping[str, Mapping[str, str]]) -> str:
  """Returns a section for each bug.

  Args:
    found_by: name of a bug -> auditor -> its result in words.
  """
  known = registry.names()
  return '\n'.join(_section(name, found_by[name]) for name in found_by
                   if name in known)


def _section(name: str, found_by: Mapping[str, str]) -> str:
  """Returns the section of one bug."""
  item = registry.load(name)
  claim = item.claim
  truth = ('unknown' if item.true_epsilon is None else 'infinite'
           if math.isinf(item.true_epsilon) else f'{item.true_epsilon:.4g}')
  lines = [f'### {name}\n', f'{item.title}\n', f'- Source: {item.source}',
           f'- Claim: epsilon = {claim.epsilon:.4g}, delta = {claim.delta:g}, '
           f'{claim.adjacency.value}; true epsilon at this delta: {truth}',
           f'- Neighbours that show it: {item.worst.what}']
  lines += [f'- {_TITLES[auditor]}: {what}'
            for auditor, what in found_by.items()]
  return '\n'.join(lines) + '\n'
