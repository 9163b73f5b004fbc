"""These tests compare butterflies and their peers with dense matrices.

They also check how the measured times grow.
"""

import numpy as np
import pytest

from experiments.benchmarks import butterflies
from experiments.benchmarks import butterfly_findings
from experiments.benchmarks import methods
from experiments.benchmarks import sweep
from experiments.benchmarks.values import Line
from experiments.methods.sparsity import butterfly


@pytest.mark.parametrize('model,method', [
    *(('product', method) for method in methods.BUTTERFLY),
    ('gradients', 'ours'), ('gradients', 'dense')])
def test_all_methods_are_right_and_wrong_ones_are_seen(model, method):
  spec = butterflies.make_spec(model, method, size=32)
  program = butterflies.make(spec)
  program.step()
  audit = program.audit()
  assert butterflies.judge(spec, audit).passed
  for number, part in enumerate(audit['results']):
    wrong = list(audit['results'])
    wrong[number] = np.roll(part, 1, 0)
    assert not butterflies.judge(spec, {'results': wrong}).passed


def test_the_reference_is_a_product_of_kronecker_products():
  """NumPy's factor-by-factor product equals the dense matrix of all factors."""
  factors = np.random.default_rng(0).normal(size=(3, 4, 2, 2))
  x = np.random.default_rng(1).normal(size=(5, 8))
  wanted = np.eye(8)
  for level, support in enumerate(butterfly.supports(8)):
    matrix = np.zeros((8, 8))
    for row, column in zip(*np.nonzero(support), strict=True):
      inner = 4 >> level
      block = row // (2 * inner) * inner + row % inner
      bit = lambda index: index // inner % 2
      matrix[row, column] = factors[level, block, bit(row), bit(column)]
    wanted = wanted @ matrix
  np.testing.assert_allclose(butterflies.one_by_one(factors, x), x @ wanted.T,
                             rtol=1e-12)


def test_dense_matrices_stay_small_and_gradients_are_of_two():
  asked = sweep.settings('butterfly')
  sizes = lambda method, model='product': [
      s.size for s in asked if (s.method, s.model) == (method, model)]
  assert sizes('ours') == [4**power for power in range(3, 9)]
  assert sizes('dense') == sizes('blas') == sizes('dense', 'gradients') == [
      64, 256, 1024, 4096]
  assert sizes('ours', 'gradients') == sizes('ours') and not sizes(
      'fft', 'gradients')
  largest = next(s for s in asked if s.size == 4**8)
  assert sweep.units(largest) == ()


def test_growth_is_fitted():
  """The fit recovers known powers of growth and ignores small sizes."""
  sizes = [4**power for power in range(3, 9)]
  growing = lambda time: {size: {'cpu_ms': time(size) if size >= 1024 else 9.}
                          for size in sizes}
  lines = {Line('ours', 1): growing(lambda n: 1e-4 * n * np.log2(n)),
           Line('dense', 1): growing(lambda n: 1e-6 * n**2),
           Line('blas', 1): {64: {'cpu_ms': 1.}, 1024: {'failed': 1.}}}
  text = '\n'.join(butterfly_findings.of_suite({'product': lines}))
  ours, dense = (next(line for line in text.splitlines() if f'| {name} ' in line)
                 for name in ('ours', 'dense'))
  assert ours.split('|')[-2].strip() == '1.00'
  assert dense.split('|')[-3].strip() == '2.00'
  assert '| blas ' not in text
  assert butterfly_findings.of_suite({}) == []
