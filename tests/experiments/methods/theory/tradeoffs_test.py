"""These tests compare trade-off functions with tests at a threshold."""

import numpy as np
import pytest
from scipy import stats

from experiments.methods.theory import tradeoffs


@pytest.mark.parametrize('epsilon', [.1, 1.])
def test_tests_at_a_threshold_attain_the_curve_of_laplace_noise(epsilon):
  """Tests at a threshold attain the curve of Laplace noise in all its parts."""
  cuts = np.linspace(-3, 5, 81)
  np.testing.assert_allclose(
      tradeoffs.laplace(stats.laplace.sf(cuts), epsilon=epsilon),
      stats.laplace.cdf(cuts - epsilon), atol=1e-12)


def test_refusals():
  with pytest.raises(ValueError, match='alpha must lie in'):
    tradeoffs.gaussian(np.array([1.2]), shift=1.0)
  with pytest.raises(ValueError, match='shift must be'):
    tradeoffs.gaussian(np.array([0.5]), shift=-1.0)
