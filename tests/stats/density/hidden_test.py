"""Closed forms of errors on densities, sizes and budgets nobody has seen."""

import numpy as np
import pytest

from tests.stats.density import hidden

_SEEDS = range(4)


@pytest.mark.parametrize('draw', hidden.KINDS)
def test_hidden_densities_are_what_they_say(draw):
  """f >= 0 of mass 1, f^2, slopes and masses of bins, by quadrature."""
  for seed in _SEEDS:
    density = draw(np.random.default_rng(seed))
    edges = np.arange(2**16 + 1) / 2**16
    middles = (edges[1:] + edges[:-1]) / 2
    heights = density.pdf(middles)
    assert heights.min() >= 0
    assert np.mean(heights) == pytest.approx(1, abs=1e-8)
    assert np.mean(heights**2) == pytest.approx(density.square, rel=1e-7)
    np.testing.assert_allclose(density.masses(2**12), heights.reshape(
        2**12, 16).mean(1) / 2**12, rtol=0, atol=1e-9)
    slopes = np.abs(np.diff(density.pdf(edges))) * 2**16
    assert slopes.max() <= density.lipschitz * (1 + 1e-9)
    jump = abs(density.pdf(edges[:1]) - density.pdf(edges[-1:]))[0]
    assert not density.periodic or jump < 1e-9
