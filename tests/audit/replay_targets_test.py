"""Record and replay finds no violation in the mechanisms of dpjax."""

import jax
import pytest

from dpjax.audit import replay
from dpjax.audit.suite import targets
from dpjax.audit.target import Target

# The cost of these depends on more than noisy values: a choice of an interval
# and a place in it, a noise scale that depends on data, an answer that is true
# or random, a grid whose step is no whole part of one record. A descent of more
# than 64 steps is not unrolled.
_NOT_JUDGED = {
    'inverse_sensitivity', 'smooth_sensitivity', 'randomized_response',
    'stream_bottom_up', 'estimate_support_ranked',
    'estimate_likelihood_descent',
    *(name for name in targets.QUANTILES if 'histogram' not in name)}
_NAMES = [name for name in targets.TARGETS
          if targets.expected(name) == 'consistent'
          and name not in targets.METHODS]


@pytest.mark.parametrize('name', ['laplace_replace', 'exponential_monotone',
                                  'estimate_support_mean'])
def test_a_few_mechanisms_are_judged(name):
  result = replay.audit(jax.random.key(0), targets.TARGETS[name]())
  assert result.judged and not result.violated, str(result)


@pytest.mark.slow
@pytest.mark.parametrize('name', _NAMES)
def test_no_violation_in_any_mechanism(name):
  target = targets.TARGETS[name]()
  assert isinstance(target, Target)
  result = replay.audit(jax.random.key(0), target, sampled_runs=0)
  assert not result.violated, str(result)
  assert result.judged == (name not in _NOT_JUDGED), str(result)
