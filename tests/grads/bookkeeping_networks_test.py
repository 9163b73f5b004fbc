"""Tests book-keeping of random networks against per-record gradients."""

import flax.linen as nn
from hypothesis import given
from hypothesis import Phase
from hypothesis import settings
from hypothesis import strategies
import jax
import pytest

from dpjax.grads import precision
from tests.grads.compared import check_equal
from tests.grads.compared import kinds
from tests.grads.compared import linen
from tests.grads.compared import records

# Random networks of Flax: images by convolutions, then sequences, then vectors.
PADDINGS = ('SAME', 'VALID', 'CIRCULAR', ((1, 2), (0, 1)))
convolutions = strategies.fixed_dictionaries(dict(
  kernel_size=strategies.tuples(*[strategies.integers(1, 3)] * 2),
  strides=strategies.tuples(*[strategies.integers(1, 2)] * 2),
  padding=strategies.sampled_from(PADDINGS),
  kernel_dilation=strategies.integers(1, 2),
  feature_group_count=strategies.sampled_from([1, 2]),
  use_bias=strategies.booleans()))


class RandomNet(nn.Module):
  """A random network of convolutions with norms, attention and dense layers."""
  convs: tuple
  norm: str
  attention: bool
  widths: tuple
  activation: str

  @nn.compact
  def __call__(self, x):
    act = getattr(nn, self.activation)
    for options in self.convs:
      x = nn.Conv(4, **options)(x)
      if self.norm != 'none':
        x = nn.GroupNorm(2)(x) if self.norm == 'group' else nn.LayerNorm()(x)
      x = act(x)
    x = x.reshape((x.shape[0], -1, 4))
    if self.attention:
      x = x + nn.MultiHeadDotProductAttention(num_heads=2)(x[:, :6], x)[
        :, :1]
    x = nn.Dense(3)(x).mean(1)
    for width in self.widths:
      x = act(nn.Dense(width, use_bias=width % 2 == 0)(x))
    return nn.Dense(3)(x)


@pytest.mark.slow
@settings(max_examples=2, deadline=None, derandomize=True,
          phases=[Phase.explicit, Phase.generate])
@given(convs=strategies.lists(convolutions, min_size=1, max_size=2),
       norm=strategies.sampled_from(['none', 'group', 'layer']),
       attention=strategies.booleans(),
       widths=strategies.lists(strategies.integers(1, 5), max_size=2),
       activation=strategies.sampled_from(['relu', 'tanh', 'gelu']))
def test_random_networks(convs, norm, attention, widths, activation):
  x = records(9, 8, 2)
  apply, params = linen(RandomNet(tuple(convs), norm, attention, tuple(widths),
                                  activation), x)
  check_equal(apply, params, x)
  layer_kinds = kinds(apply, params, x)
  assert all(kind == 'Layer' for path, kind in layer_kinds.items()
             if path.endswith("['kernel']"))


@pytest.mark.slow
@settings(max_examples=2, deadline=None, derandomize=True,
          phases=[Phase.explicit, Phase.generate])
@given(convs=strategies.lists(convolutions, min_size=1, max_size=2),
       norm=strategies.sampled_from(['group', 'layer']),
       widths=strategies.lists(strategies.integers(1, 5), max_size=2))
def test_random_networks_in_bfloat16(convs, norm, widths):
  x = records(9, 8, 2)
  apply, params = linen(RandomNet(tuple(convs), norm, True, tuple(widths),
                                  'tanh'), x)
  # Flax promotes statistics to float32.
  with jax.numpy_dtype_promotion('standard'):
    check_equal(precision.computed_in(apply, 'bfloat16'), params, x, rtol=3e-2,
                floor=1e-2)
