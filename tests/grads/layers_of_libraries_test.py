"""Tests book-keeping of the layers of Linen, NNX and Equinox against `vmap`.

Each layer is alone in its network: norms of each record and each parameter, and
weighted sums, must be those of gradients formed one by one. Then the same with
padding, short types, and records that are groups of examples.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.runs import environment
from experiments.layer_table import cases
from experiments.layer_table import comparison
from experiments.layer_table import table

_TABLE = environment.ROOT / 'docs' / 'layers.md'
_ALL = [(library, layer) for library in comparison.LIBRARIES
        for layer in cases.LAYERS]
# Layers of different kinds: products, windows, lookups, scales and loops.
_KINDS = ['Linear', 'Conv2d', 'Embedding', 'LayerNorm', 'GRU', 'tied weights']


@functools.cache
def _case(library, layer):
  if not comparison.is_installed(library):
    pytest.skip(f'{library} is not installed')
  return comparison.case(library, layer)


def _compare(case, **options):
  compared = comparison.compare(case, **options)
  assert compared.is_equal, compared
  return compared


@pytest.mark.every(14)
@pytest.mark.parametrize('library, layer', _ALL)
def test_norms_and_sums_are_those_of_vmap(library, layer):
  compared = _compare(_case(library, layer))
  written = table.cells(_TABLE.read_text(), library)
  assert written[layer] == table.cell(compared)


def test_the_committed_page_has_the_text_and_the_layers_of_the_command():
  """Without a comparison; the test above compares each cell."""
  text = _TABLE.read_text()
  assert text.startswith(table.TEXT)
  assert text.endswith(f'Made by `{table.COMMAND}`.\n')
  for library in comparison.LIBRARIES:
    assert list(table.cells(text, library)) == list(cases.LAYERS)


@pytest.mark.sound
def test_a_wrong_norm_or_sum_of_one_layer_is_seen(monkeypatch):
  case = _case('Linen', 'Linear')
  _compare(case)
  honest = bookkeeping.of_record_loss

  def faulty(norm, total):
    def record_gradients(*arguments, **options):
      gradients = honest(*arguments, **options)
      return gradients._replace(
          squares=jax.tree.map(lambda each: norm**2 * each, gradients.squares),
          weighted=lambda weights: jax.tree.map(
              lambda leaf: total * leaf, gradients.weighted(weights)))
    return record_gradients

  for norm, total in ((1 - 1e-4, 1.0), (1.0, 1 + 1e-4)):
    monkeypatch.setattr(bookkeeping, 'of_record_loss', faulty(norm, total))
    assert not comparison.compare(case).is_equal
  monkeypatch.setattr(bookkeeping, 'of_record_loss', faulty(1.0, 1.0))
  assert comparison.compare(case).is_equal


def test_a_gram_matrix_without_cross_terms_is_seen(monkeypatch):
  """A fault of the engine: positions of a sequence counted one by one."""
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: True)
  _compare(_case('Linen', 'Linear'))
  honest = contractions.contract

  def without(spec, *operands):
    if spec == 'gst,gst->':
      operands = [each * jnp.eye(each.shape[-1]) for each in operands]
    return honest(spec, *operands)

  monkeypatch.setattr(contractions, 'contract', without)
  assert not comparison.compare(_case('Linen', 'Linear')).is_equal


@pytest.mark.every(28)
@pytest.mark.parametrize('layer', _KINDS)
def test_padding_counts_for_nothing_whatever_its_values(layer):
  """Records that do not count may hold anything, NaN and huge values too."""
  case = _case('Linen', layer)
  kept = np.arange(len(case.records)) % 2 == 0
  reference = _sums(case, kept)
  rubbish = (-1, 10**6) if case.records.dtype == jnp.int32 else (
      np.nan, np.inf, 1e30, 0.0)
  for value in rubbish:
    padded = jnp.where(kept.reshape((-1,) + (1,) * (case.records.ndim - 1)),
                       case.records, jnp.asarray(value, case.records.dtype))
    jax.tree.map(np.testing.assert_array_equal, _sums(
        case._replace(records=padded), kept), reference)
  _compare(case, kept=kept)


def _sums(case, kept):
  """Returns (squared norms, weighted sums) by book-keeping, as numbers."""
  weights = jnp.asarray(np.where(kept, 0.5, 0.0), jnp.float32)
  with jax.numpy_rank_promotion('allow'):
    return jax.tree.map(np.asarray, comparison.by_bookkeeping(
        case.loss, case.params, case.records, jnp.asarray(kept), weights))


@pytest.mark.slow
@pytest.mark.parametrize('layer', _KINDS)
@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_short_types_give_float32_sums_and_norms_near_the_true_ones(
    layer, dtype):
  """Norms bound what is summed: each record alone is as long as its norm."""
  case = _case('Linen', layer)
  short = jax.tree.map(lambda leaf: leaf.astype(dtype), case.params)
  x = case.records
  x = x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    gradients = bookkeeping.of_record_loss(
        case.loss, short, x, jnp.ones(len(x), jnp.bool_))
    norms = jnp.sqrt(sum(jax.tree.leaves(gradients.squares)))
    wanted = jnp.sqrt(sum(comparison.by_vmap(
        case.loss, case.params, case.records, jnp.ones(len(x), jnp.bool_),
        jnp.ones(len(x)))[0]))
    for i in range(len(x)):
      one = jnp.zeros(len(x)).at[i].set(1.0)
      alone = gradients.weighted(jax.tree.map(lambda leaf, one=one: one, short))
      assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(alone))
      length = np.sqrt(sum(np.sum(np.square(np.asarray(leaf, np.float64)))
                           for leaf in jax.tree.leaves(alone)))
      assert length <= norms[i] * (1 + 2e-5)
  np.testing.assert_allclose(norms, wanted, rtol=0.1)


@pytest.mark.every(24)
@pytest.mark.parametrize('layer', _KINDS)
def test_a_user_with_several_examples_is_one_record(layer):
  """The gradient of a user is that of the mean loss of its examples.

  Users have different numbers of examples; a mask says which ones exist.
  """
  case = _case('Linen', layer)
  users = jnp.stack([case.records, jnp.roll(case.records, 1, 0),
                     case.records[::-1]], 1)
  exist = jnp.asarray([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]], jnp.float32)

  def loss(params, user):
    examples, exist = user
    losses = jax.vmap(case.loss, (None, 0))(params, examples)
    return jnp.sum(exist * losses) / jnp.maximum(jnp.sum(exist), 1.0)

  kept, weights = jnp.ones(4, jnp.bool_), jnp.asarray([1.0, 0.5, 2.0, 1.0])
  with jax.numpy_rank_promotion('allow'):
    ours, theirs = (of(loss, case.params, (users, exist), kept, weights)
                    for of in (comparison.by_bookkeeping, comparison.by_vmap))
  for mine, other in zip(ours[0], theirs[0], strict=True):
    np.testing.assert_allclose(np.sqrt(mine), np.sqrt(other), rtol=1e-5,
                               atol=1e-5 * np.sqrt(other.max()))
  for mine, other in zip(ours[1], theirs[1], strict=True):
    assert np.linalg.norm(mine - other) <= 1e-5 * np.linalg.norm(other) + 1e-6
  # A user without examples has the gradient zero.
  assert max(float(squares[-1]) for squares in ours[0]) < 1e-30


@pytest.mark.every(2)
def test_the_page_says_formed_and_fast_and_not_equal():
  fast = comparison.compare(_case('Linen', 'Linear'))
  assert table.cell(fast) == 'equal; fast'
  slow = comparison.explain.Leaf('w', comparison.explain.FORMED, 'read by fft')
  text = table.cell(fast._replace(sum_error=1e-4, leaves=[*fast.leaves, slow]))
  assert text == 'NOT equal; formed: 1 of 3, read by fft'
  page = f'| layer | NNX | Linen |\n|---|---|---|\n| FFT | - | {text} |\n'
  assert table.cells(page, 'Linen') == {'FFT': text}
